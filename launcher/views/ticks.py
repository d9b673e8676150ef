"""Calls a function now and then while this thread waits. Not: what is done at a tick."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ticking(tick: Callable[[], None], every_s: float) -> Iterator[None]:
    """Call ``tick`` every ``every_s`` seconds, between two steps of whatever else runs.

    A timer signal, no thread: it also wakes a backend's ``wait``, so that the controller looks
    for new steps. Children do not inherit it. Outside of the main thread nothing ticks.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_alarm(number: int, frame: FrameType | None) -> None:
        tick()

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, every_s, every_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
