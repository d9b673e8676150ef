"""Follow the steps that a trial's ranks append, and tell these where to end."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

from autoconf_launch.core import (
    END_FILE,
    DecodeError,
    RankTask,
    ResultsFolderError,
    StepRecord,
    decode,
)

from .own_files import open_file

_MOST_BYTES = 16 << 20
"""Read at once; what is left waits for the next call."""


class StepsTail:
    """Gives each whole line once; a line that is still being written waits for the next call."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> tuple[StepRecord, ...]:
        """Steps appended since the last call; other lines, and impossible times, are skipped."""
        if self._path is None:
            return ()
        try:
            with open(self._path, "rb", opener=open_file) as file:
                file.seek(self._offset)
                whole = file.read(_MOST_BYTES).rpartition(b"\n")[0]
        except (OSError, ResultsFolderError):
            return ()
        if not whole:
            return ()
        self._offset += len(whole) + 1
        steps = (_step(line) for line in whole.splitlines())
        return tuple(step for step in steps if step)

    def age_s(self) -> float:
        """Seconds since the last step was written; 0 where there is none."""
        try:
            return max(0.0, time.time() - self._path.stat().st_mtime) if self._path else 0.0
        except OSError:
            return 0.0


class SlowestRanks:
    """Seconds of each step that every rank has made: of its slowest rank."""

    def __init__(self, world_size: int) -> None:
        self._world_size = world_size
        self._seen: dict[int, list[float]] = {}

    def take(self, step: StepRecord) -> None:
        """One rank's step."""
        self._seen.setdefault(step.step, []).append(step.wall_s)

    @property
    def step_s(self) -> tuple[float, ...]:
        """Seconds of each step from the first one on, without a gap."""
        found: list[float] = []
        while len(ranks := self._seen.get(len(found) + 1, ())) >= self._world_size:
            found.append(max(ranks))
        return tuple(found)


def tell_end(task: RankTask, step: int) -> None:
    """Have the ranks end at this step, or at the one that they are in.

    Raises:
        OSError: the folder cannot be written.
    """
    path = Path(task.folder) / END_FILE
    written = path.with_name(f".{END_FILE}")
    with open(written, "w", encoding="utf-8", opener=open_file) as file:
        file.write(f"{task.attempt} {step}")
    written.replace(path)


def _step(line: bytes) -> StepRecord | None:
    try:
        step = decode(StepRecord, json.loads(line))
    except (DecodeError, ValueError, RecursionError):
        return None
    return step if 0.0 < step.wall_s < math.inf else None
