"""Lines of a launch's two logs; nothing is decided from them, they are shown beside a failure."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from autoconf_launch.core import ResultsFolderError

from ..results import open_file

STDOUT_LOG = "stdout.log"
STDERR_LOG = "stderr.log"
TAIL_LINES = 15
_TAIL_BYTES = 16384
_LONGEST_LINE = 500
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.")
_OF_A_RANK = re.compile(r"^\[rank(\d+)\]: ?")
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(: |$)")
_USAGE_ERROR = re.compile(r"\S+: error: ")
_INDENT = "  "
_TRACEBACK = "Traceback (most recent call last)"
_NO_REASON = re.compile(
    r"warn|^\[W|\d+%\||\bit/s\b|\bs/it\b|connection|broken pipe|\bpeer\b|nccl|gloo|ProcessGroup"
    r"|TCPStore|^frame #",
    re.IGNORECASE,
)
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogStart:
    """Where a launch's part of the two logs begins; earlier attempts stand before it."""

    stdout_bytes: int = 0
    stderr_bytes: int = 0


def read_log_tail(folder: str | Path, start: LogStart | None = None) -> tuple[str, ...]:
    """The last lines of ``stderr.log``, of ``stdout.log`` where that has none.

    Blank lines, control characters and what a progress bar wrote over are skipped; only the
    end of a file is read.
    """
    start = start or LogStart()
    return file_tail(Path(folder, STDERR_LOG), start.stderr_bytes) or file_tail(
        Path(folder, STDOUT_LOG), start.stdout_bytes
    )


def printed_error(
    folder: str | Path, start: LogStart | None = None, *, ranks: int = 1, rank: int = 0
) -> tuple[str, ...]:
    """The end of a traceback, or the refusal of an argument; empty if there is none.

    Of one rank the last one, as earlier ones may have been caught; if several ranks share a log,
    the first one, as others follow from it, that torch does not mark as another rank's.
    """
    log = _lines(Path(folder, STDERR_LOG), (start or LogStart()).stderr_bytes)
    lines = [
        _OF_A_RANK.sub("", line)
        for line in log
        if (mark := _OF_A_RANK.match(line)) is None or int(mark[1]) == rank
    ]
    errors = [
        number
        for number, (before, line) in enumerate(zip(("", *lines), lines, strict=False))
        if _USAGE_ERROR.match(line) or (before.startswith(_INDENT) and _EXCEPTION.match(line))
    ]
    if not errors:
        return ()
    first = last = errors[-1 if ranks == 1 else 0]
    while first and lines[first - 1].startswith(_INDENT):
        first -= 1
    if first and lines[first - 1].startswith(_TRACEBACK):
        first -= 1
    return tuple(lines[first : last + 1][-TAIL_LINES:])


def last_said(folder: str | Path, start: LogStart | None = None) -> tuple[str, ...]:
    """The last line of a log unless it is known to give no reason for a script's end.

    Such are a warning, a progress bar, and what is said of the connection to another rank.
    """
    lines = read_log_tail(folder, start)[-1:]
    return tuple(line for line in lines if line[:1].strip() and not _NO_REASON.search(line))


def file_tail(path: Path, start: int = 0, *, lines: int = TAIL_LINES) -> tuple[str, ...]:
    """The last lines of any file, from a byte on; nothing where it cannot be read."""
    return _lines(path, start)[-lines:]


def _lines(path: Path, start: int) -> tuple[str, ...]:
    try:
        with open(path, "rb", opener=open_file) as file:
            end = file.seek(0, os.SEEK_END)
            begin = max(start, end - _TAIL_BYTES)
            file.seek(begin)
            text = file.read(_TAIL_BYTES).decode(errors="replace")
    except (OSError, ResultsFolderError):
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
