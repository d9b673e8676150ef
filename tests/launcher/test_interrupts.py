"""A signal stops a tune once, wherever it comes."""

import os
import signal
import sys
import time

import pytest

from autoconf_launch.launcher.interrupts import (
    InterruptedBySignalError,
    stopping_on_signals,
)


class SignalsAtItsEnd:
    """Its destructor is where the signal arrives, which Python lets no exception leave."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)


def lose_a_signal() -> None:
    one = SignalsAtItsEnd()
    del one
    time.sleep(5.0)


def signal_twice() -> None:
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5.0)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)


def test_a_signal_that_a_destructor_swallows_stops_all_the_same() -> None:
    hook = sys.unraisablehook
    with pytest.raises(InterruptedBySignalError), stopping_on_signals():
        lose_a_signal()
    assert sys.unraisablehook is hook


def test_a_second_signal_is_left_to_the_clean_up() -> None:
    with pytest.raises(InterruptedBySignalError), stopping_on_signals():
        signal_twice()


def test_a_hangup_that_nohup_ignores_stops_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopping_on_signals():
            os.kill(os.getpid(), signal.SIGHUP)
            time.sleep(0.01)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
