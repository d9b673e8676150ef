"""Ways in which an external process ends, and the error that ends it.

An uncaught error is seen by ``sys.excepthook`` or left in ``sys.last_value``; one that the
script caught before it gives up is the context of ``sys.exit``; children of multiprocessing
call neither, but run finalizers while their error passes.
"""

from __future__ import annotations

import builtins
import multiprocessing.util
import os
import sys
import threading
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, NoReturn, Protocol

from autoconf_launch.core import real_time

_LAST_GRACE_S = 2.0
"""From the report of an uncaught error to the process's end, whatever hangs."""
_FIRST = 1000
"""Before every other finalizer of multiprocessing."""
exit_now = os._exit


class EndListener(Protocol):
    """Is told of the end, perhaps more than once."""

    def thread_died(self, error: BaseException) -> None:
        """An uncaught error ends the thread that calls; the process continues."""

    def uncaught(self, error: BaseException) -> bool:
        """An uncaught error ends the script; whether the process may be ended for it."""

    def giving_up(self, error: BaseException | None, status: object) -> None:
        """The script exits with this status, while it handles an error perhaps."""

    def on_end(self, error: BaseException | None) -> None:
        """The script is over; with the error that ends it, where there is one."""


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
