"""Times the optimizer steps of a trial, reports, and ends the rank."""

from __future__ import annotations

import json
import math
import os
import time
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from autoconf_launch.core import (
    STEPS_FILE,
    AppliedStrategy,
    StepRecord,
    encode,
)

from ..model import Batch
from ..rank import (
    FEWEST_MADE,
    NonFiniteLossError,
    PhaseClock,
    Ranks,
    Report,
    StepCutter,
    Turns,
    announced_end,
    leave,
)
from .between_steps import BetweenSteps
from .checkpoints import Trained
from .trainer import Trainer


class Measured:
    """A trainer whose steps are timed from the end of one to the end of the next.

    So the script's own work between steps, its data loader above all, counts; the first step
    counts from the end of ``initialize``. After the last step asked for the process ends; where
    the launcher may move that step, rank 0 looks for its word and all ranks end together.
    ``clock`` is the trainer's, where its steps are taken apart.
    """

    def __init__(
        self, trainer: Trainer, report: Report, ranks: Ranks, clock: PhaseClock | None = None
    ) -> None:
        self._trainer = trainer
        self._report = report
        self._ranks = ranks
        self._clock = report.clock = clock
        path = Path(report.task.folder) / STEPS_FILE
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._between = BetweenSteps(report, ranks, trainer.module, self._now)
        self._turns = Turns(report.task, ranks.rank) if report.task.next_folder else None
        report.turns = self._turns
        self._since = self._start_s = self._now()
        self._cutter = self._step_cutter()

    @property
    def module(self) -> nn.Module:
        """The trainer's."""
        return self._trainer.module

    @property
    def applied(self) -> AppliedStrategy | None:
        """The trainer's."""
        return self._trainer.applied

    @property
    def trained(self) -> Trained:
        """The trainer's."""
        return self._trainer.trained

    def step(self, batch: Batch) -> Tensor:
        """The trainer's step, timed; it returns from the last one only where a soak goes on."""
        with self._report.guard(), self._between.step():
            if self._between.is_over:
                return self._left_over(batch)
            number = len(self._report.steps) + 1
            if self._turns is not None and number == 1:
                self._turns.begin()
                self._since = self._now()
            loss, is_last = self._step(batch, number)
            self._report.applied = self._trainer.applied
            if self._cutter is not None and self._cutter.is_cut:
                self._finish_cut(float(loss))
            self._cutter = None
            self._record(float(loss), self._trainer.counted_samples)
            if is_last and not self._between.goes_on():
                self._finish()
            if self._turns is not None and self._turns.ends_with(number):
                self._turns.pass_turn()
                self._turns.wait()
                self._since = self._now()
        return loss

    def evaluate(self, batch: Batch) -> Tensor:
        """The trainer's, of which the script's modules hear as of any call of the model."""
        with self._report.guard(), self._between.evaluation():
            return self._trainer.evaluate(batch)

    def _step(self, batch: Batch, number: int) -> tuple[Tensor, bool]:
        """The step and whether it is the last one, which all ranks find alike."""
        task = self._report.task
        if task.most_steps is None:
            is_last = number >= task.end_step
            batch = self._between.batch(batch, is_last=is_last)
            return self._apart(batch, number), is_last
        is_asked = partial(self._ends, number) if self._ranks.rank == 0 else bool
        return self._trainer.step_and_agree(batch, is_asked, self._cutter)

    def _left_over(self, batch: Batch) -> Tensor:
        """A step after the last one: of batches drawn before, or the next epoch's first."""
        if self._between.is_next_epoch():
            self._finish()
        return self._trainer.step(batch)

    def _ends(self, number: int) -> bool:
        task = self._report.task
        last = min(announced_end(task), task.most_steps or task.end_step)
        return number >= last or self._is_late(number)

    def _is_late(self, number: int) -> bool:
        """Whether one more step would overrun the time given."""
        limit_s = self._report.task.cut_s
        if limit_s is None:
            return False
        spent_s = self._now() - self._start_s
        return spent_s + spent_s / number > limit_s

    def _step_cutter(self) -> StepCutter | None:
        """A cutter of the first step, where the time is limited and there is something to cut."""
        applies = self._report.task.most_steps is not None and self._trainer.can_be_cut
        limit_s, micro_batches = self._report.task.cut_s, self._trainer.micro_batches
        if limit_s is None or not applies or micro_batches <= FEWEST_MADE:
            return None
        return StepCutter(limit_s, micro_batches, self._ranks)

    def _apart(self, batch: Batch, number: int) -> Tensor:
        if self._clock is None:
            return self._trainer.step(batch)
        self._clock.begin()
        loss = self._trainer.step(batch)
        if number >= self._report.task.start_step:
            self._clock.end_step()
        return loss

    def _record(self, loss: float, samples: int) -> None:
        now, number = self._now(), len(self._report.steps) + 1
        record = StepRecord(
            rank=self._ranks.rank,
            step=number,
            wall_s=now - self._between.start_s(self._since, number),
            samples=samples,
            loss=loss,
        )
        self._since = now
        os.write(self._file, f"{json.dumps(encode(record))}\n".encode())
        if not math.isfinite(loss):
            raise NonFiniteLossError(
                f"The loss of optimizer step {record.step} is {loss}; lower the learning rate or "
                "look at the data."
            )
        self._report.steps.append(record)

    def _finish_cut(self, loss: float) -> None:
        """Report what the micro-batches took; there is no time for a step."""
        assert self._cutter is not None
        if not math.isfinite(loss):
            raise NonFiniteLossError(f"The loss of the first micro-batches is {loss}.")
        self._report.cut = self._cutter.result(self._trainer.counted_samples, loss)
        self._finish()

    def _finish(self) -> None:
        dist.barrier()
        self._report.write(end_step=len(self._report.steps))
        if self._turns is not None:
            self._turns.end()
        leave(0)

    def _now(self) -> float:
        if self._ranks.device.type == "cuda":
            torch.cuda.synchronize(self._ranks.device)
        return time.perf_counter()
