"""How a process ended, in words for people. Not: why (``outcome``)."""

from __future__ import annotations

import signal
from collections.abc import Sequence

_USAGE = 2
"""Of argparse, click and most programs, for a command line that they do not understand."""


def how_it_died(code: int, error: str = "") -> str:
    """Of an exit code that is not 0; negative where a signal ended the process.

    ``error``: what its log says.
    """
    if code > 0:
        hint = " (as of a script that refuses its arguments)" if code == _USAGE else ""
        why = f": {error}" if error else " and did not report why"
        return f"ended with exit code {code}{hint}{why}"
    if -code == signal.SIGKILL:
        return "was killed by SIGKILL; the kernel may have run out of memory (see dmesg)"
    return f"was killed by {signal_name(-code)}"


def signal_name(number: int) -> str:
    """``SIGTERM`` for 15, ``signal 99`` for what has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def who_left(ranks: Sequence[int]) -> str:
    """That these ranks ended well before another failed; empty where there are none."""
    if not ranks:
        return ""
    names = " and ".join(map(str, ranks))
    return f"rank{'s' * (len(ranks) > 1)} {names} had ended without an error before it"
