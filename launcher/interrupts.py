"""Signals as an exception in a tuning run, or passed on to a training."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from autoconf_launch.core import AutoconfError

_AGAIN_S = 0.05
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


class InterruptedBySignalError(BaseException):
    """A signal asks us to stop; not an ``Exception``, so that nobody swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


_stopped_by: int | None = None
"""The signal that a tune was told to stop by."""


@contextmanager
def stopping_on_signals() -> Iterator[None]:
    """Raise :class:`InterruptedBySignalError` once; a second signal is left to the clean-up."""
    global _stopped_by  # a process has one handler of a signal

    def stop(number: int, frame: FrameType | None) -> None:
        global _stopped_by
        if _stopped_by is None:
            _stopped_by = number
            raise InterruptedBySignalError(number)

    def send_again(lost: sys.UnraisableHookArgs) -> None:
        """A destructor that it came in has swallowed the exception."""
        global _stopped_by
        if not isinstance(lost.exc_value, InterruptedBySignalError):
            usual(lost)
            return
        _stopped_by = None
        threading.Timer(_AGAIN_S, os.kill, (os.getpid(), lost.exc_value.number)).start()

    usual = sys.unraisablehook
    sys.unraisablehook = send_again
    try:
        with _handle_signals(stop):
            yield
    finally:
        _stopped_by = None
        sys.unraisablehook = usual


def stop_if_asked() -> None:
    """Raise again where code that the exception came in has swallowed it and goes on.

    Not for a clean-up, which goes on rightly.

    Raises:
        InterruptedBySignalError: a signal asked us to stop.
    """
    if _stopped_by is not None:
        raise InterruptedBySignalError(_stopped_by)


@contextmanager
def passing_signals_to(send: Callable[[int], None]) -> Iterator[None]:
    """Hand every stopping signal to ``send`` and live on."""
    with _handle_signals(lambda number, frame: send(number)):
        yield


def _is_kept_from_us(number: signal.Signals) -> bool:
    """Whether ``nohup`` started us, so that the end of a session is not to stop us."""
    return number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN


@contextmanager
def _handle_signals(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    ours = [number for number in STOPPING if not _is_kept_from_us(number)]
    before = {number: signal.signal(number, handler) for number in ours}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class DoesNotFitError(AutoconfError):
    """``fit`` has said no, and its report has been printed."""
