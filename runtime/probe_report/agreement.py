"""The end of a probed launch, agreed on by files alone: the script's process group is its own.

Rank 0 announces a coming step; each rank ends after exactly that one, when the others of its host
have come as far, so that nobody's last message is cut off.

Rank 0 decides: evaluations and checkpoints are often its own alone. A rank whose data is not to
be ended says so two steps before, which all of them have passed when the last one ends.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autoconf_launch.core import Mode, RankTask, Sign, real_time, sign_path

from ..rank import announced_end, write_sign

_PEERS_WAIT_S = 10.0
_PEERS_PAUSE_S = 120.0
"""The same where they may be in an evaluation; the launcher waits no longer either."""
_POLL_S = 0.005
_UNANNOUNCED_STEPS = 3
"""Steps beyond the last possible end after which a rank that hears nothing ends alone."""
SECOND = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSchedule:
    """Which step is looked into, and how many are made at least.

    ``lead`` steps before the end it is announced: as far as one rank can be ahead of another.
    """

    heavy: int | None
    least: int
    lead: int

    @staticmethod
    def of(task: RankTask, lead: int) -> StepSchedule:
        """Look into the second step where that is not to be timed."""
        if task.mode is Mode.PROFILE:
            return StepSchedule(heavy=SECOND, least=SECOND, lead=lead)
        if task.start_step > SECOND:
            return StepSchedule(heavy=SECOND, least=SECOND, lead=lead)
        return StepSchedule(heavy=None, least=1, lead=lead)


class Agreement:
    """A rank's view of the common end."""

    def __init__(
        self, task: RankTask, *, rank: int, world_size: int, schedule: StepSchedule
    ) -> None:
        self._task = task
        self._rank = rank
        self._world_size = world_size
        self._schedule = schedule
        self._stop: int | None = None

    @property
    def stop(self) -> int | None:
        """The step that was announced."""
        return self._stop

    def is_last(self, step: int) -> bool:
        """True if all ranks end after this step; to be asked after each one."""
        if self._stop is None:
            self._stop = self._announce(step) if self._rank == 0 else self._read_announced_end()
        if self._stop is not None:
            return step >= self._stop
        most = max(self._task.most_steps or 0, self._task.end_step, self._schedule.least)
        return step >= most + _UNANNOUNCED_STEPS

    def on_end(self) -> None:
        """This rank has said its last word."""
        if self._world_size > 1:
            write_sign(self._task, f"ended_rank{self._rank}", "")

    def wait_for_peers(self, *, paused: bool = False) -> None:
        """Return when the ranks of this host have all ended, or after 10 s.

        ``paused``: they may be in an evaluation, and are waited for as long as the launcher does.
        """
        if self._world_size == 1:
            return
        give_up_s = real_time.monotonic() + (_PEERS_PAUSE_S if paused else _PEERS_WAIT_S)
        while self._is_missing_rank() and real_time.monotonic() < give_up_s:
            real_time.sleep(_POLL_S)

    def restart(self) -> None:
        """Forget what was announced: steps count anew."""
        self._stop = None
        if self._rank == 0 and self._world_size > 1:
            sign_path(self._task, Sign.STOP.value).unlink(missing_ok=True)

    def _announce(self, step: int) -> int | None:
        """Once the end is near enough, or where it cannot move."""
        lead = self._schedule.lead if self._world_size > 1 else 0
        wanted = max(self._wanted_end(), self._schedule.least)
        if self._task.most_steps is not None and step + lead < wanted:
            return None
        stop = max(wanted, step + lead)
        if self._world_size > 1:
            write_sign(self._task, Sign.STOP.value, str(stop))
        return stop

    def _wanted_end(self) -> int:
        if self._task.mode is Mode.PROFILE:
            return self._schedule.least
        if self._task.most_steps is None:
            return self._task.end_step
        return min(announced_end(self._task), self._task.most_steps)

    def _read_announced_end(self) -> int | None:
        with suppress(OSError, ValueError):
            return int(sign_path(self._task, Sign.STOP.value).read_text())
        return None

    def _is_missing_rank(self) -> bool:
        local = os.environ.get("LOCAL_WORLD_SIZE", "")
        expected = int(local) if local.isdecimal() else self._world_size
        folder = sign_path(self._task, "").parent
        ended = list(folder.glob(f"ended_rank*.{self._task.attempt}"))
        return len(ended) < min(expected, self._world_size)


_BEFORE = 2
_WAIT_S = 30.0
_GOING_ON_POLL_S = 0.005


class AfterEpoch:
    """A rank's part in the agreement to go on after the last step."""

    def __init__(self, task: RankTask, *, rank: int, world_size: int) -> None:
        self._task = task
        self._rank = rank
        self._world_size = world_size

    def step(self, number: int, *, can_end: bool) -> None:
        """A step has ended; ``can_end`` says of this rank's data whether it can be ended."""
        announces = self._world_size > 1 and number == self._task.end_step - _BEFORE
        if announces and not can_end:
            write_sign(self._task, f"endless_rank{self._rank}", "")

    def agree(self, wanted: bool) -> bool:
        """True if all go on, after the last step; rank 0 says what is wanted.

        A rank that hears nothing for 30 s takes its own word.
        """
        if not self._task.ends_epoch or self._task.end_step <= _BEFORE:
            return False
        if self._world_size == 1:
            return wanted
        if self._rank == 0:
            wanted = wanted and not self._endless()
            write_sign(self._task, "goes_on", str(int(wanted)))
            return wanted
        return self._hear(wanted)

    def _hear(self, wanted: bool) -> bool:
        give_up_s = real_time.monotonic() + _WAIT_S
        while real_time.monotonic() < give_up_s:
            with suppress(OSError):
                return sign_path(self._task, "goes_on").read_text() == "1"
            real_time.sleep(_GOING_ON_POLL_S)
        return wanted

    def _endless(self) -> list[Path]:
        folder = sign_path(self._task, "").parent
        return list(folder.glob(f"endless_rank*.{self._task.attempt}"))
