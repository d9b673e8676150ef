"""The jobs of an inference search on a Slurm that answers: all queued at once, then waited for."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path

from autoconf_launch.launcher.events import Listener, Note
from autoconf_launch.launcher.hosts import (
    UNSAID_WAIT_S,
    SlurmQueue,
    cancel_jobs,
    pending_text,
    submit_job,
)
from autoconf_launch.launcher.interrupts import stopping_on_signals

_LOOK_S = 0.5


def queue_jobs(scripts: Mapping[str, Path]) -> dict[str, int]:
    """Numbers of the jobs that run these scripts, by the names of their points.

    Raises:
        ConfigError: Slurm refuses one; the others are cancelled.
    """
    numbers: dict[str, int] = {}
    try:
        for name, script in scripts.items():
            log = f"--output={script.parent / 'slurm-%j.out'}"
            numbers[name] = submit_job((log, str(script)), {})
    except BaseException:
        if numbers:
            cancel_jobs(*numbers.values())
        raise
    return numbers


def await_jobs(numbers: Mapping[str, int], listener: Listener) -> dict[str, str]:
    """Wait for all, and how each one ended; an interrupted search cancels them."""
    queue, ended = SlurmQueue(), dict[str, str]()
    for number in numbers.values():
        queue.add(number)
    waiting = dict(numbers)
    said_s = time.monotonic() + UNSAID_WAIT_S
    try:
        with stopping_on_signals():
            while waiting:
                time.sleep(_LOOK_S)
                for name, number in tuple(waiting.items()):
                    if (over := queue.why_over(number)) is not None:
                        del waiting[name]
                        ended[name] = over.detail
                        listener(Note(text=f"{name}: {over.detail}"))
                queued = [number for number in waiting.values() if queue.is_waiting(number)]
                if queued and time.monotonic() > said_s:
                    said_s = math.inf
                    listener(Note(text=f"Waiting for hosts: {pending_text(queued[0])}."))
    finally:
        if waiting:
            cancel_jobs(*waiting.values())
    return ended
