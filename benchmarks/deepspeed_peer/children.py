"""Runs the benchmark's children: each with a deadline, none of its processes left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

_MARK = "DEEPSPEED_PEER_CHILD"
_GRACE_S = 5.0
_LOOKS = 3
"""Looks in a row that must find nothing: a process shows no environment while it calls exec."""
_TAIL_LINES = 15


class ChildError(RuntimeError):
    """A child failed or was late; says its last lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A command, and how it runs.

    Attributes:
        argv: the command.
        folder: its working directory, made if missing; ``child.log`` there holds its output.
        environment: what is set beside our own environment.
        deadline_s: after that it is ended.
    """

    argv: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    deadline_s: float


class Running:
    """A child that has been started; leaving the context ends all of its processes."""

    def __init__(self, child: Child) -> None:
        self._child, self._token = child, uuid.uuid4().hex
        child.folder.mkdir(parents=True, exist_ok=True)
        self._log = child.folder / "child.log"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                child.argv,
                cwd=child.folder,
                env={**os.environ, **child.environment, _MARK: self._token},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._process, self._token)

    def wait(self) -> None:
        """Wait for its end, at most as long as its deadline says.

        Raises:
            ChildError: it fails or is late.
        """
        try:
            code = self._process.wait(self._child.deadline_s)
        except subprocess.TimeoutExpired:
            raise self.error(f"took over {self._child.deadline_s:.0f} s") from None
        if code:
            raise self.error(f"ended with exit code {code}")

    def has_ended(self) -> bool:
        """Whether the command itself has ended."""
        return self._process.poll() is not None

    def error(self, what: str) -> ChildError:
        """Which child, what happened, and its last lines."""
        lines = self._log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return ChildError("\n".join((f"{_command_text(self._child)} {what}:", *lines)))


def run(child: Child) -> float:
    """Run to the end; its wall seconds.

    Raises:
        ChildError: it fails or misses its deadline.
    """
    started_s = time.perf_counter()
    with Running(child) as running:
        running.wait()
        return time.perf_counter() - started_s


def _end(process: subprocess.Popen[bytes], token: str) -> None:
    """End the child, then everything that carries its mark, whoever its parent is now."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    limit_s = time.monotonic() + _GRACE_S
    looks_left = _LOOKS
    while looks_left and time.monotonic() < limit_s:
        left = _find_marked(token)
        looks_left = _LOOKS if left else looks_left - 1
        for stray in left:
            _kill(stray)
        time.sleep(0.01)


def _find_marked(token: str) -> list[psutil.Process]:
    """Processes with the mark; one that has ended shows none, even before it is reaped."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_MARK) == token:
                found.append(process)
        except (psutil.Error, OSError):
            continue
    return found


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.Error:
        return


def _command_text(child: Child) -> str:
    return " ".join(Path(part).name if "/" in part else part for part in child.argv)
