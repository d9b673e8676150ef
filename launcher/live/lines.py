"""A tuning run as plain lines, one per trial."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from functools import singledispatchmethod

from ..events import (
    Event,
    Finished,
    ModelProfiled,
    Note,
    RoundFinished,
    SpaceBuilt,
    StepSeen,
    TrialFinished,
    TrialStarted,
)
from ..report import (
    log_lines,
    profile_line,
    round_line,
    space_line,
    started_line,
    step_line,
    trial_line,
)


class LinesView:
    """Writes a line for each event of interest; ``quiet`` leaves only warnings."""

    def __init__(self, write: Callable[[str], None], *, quiet: bool, level: str) -> None:
        self._write = write
        self._quiet = quiet
        self._debug = level == "debug"
        self._last_log: list[str] = []

    def handle(self, event: Event) -> None:
        """Show one event."""
        self._show(event)

    @singledispatchmethod
    def _show(self, event: Event) -> None:
        """Write nothing for other events."""

    @_show.register
    def _(self, event: Note) -> None:
        if event.warning:
            self._write(f"autoconf-launch: warning: {event.text}")
        elif self._debug or not (self._quiet or event.detail):
            self._write(f"autoconf-launch: {event.text}")

    @_show.register
    def _(self, event: ModelProfiled) -> None:
        if not self._quiet:
            self._write(profile_line(event.spec, event.wall_s))

    @_show.register
    def _(self, event: SpaceBuilt) -> None:
        if not self._quiet:
            self._write(space_line(event))

    @_show.register
    def _(self, event: TrialStarted) -> None:
        if self._debug:
            self._write(started_line(event.trial))

    @_show.register
    def _(self, event: StepSeen) -> None:
        if self._debug:
            self._write(step_line(event.step))

    @_show.register
    def _(self, event: TrialFinished) -> None:
        trial = event.record.trial
        if trial.final and event.record.measurement and not self._debug:
            return  # the round has a line
        if not self._quiet:
            self._write(trial_line(event))
            log = log_lines(event.record)
            for line in log if log != self._last_log else ():
                self._write(line)
            self._last_log = log or self._last_log

    @_show.register
    def _(self, event: RoundFinished) -> None:
        if not self._quiet:
            self._write(round_line(event))

    @_show.register
    def _(self, event: Finished) -> None:
        self._write(f"\n{event.text.rstrip()}")


def wrap_sentences(text: str, width: int) -> str:
    """The text with its sentences wrapped at words; commands and rows of tables stay whole."""
    return "\n".join(_wrap(line, width) for line in text.split("\n"))


def _wrap(line: str, width: int) -> str:
    if line.startswith("|") or "  " in line:  # a row has its columns apart, a command is indented
        return line
    return textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False)
