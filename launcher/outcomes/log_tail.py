"""The last real lines of a launch's own output. Not: a way to tell why it failed.

Nothing is decided from these lines; they are shown beside a failure.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

STDOUT_LOG = "stdout.log"
STDERR_LOG = "stderr.log"
TAIL_LINES = 15
_TAIL_BYTES = 16384
_LONGEST_LINE = 500
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.")
_OF_A_RANK = re.compile(r"^\[rank\d+\]: ?")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(: |$)")
_USAGE_ERROR = re.compile(r"\S+: error: ")
_INDENT = "  "
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """Where a launch's part of the two logs begins; earlier attempts stand before it."""

    stdout_bytes: int = 0
    stderr_bytes: int = 0


def read_log_tail(folder: str | Path, start: LogStart | None = None) -> tuple[str, ...]:
    """The last lines of ``stderr.log``, of ``stdout.log`` where that has none.

    Blank lines, control characters and what a progress bar wrote over are left out; only the
    end of a file is read.
    """
    start = start or LogStart()
    return file_tail(Path(folder, STDERR_LOG), start.stderr_bytes) or file_tail(
        Path(folder, STDOUT_LOG), start.stdout_bytes
    )


def printed_error(folder: str | Path, start: LogStart | None = None, *, ranks: int = 1) -> str:
    """The last line of a traceback, or of a refusal of arguments; empty where there is none.

    Of one rank the last one, as earlier ones may have been caught; where several share a log,
    the first one, as others follow from it.
    """
    log = _lines(Path(folder, STDERR_LOG), (start or LogStart()).stderr_bytes)
    lines = [_OF_A_RANK.sub("", line) for line in log]
    errors = [
        line
        for before, line in zip(("", *lines), lines, strict=False)
        if _USAGE_ERROR.match(line) or (before.startswith(_INDENT) and _EXCEPTION.match(line))
    ]
    return errors[-1 if ranks == 1 else 0] if errors else ""


def file_tail(path: Path, start: int = 0, *, lines: int = TAIL_LINES) -> tuple[str, ...]:
    """The same of any file, from a byte on; nothing where it cannot be read."""
    return _lines(path, start)[-lines:]


def _lines(path: Path, start: int) -> tuple[str, ...]:
    try:
        with path.open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            begin = max(start, end - _TAIL_BYTES)
            file.seek(begin)
            text = file.read(_TAIL_BYTES).decode(errors="replace")
    except OSError:
        return ()
    lines = text.split("\n")
    if begin > start and len(lines) > 1:
        del lines[0]  # the cut went through it
    cleaned = [clean_line(line) for line in lines]
    return tuple(line for line in cleaned if line)


def clean_line(line: str) -> str:
    """What a terminal would show of a line at its end, at most 500 characters of it."""
    visible = _ESCAPES.sub("", line).rstrip("\r").rpartition("\r")[2]
    return _CONTROLS.sub("", visible).rstrip()[:_LONGEST_LINE]
