"""What a failing rank had printed and where it was, for people. Not: how failures are decided.

Taken in the rank, at once: a moment later its peers fill the shared log with their own ends.
"""

from __future__ import annotations

import os
import traceback
from pathlib import Path

STDERR_LOG = "stderr.log"
_PRINTED_LINES = 5
_TRACE_LINES = 15
_TAIL_BYTES = 4096


def last_words(folder: Path, error: BaseException) -> tuple[str, ...]:
    """The last lines on standard error so far, then the end of the traceback."""
    trace = "".join(traceback.format_exception(error)).splitlines()
    return (*_printed(folder / STDERR_LOG)[-_PRINTED_LINES:], *trace[-_TRACE_LINES:])


def _printed(log: Path) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()]
