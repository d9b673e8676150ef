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
    """A signal asks us to stop; not an ``Exception``, so that no handler swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def stopping_on_signals() -> Iterator[None]:
    """Raise :class:`InterruptedBySignalError` once; a second signal is left to the clean-up."""
    stopping = False

    def stop(number: int, frame: FrameType | None) -> None:
        nonlocal stopping
        if not stopping:
            stopping = True
            raise InterruptedBySignalError(number)

    def send_again(lost: sys.UnraisableHookArgs) -> None:
        """A destructor, during which it arrived, has swallowed the exception."""
        nonlocal stopping
        if not isinstance(lost.exc_value, InterruptedBySignalError):
            usual(lost)
            return
        stopping = False
        threading.Timer(_AGAIN_S, os.kill, (os.getpid(), lost.exc_value.number)).start()

    usual = sys.unraisablehook
    sys.unraisablehook = send_again
    try:
        with _handle_signals(stop):
            yield
    finally:
        sys.unraisablehook = usual


@contextmanager
def passing_signals_to(send: Callable[[int], None]) -> Iterator[None]:
    """Pass every stopping signal to ``send`` and live on."""
    with _handle_signals(lambda number, frame: send(number)):
        yield


def _is_kept_from_us(number: signal.Signals) -> bool:
    """True if ``nohup`` started us, so that the end of a session must not stop us."""
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
