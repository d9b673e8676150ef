"""Errors that say where, what is, what must be and what to do.

A trial that fails is a value (:class:`~.failures.Failure`); only what the user must fix
before anything can run is raised.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum


class AutoconfError(Exception):
    """Base of every error that this project raises on purpose; its text is for the user."""

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows in place of a traceback: no line of ours helps the user."""
        return [f"{type(self).__name__}: {self}", *getattr(self, "log_tail", ())]


class ConfigError(AutoconfError, ValueError):
    """The user's configuration or command line cannot mean anything."""


class ResultsFolderError(AutoconfError):
    """The results folder is locked by another controller, or cannot be written."""


class HardwareError(AutoconfError):
    """The machine lacks what was asked for: devices, or room on the disk."""


_LONGEST_NAME, _LONGEST_LIST = 100, 250
_LONGEST_LINE = 380


def nearest_known(name: str, known: Iterable[str]) -> str:
    """A phrase that helps with an unknown name.

    Returns:
        ``did you mean 'x'?`` with the nearest known name, otherwise ``known: a, b, c``.
    """
    names = sorted(known)
    plain = {one.lower(): one for one in reversed(names)}
    close = difflib.get_close_matches(name[:_LONGEST_NAME].lower(), plain, n=1)
    if close:
        return f"did you mean '{plain[close[0]]}'?"
    listed = ", ".join(names)
    if len(listed) > _LONGEST_LIST:
        listed = f"{listed[:_LONGEST_LIST].rpartition(', ')[0]}, … ({len(names)} in all)"
    return f"known: {listed}"


_UNSHOWN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""What moves a terminal's cursor, colours it, or turns the direction of its text."""


def visible(text: str) -> str:
    """The text with its control characters written as escapes; lines and tabs stay."""
    return _UNSHOWN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def one_line(text: str) -> str:
    """A message on one line, under 400 characters with the command's name before it.

    A longer one loses its middle, which is mostly a value of the user's.
    """
    line = " ".join(visible(text).split())
    head = 2 * _LONGEST_LINE // 3
    if len(line) <= _LONGEST_LINE:
        return line
    return f"{line[:head]} … {line[head + 3 - _LONGEST_LINE :]}"


def plural(count: int, noun: str, several: str = "") -> str:
    """``1 step``, ``2 steps``; ``several`` where no *s* makes it."""
    return f"{count} {noun if count == 1 else several or f'{noun}s'}"


def still_open(name: str, value: object) -> str:
    """A sentence on a list or "auto" that reaches a launch as it is."""
    return (
        f'{name} is {value!r}, but a launch needs one value; lists, "all" and "auto" are resolved '
        "by autoconf-launch, so start the script with it."
    )


class NothingFeasibleError(AutoconfError):
    """No configuration can be trained with: the baseline fails, nothing fits, or a later crash.

    Attributes:
        log_tail: the child's own last lines, if one ran.
    """

    def __init__(self, message: str, log_tail: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.log_tail = log_tail


class FailureKind(str, Enum):
    """Every way a trial can end without a measurement."""

    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    STALLED = "stalled"
    BAD_CONFIG = "bad_config"
    NOT_APPLIED = "not_applied"
    """The strategy that was asked for is not the one that ran."""
    NO_STEPS = "no_steps"
    NAN = "nan"
    NODE_LOST = "node_lost"
    PREEMPTED = "preempted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """What went wrong, in one sentence, and the child's own last lines.

    What represents a byte that is not text (a lone surrogate) is escaped: no file takes it.
    ``ran_micro_batch`` is the largest that ran, where it was smaller than asked. ``lost_peer``: a
    rank only saw that another one had gone.
    """

    kind: FailureKind
    detail: str
    log_tail: tuple[str, ...] = ()
    ran_micro_batch: int | None = None
    lost_peer: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "detail", _encodable(self.detail))
        object.__setattr__(self, "log_tail", tuple(map(_encodable, self.log_tail)))


def _encodable(text: str) -> str:
    return text.encode(errors="backslashreplace").decode()
