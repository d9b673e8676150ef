"""Follow the steps that a trial's ranks append. Not: what they mean for the trial."""

from __future__ import annotations

import json
from pathlib import Path

from autoconf_launch.core import DecodeError, StepRecord, decode


class StepsTail:
    """Gives each whole line once; a line that is still being written waits for the next call."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> tuple[StepRecord, ...]:
        """Steps appended since the last call; lines that are no step are passed over."""
        if self._path is None:
            return ()
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                whole = file.read().rpartition(b"\n")[0]
        except OSError:
            return ()
        if not whole:
            return ()
        self._offset += len(whole) + 1
        steps = (_step(line) for line in whole.splitlines())
        return tuple(step for step in steps if step)


def _step(line: bytes) -> StepRecord | None:
    try:
        return decode(StepRecord, json.loads(line))
    except (DecodeError, ValueError):
        return None
