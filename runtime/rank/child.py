"""Runs a function in a forked child with a deadline."""

from __future__ import annotations

import os
import select
import signal
import time
import warnings
from collections.abc import Callable

import torch

from .memory import lift_data_limit

_CHUNK_BYTES = 1 << 16


class ChildError(Exception):
    """The child raised, died or took too long; the text says which."""


def in_child(work: Callable[[], str], *, timeout_s: float) -> str:
    """What ``work`` returns in a copy of this process, which the call leaves untouched.

    Raises:
        ChildError: ``work`` raised, the child died, or the time was up (then it is killed).
    """
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(read_end)
        _run(work, write_end)
    os.close(write_end)
    try:
        answer = _read(read_end, time.monotonic() + timeout_s)
    finally:
        os.close(read_end)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    if answer is None:
        raise ChildError(f"it took longer than {timeout_s:g} s")
    if answer[:1] != b"+":
        raise ChildError(answer[1:].decode() or "the child died")
    return answer[1:].decode()


def _run(work: Callable[[], str], write_end: int) -> None:
    """Answer through the pipe and end: no exit handlers, no return into the parent's code.

    One thread: OpenMP's others do not live on in a forked child, and it would wait for them.
    """
    try:
        lift_data_limit()
        torch.set_num_threads(1)
        answer = b"+" + work().encode()
    except BaseException as error:
        answer = b"-" + f"{type(error).__name__}: {error}".encode()
    with open(write_end, "wb", closefd=False) as pipe:
        pipe.write(answer)
    os._exit(0)


def _read(read_end: int, deadline_s: float) -> bytes | None:
    answer = b""
    while select.select([read_end], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
        chunk = os.read(read_end, _CHUNK_BYTES)
        if not chunk:
            return answer
        answer += chunk
    return None
