"""Ways in which an external process ends, the error that ends it, and the reason in the result.

An uncaught error is seen by ``sys.excepthook`` or left in ``sys.last_value``; an error that the
script caught before it gives up is the context of ``sys.exit``; children of multiprocessing
call neither, but run finalizers while their error passes. An error or a status that the script
outlives by a step is not a reason.
"""

from __future__ import annotations

import builtins
import multiprocessing.util
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from types import TracebackType
from typing import Any, NoReturn, Protocol

from autoconf_launch.core import Failure, FailureKind, real_time

from ..rank import asked_bytes, classify, is_allocation_failure, is_of_weights

NO_STEPS = Failure(
    kind=FailureKind.NO_STEPS,
    detail="The script ran backward passes, but no torch.optim.Optimizer made a step and no "
    "weights of a module were seen to change at equal intervals, so that its steps are not known.",
)
_LAST_GRACE_S = 2.0
"""From the report of an uncaught error to the process's end, whatever hangs."""
_FIRST = 1000
"""Before every other finalizer of multiprocessing."""
exit_now = os._exit


class EndListener(Protocol):
    """Receives the end, perhaps more than once."""

    def thread_died(self, error: BaseException) -> None:
        """An uncaught error ends the thread that calls; the process continues."""

    def uncaught(self, error: BaseException) -> bool:
        """An uncaught error ends the script; whether the process may be ended for it."""

    def giving_up(self, error: BaseException | None, status: object) -> None:
        """The script exits with this status, while it handles an error perhaps."""

    def on_end(self, error: BaseException | None) -> None:
        """The script is over; with the error that ends it, if any."""


class Endings:
    """Listens for the end; one per process."""

    def __init__(self, listener: EndListener) -> None:
        self._listener = listener

    def install(self) -> None:
        """Listen from here on, also in children that are forked."""
        self._watch_errors()
        sys.exit = self._exit(sys.exit)
        for name in ("exit", "quit"):
            if hasattr(builtins, name):
                setattr(builtins, name, self._exit(getattr(builtins, name)))
        os._exit = self._sudden(os._exit)  # type: ignore[assignment]
        self.finalize()

    def finalize(self) -> None:
        """Be called at the end of this process; again in a child, which forgets."""
        multiprocessing.util.Finalize(None, self._over, exitpriority=_FIRST)

    def _watch_errors(self) -> None:
        previous = sys.excepthook

        def hook(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            leave = issubclass(kind, Exception) and self._listener.uncaught(error)
            if leave:
                threading.Thread(target=_end_soon, daemon=True).start()
            previous(kind, error, trace)

        sys.excepthook = hook
        self._watch_threads()

    def _watch_threads(self) -> None:
        previous = threading.excepthook

        def hook(ended: threading.ExceptHookArgs) -> None:
            if isinstance(ended.exc_value, Exception):
                self._listener.thread_died(ended.exc_value)
            previous(ended)

        threading.excepthook = hook

    def _exit(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original, updated=())
        def leave(*arguments: Any, **named: Any) -> Any:
            status = next(iter((*arguments, *named.values())), None)
            self._listener.giving_up(sys.exc_info()[1], status)
            return original(*arguments, **named)

        return leave

    def _sudden(self, original: Callable[[int], NoReturn]) -> Callable[[int], NoReturn]:
        @wraps(original)
        def leave(status: int) -> NoReturn:
            self._listener.giving_up(sys.exc_info()[1], status)
            self._over()
            original(status)

        return leave

    def _over(self) -> None:
        error = sys.exc_info()[1]
        if error is None:
            error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        self._listener.on_end(error)


def _end_soon() -> None:
    real_time.sleep(_LAST_GRACE_S)
    exit_now(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastWord:
    """The reason why the script is over, and its message.

    ``of_weights``: the requested bytes would have held a module.
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


class Reasons:
    """The reason why the script of one process ends, from the observed errors and statuses."""

    def __init__(self) -> None:
        self._refused: Failure | None = None
        self._caught: Failure | None = None
        self._asked = 0
        self._status: object = None
        self._died_of: BaseException | None = None
        self._thread: int | None = None
        """The thread that made the last step."""

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
        """Reason of a script's end, as far as it can be seen; ``error`` is its last error."""
        error = error or self._died_of
        failure, asked = None, 0
        if isinstance(error, Exception) or (error and error.__context__):
            failure, asked = classify(error), asked_bytes(error)
            if not isinstance(error, Exception) and failure.kind is FailureKind.CRASHED:
                failure = None  # a script exits by itself and has its own reasons
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
