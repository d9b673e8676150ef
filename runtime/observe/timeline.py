"""Turns marks of a clock into step records, as soon as the device has passed them.

Not: which calls bound a step, nor what is excluded from its time (``pauses``).

A step's time goes from the end of the one before to its own end; an evaluation or a checkpoint
between them is excluded, unless every step has one.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from torch import Tensor

from autoconf_launch.core import STEPS_FILE, RankTask, StepRecord, real_time

from .clock import Arriving, Clock, LossReader
from .steps import Made


class PauseRule:
    """Told of pauses and steps in order; marks are those of any clock."""

    def __init__(self, mark: Callable[[], Any]) -> None:
        self._mark = mark
        self.left_out: list[int] = []
        """Numbers of steps with a pause before them that their time excludes."""
        self.pause: Any = None
        """Mark of the end of what was done since the last step; None: nothing was."""
        self._paused_before = False
        self._resumed = False

    def on_pause(self) -> None:
        """A part of an evaluation or of a checkpoint has just passed."""
        self.pause = self._mark()

    def drew(self) -> None:
        """A loader gave a batch: what an evaluation did with its results is over by now.

        To be told in a pause alone.
        """
        if not self._resumed:
            self.pause = self._mark()

    def on_resume(self) -> None:
        """The training goes on: what a loader gives from here on is of the step."""
        self._resumed = True

    def start(self, since: Any, number: int) -> Any:
        """Start of the step that ends now: ``since``, or the end of a pause."""
        left_out = self.pause is not None and not self._paused_before
        start = self.pause if left_out else since
        if left_out:
            self.left_out.append(number)
        self._paused_before = self.pause is not None
        self.forget_pause()
        return start

    def forget_pause(self) -> None:
        """Forget a pause since the last step."""
        self.pause = None
        self._resumed = False


_WRITE_EVERY_S = 0.2
"""Short steps are written down several at a time."""


_Pending: TypeAlias = tuple[Any, Any, "float | None", Made, "Tensor | Arriving | None"]
"""Marks of its start and end, seconds if they are known, what was made, loss as it was sent."""


class Timeline(PauseRule):
    """The steps of one rank; each is also appended to the trial's ``steps.jsonl``."""

    def __init__(self, task: RankTask, rank: int, clock: Clock, *, began_s: float) -> None:
        """The first step counts from ``began_s`` of ``time.perf_counter`` on."""
        super().__init__(clock.mark)
        self.records: list[StepRecord] = []
        """Records of the steps that the device has passed."""
        self.steps = 0
        """Number of steps that have ended."""
        self._rank = rank
        self._clock = clock
        self._losses = LossReader()
        self._waiting: list[_Pending] = []
        self._written_s = 0.0
        path = Path(task.folder) / STEPS_FILE
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._since = clock.mark()
        self._began_s: float | None = began_s

    def begin(self) -> None:
        """The next step's time counts from here."""
        self._since = self._clock.mark()
        self._began_s = None
        self.forget_pause()

    def end(self, made: Made, loss: Tensor | None) -> int:
        """A step ends here; its number. The device is at most one step behind from here on.

        So no rank can be further ahead of another than an announced end is. The wait is for the
        step before, when this one's kernels are queued: the device never runs dry for it.
        """
        sent = self._losses.send(loss)
        before, now = self._since, self._clock.mark()
        if self._clock.lags:
            self._clock.wait(before)
        start = self.start(before, self.steps + 1)
        self._since = now
        wall_s = None if self._began_s is None else self._first_wall_s(self._began_s)
        self._waiting.append((start, now, wall_s, made, sent))
        self.steps += 1
        if real_time.perf_counter() - self._written_s > _WRITE_EVERY_S:
            self.write_passed()
        return self.steps

    def restart(self) -> None:
        """Forget all steps: they were not those of the training."""
        self._clock.settle()
        self.records.clear()
        self.left_out.clear()
        self._waiting.clear()
        self.steps = 0
        self.begin()

    def settle(self) -> None:
        """Wait for the device, so that all steps are there."""
        self._clock.settle()
        self.write_passed()

    def write_passed(self) -> None:
        """Write down the steps that the device has passed."""
        self._written_s = real_time.perf_counter()
        count = len(self._waiting)
        if self._clock.lags:
            count = next((n for n, step in enumerate(self._waiting) if self._runs(step)), count)
        if not count:
            return
        passed = [self._record(n, step) for n, step in enumerate(self._waiting[:count], 1)]
        del self._waiting[:count]
        self.records += passed
        os.write(self._file, "".join(map(line_of, passed)).encode())

    def _first_wall_s(self, began_s: float) -> float:
        """Wall time of the first step, which began before this timeline."""
        self._began_s = None
        self._clock.settle()
        return real_time.perf_counter() - began_s

    def _runs(self, step: _Pending) -> bool:
        """True if the device is still busy with a step, or its loss is on the way."""
        return not (self._clock.has_passed(step[1]) and self._losses.has_arrived(step[-1]))

    def _record(self, number: int, step: _Pending) -> StepRecord:
        start, end, wall_s, made, sent = step
        return StepRecord(
            rank=self._rank,
            step=len(self.records) + number,
            wall_s=wall_s or self._clock.between_s(start, end),
            samples=made.samples,
            loss=self._losses.read(sent),
        )


def line_of(record: StepRecord) -> str:
    """The record as ``core.encode`` and ``json`` write it, in a tenth of their time."""
    loss = "null" if record.loss is None else repr(record.loss)
    if record.loss is not None and not math.isfinite(record.loss):
        loss = f'"{record.loss}"'
    return (
        f'{{"rank": {record.rank}, "step": {record.step}, "wall_s": {record.wall_s!r}, '
        f'"samples": {record.samples}, "loss": {loss}}}\n'
    )


def first_not_finite(records: list[StepRecord]) -> StepRecord | None:
    """The first step whose loss is NaN or infinite."""
    for record in records:
        if record.loss is not None and not math.isfinite(record.loss):
            return record
    return None
