"""Errors that say where, what is, what must be and what to do. Not: failures of trials.

A trial that fails is a value (:class:`~.failures.Failure`); only what the user must fix
before anything can run is raised.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AutoconfError(Exception):
    """Base of every error that this project raises on purpose; its text is for the user."""


class ConfigError(AutoconfError, ValueError):
    """The user's configuration or command line cannot mean anything."""


class ResultsFolderError(AutoconfError):
    """The results folder is locked by another controller, or cannot be written."""


class HardwareError(AutoconfError):
    """The machine lacks what was asked for: devices, or room on the disk."""


def nearest_known(name: str, known: Iterable[str]) -> str:
    """A phrase that helps with an unknown name.

    Returns:
        ``did you mean 'x'?`` with the nearest known name, otherwise ``known: a, b, c``.
    """
    names = sorted(known)
    plain = {one.lower(): one for one in reversed(names)}
    close = difflib.get_close_matches(name.lower(), plain, n=1)
    return f"did you mean '{plain[close[0]]}'?" if close else f"known: {', '.join(names)}"


def still_open(name: str, value: object) -> str:
    """A sentence on a list or "auto" that reaches a launch as it is."""
    return (
        f'{name} is {value!r}, but a launch needs one value; lists and "auto" are resolved by '
        "autoconf-launch, so start the script with it."
    )


class NothingFeasibleError(AutoconfError):
    """No configuration can be measured: the baseline fails, or nothing fits.

    Attributes:
        log_tail: the child's own last lines, if one ran.
    """

    def __init__(self, message: str, log_tail: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.log_tail = log_tail
