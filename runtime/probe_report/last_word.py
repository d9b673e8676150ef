"""The reason that a probe adds when a rank writes its result.

An error or a status that the script outlives by a step is not a reason.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from autoconf_launch.core import Failure, FailureKind

from ..rank import asked_bytes, classify, is_allocation_failure, is_of_weights

NO_STEPS = Failure(
    kind=FailureKind.NO_STEPS,
    detail="The script ran backward passes, but no torch.optim.Optimizer made a step and no "
    "weights of a module were seen to change at equal intervals, so that its steps are not known.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWord:
    """Why the script is over, and what is to be said of it.

    ``of_weights``: the bytes asked for were to make or move a module.
    """

    failure: Failure | None = None
    error: BaseException | None = None
    asked_bytes: int = 0
    of_weights: bool = False
    caught: Failure | None = None
    ended_early: bool = False
    left_behind: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def is_out_of_memory(self) -> bool:
        """True if the script ended out of memory."""
        return self.failure is not None and self.failure.kind is FailureKind.OUT_OF_MEMORY


def reason_of(error: BaseException | None) -> tuple[Failure | None, int]:
    """The failure that an error means, and bytes that it was refused.

    None: there is no error, or a script exits by itself and has its own reasons.
    """
    if error is None or not (isinstance(error, Exception) or error.__context__):
        return None, 0
    failure = classify(error)
    if not isinstance(error, Exception) and failure.kind is FailureKind.CRASHED:
        return None, asked_bytes(error)
    return failure, asked_bytes(error)


class Reasons:
    """Why the script of one process ends, from what was heard of it."""

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

    def on_failure(self, error: BaseException) -> None:
        """A computation of the script raised; it may still be caught."""
        if is_allocation_failure(error):
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
        return (f"The script caught an out-of-memory error and continued: {self._caught.detail}",)
