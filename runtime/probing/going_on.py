"""Whether the ranks of a soak go on after its steps, agreed on by files. Not: what they do then.

Rank 0 decides: evaluations and checkpoints are often its own alone. A rank whose data is not to
be ended says so two steps before, which all of them have passed when the last one ends.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from autoconf_launch.core import RankTask
from autoconf_launch.core.probe_signs import sign_path

from ..report import write_whole

_BEFORE = 2
_WAIT_S = 30.0
_POLL_S = 0.005


class GoingOn:
    """One rank's part in it."""

    def __init__(self, task: RankTask, *, rank: int, world_size: int) -> None:
        self._task = task
        self._rank = rank
        self._world_size = world_size

    def step(self, number: int, *, can_end: bool) -> None:
        """A step has ended; ``can_end`` says of this rank's data whether it can be ended."""
        announces = self._world_size > 1 and number == self._task.end_step - _BEFORE
        if announces and not can_end:
            self._write(f"endless_rank{self._rank}", "")

    def agreed(self, wanted: bool) -> bool:
        """Whether all go on, after the last step; rank 0 says what is wanted.

        A rank that hears nothing for 30 s takes its own word.
        """
        if not self._task.ends_epoch or self._task.end_step <= _BEFORE:
            return False
        if self._world_size == 1:
            return wanted
        if self._rank == 0:
            wanted = wanted and not self._endless()
            self._write("goes_on", str(int(wanted)))
            return wanted
        return self._heard(wanted)

    def _heard(self, wanted: bool) -> bool:
        give_up_s = time.monotonic() + _WAIT_S
        while time.monotonic() < give_up_s:
            with suppress(OSError):
                return sign_path(self._task, "goes_on").read_text() == "1"
            time.sleep(_POLL_S)
        return wanted

    def _endless(self) -> list[Path]:
        folder = sign_path(self._task, "").parent
        return list(folder.glob(f"endless_rank*.{self._task.attempt}"))

    def _write(self, name: str, text: str) -> None:
        path = sign_path(self._task, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
