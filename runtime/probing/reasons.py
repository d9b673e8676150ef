"""Why a watched script is over, from what was heard while it ran. Not: how that is heard.

An error or a status that the script outlives by a step is not a reason.
"""

from __future__ import annotations

import threading

from autoconf_launch.core import Failure

from ..failures import asked_bytes, classify, is_of_weights, is_out_of_memory
from .last_word import NO_STEPS, LastWord, reason_of


class Reasons:
    """Those of one process."""

    def __init__(self) -> None:
        self._refused: Failure | None = None
        self._caught: Failure | None = None
        self._asked = 0
        self._status: object = None
        self._died_of: BaseException | None = None
        self._thread: int | None = None
        """The one that made the last step."""

    def trains(self) -> None:
        """A step was made, by the thread that calls."""
        if self._refused:
            self._caught, self._refused = self._refused, None
        self._status = self._died_of = None
        self._thread = threading.get_ident()

    def failed(self, error: BaseException) -> None:
        """A computation of the script raised; it may still be caught."""
        if is_out_of_memory(error):
            self._refused = classify(error)
            self._asked = asked_bytes(error)

    def exits(self, status: object) -> None:
        """The script exits with this status, unless that is caught."""
        self._status = status

    def thread_died(self, error: BaseException) -> None:
        """The thread that calls ends with this error, and the others go on."""
        if self._thread in (None, threading.get_ident()):
            self._died_of = error

    def last_word(self, error: BaseException | None, steps: int) -> LastWord:
        """Reason of a script's end, as far as it can be seen; ``error`` is what it ends with."""
        error = error or self._died_of
        failure, asked = reason_of(error)
        if failure is None and self._refused:
            failure, asked = self._refused, self._asked
        failure = failure or (None if steps else NO_STEPS)
        return LastWord(
            failure=failure,
            error=error,
            asked_bytes=asked,
            of_weights=bool(asked and error and is_of_weights(error)),
            caught=self._caught,
            ended_early=failure is None and self._status in (None, 0),
            notes=self._notes(),
        )

    def word_of_success(self) -> LastWord:
        """Reason of a script's end that made the requested steps."""
        self._caught = self._caught or self._refused
        return LastWord(caught=self._caught, notes=self._notes())

    def _notes(self) -> tuple[str, ...]:
        if self._caught is None:
            return ()
        return (f"The script caught an out of memory and went on: {self._caught.detail}",)
