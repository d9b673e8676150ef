"""The choice between plain lines and a table that is drawn in place."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Protocol, TextIO

from ..events import Event
from ..request import LaunchRequest
from .lines import LinesView

_CANNOT_MOVE = ("", "dumb", "unknown")


class View(Protocol):
    """Shows events as they come."""

    def handle(self, event: Event) -> None:
        """Show one event."""


def open_view(
    request: LaunchRequest, write: Callable[[str], None], environment: Mapping[str, str]
) -> AbstractContextManager[View]:
    """The view for this command on our own streams; ``write`` takes plain lines.

    ``NO_COLOR`` takes the colours from the live table, not the table.
    """
    if not wants_live(request, (sys.stdout, sys.stderr), environment):
        return nullcontext(LinesView(write, quiet=request.quiet, level=request.log_level))
    return open_live(stderr=True)


def open_live(*, stderr: bool = False) -> AbstractContextManager[View]:
    """A table that is drawn in place on our output, or on our errors."""
    from rich.console import Console

    from .view import LiveView

    return LiveView(Console(stderr=stderr))


def wants_live(
    request: LaunchRequest, streams: tuple[TextIO, ...], environment: Mapping[str, str]
) -> bool:
    """True if a table can be drawn in place and no other view was requested."""
    if not request.autotuning or request.quiet or request.log_level == "debug":
        return False
    return can_draw(streams, environment)


def can_draw(streams: tuple[TextIO, ...], environment: Mapping[str, str]) -> bool:
    """True if these streams can redraw a table in place."""
    if environment.get("TERM", "") in _CANNOT_MOVE or find_spec("rich") is None:
        return False
    return all(stream.isatty() for stream in streams)
