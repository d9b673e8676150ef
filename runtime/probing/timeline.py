"""Turns marks of a clock into step records, as soon as the device has passed them.

Not: which calls bound a step. A step's time goes from the end of the one before to its own end;
an evaluation between them is left out, unless every step has one.
"""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from autoconf_launch.core import RankTask, StepRecord
from autoconf_launch.core.rank import STEPS_FILE

from .clock import Clock
from .steps import Made

_WRITE_EVERY_S = 0.2
"""Short steps are written down several at a time."""


@dataclass(slots=True)
class _Pending:
    start: Any
    end: Any
    wall_s: float | None
    made: Made
    loss: Tensor | None


class Timeline:
    """The steps of one rank; each is also appended to the trial's ``steps.jsonl``."""

    def __init__(self, task: RankTask, rank: int, clock: Clock, *, began_s: float) -> None:
        """The first step counts from ``began_s`` of ``time.perf_counter`` on."""
        self.records: list[StepRecord] = []
        self._rank = rank
        self._clock = clock
        self._waiting: list[_Pending] = []
        self._written_s = 0.0
        path = Path(task.folder) / STEPS_FILE
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._since = clock.mark()
        self._began_s: float | None = began_s
        self._evaluated: Any = None
        self._evaluated_before = False

    @property
    def steps(self) -> int:
        """How many have ended."""
        return len(self.records) + len(self._waiting)

    def begin(self) -> None:
        """The next step's time counts from here."""
        self._since = self._clock.mark()
        self._evaluated = None

    def evaluated(self) -> None:
        """An evaluation has just passed."""
        self._evaluated = self._clock.mark()

    def end(self, made: Made, loss: Tensor | None) -> int:
        """A step ends here; its number. The device is at most one step behind from here on.

        So no rank can be further ahead of another than an announced end is.
        """
        self._clock.wait(self._since)
        now = self._clock.mark()
        left_out = self._evaluated is not None and not self._evaluated_before
        start = self._evaluated if left_out else self._since
        self._evaluated_before = self._evaluated is not None
        self._evaluated = None
        self._since = now
        wall_s = self._first_wall_s()
        self._waiting.append(_Pending(start, now, wall_s, made, loss))
        if time.perf_counter() - self._written_s > _WRITE_EVERY_S:
            self._write_passed()
        return self.steps

    def restart(self) -> None:
        """Forget all steps: they were not those of the training."""
        self._clock.settle()
        self.records.clear()
        self._waiting.clear()
        self.begin()

    def settle(self) -> None:
        """Wait for the device, so that all steps are there."""
        self._clock.settle()
        self._write_passed()

    def _first_wall_s(self) -> float | None:
        """Of the first step, which began before this timeline; None later."""
        began_s, self._began_s = self._began_s, None
        if began_s is None:
            return None
        self._clock.settle()
        return time.perf_counter() - began_s

    def _write_passed(self) -> None:
        self._written_s = time.perf_counter()
        while self._waiting and self._clock.passed(self._waiting[0].end):
            self._write(self._waiting.pop(0))

    def _write(self, step: _Pending) -> None:
        record = StepRecord(
            rank=self._rank,
            step=len(self.records) + 1,
            wall_s=step.wall_s or self._clock.between_s(step.start, step.end),
            samples=step.made.samples,
            loss=float(step.loss) if step.loss is not None else None,
        )
        self.records.append(record)
        os.write(self._file, line_of(record).encode())


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
