"""Times the optimizer steps of a trial, reports, and ends the rank.

Between steps, and after a soak's last one, it watches for calls of the model and what is saved.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.dataloader import _BaseDataLoaderIter

from autoconf_launch.core import AppliedStrategy, RankResult, real_time

from ..model import Batch, SharedByCopies, stay_out_of_scripts
from ..observe import Arriving, LossReader, Made, PauseRule, Timeline, clock_of, first_not_finite
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
from ..redirect import Surroundings
from ..soak import Beside, Longest, TrainingData
from .checkpoints import Trained
from .trainer import Trainer


class Measured:
    """A trainer whose steps are timed from the end of one to the end of the next.

    So the script's own work between steps, its data loader above all, counts; the first step
    counts from the end of ``initialize``. After the last step asked for the process ends; if
    the launcher may move that step, rank 0 looks for its word and all ranks end together.
    ``clock`` is the trainer's, if its steps are taken apart.

    No step waits for a GPU: as in a training, the next one's kernels are queued meanwhile. So
    losses are seen, and several ranks agree on their end, a step late there.
    """

    def __init__(
        self, trainer: Trainer, report: Report, ranks: Ranks, clock: PhaseClock | None = None
    ) -> None:
        self._trainer = trainer
        self._report = report
        self._ranks = ranks
        self._clock = clock
        if clock is not None:
            report.phases = clock.means
        self._device_clock = device_clock = clock_of(ranks.device)
        device_clock.settle()
        self._start_s = real_time.perf_counter()
        self._timeline = Timeline(report.task, ranks.rank, device_clock, began_s=self._start_s)
        self._lag = int(device_clock.lags and ranks.world_size > 1)
        self._asked: Tensor | Arriving | None = None
        """Request of any rank, from the step before, to end after this one; only on a GPU."""
        self._flags = LossReader()
        report.steps, report.settle = self._timeline.records, self._timeline.settle
        self._between = BetweenSteps(report, ranks, trainer.module, self._timeline)
        self._turns = report.turns = Turns(
            report.task, ranks.rank, settle=self._settle, restart=self._timeline.begin
        )
        self._cutter = self._step_cutter()

    @property
    def module(self) -> nn.Module:
        return self._trainer.module

    @property
    def applied(self) -> AppliedStrategy | None:
        return self._trainer.applied

    @property
    def trained(self) -> Trained:
        return self._trainer.trained

    def step(self, batch: Batch) -> Tensor:
        """The trainer's step, timed; it returns from the last one only if a soak goes on."""
        with self._report.guard(), self._between.step():
            if self._between.is_over:
                return self._left_over(batch)
            number = self._timeline.steps + 1
            if number == 1:
                self._turns.after_step(0)
            loss, is_last = self._step(batch, number)
            self._report.applied = self._trainer.applied
            if self._cutter is not None and self._cutter.is_cut:
                self._finish_cut(float(loss))
            self._cutter = None
            self._record(loss)
            if is_last and not self._between.goes_on():
                self._finish()
            self._turns.after_step(number)
        return loss

    def evaluate(self, batch: Batch) -> Tensor:
        """The trainer's evaluation; the script's modules see it as any call of the model."""
        with self._report.guard(), self._between.evaluation():
            return self._trainer.evaluate(batch)

    def _step(self, batch: Batch, number: int) -> tuple[Tensor, bool]:
        """The step and whether it is the last one, which all ranks find alike."""
        task = self._report.task
        if task.most_steps is None:
            is_last = number >= task.end_step
            batch = self._between.batch(batch, is_last=is_last)
            return self._apart(batch, number), is_last
        if self._ranks.world_size == 1:
            loss, _ = self._trainer.step_and_agree(batch, bool, self._cutter)
            return loss, self._ends(number)
        is_asked = partial(self._ends, number + self._lag) if self._ranks.rank == 0 else bool
        loss, asked = self._trainer.step_and_agree(batch, is_asked, self._cutter)
        before, self._asked = self._asked, self._flags.send(asked) if self._lag else asked
        said = self._flags.read(before if self._lag else asked)
        return loss, bool(said) or number >= task.most_steps

    def _left_over(self, batch: Batch) -> Tensor:
        """A step after the last one: of batches drawn before, or the next epoch's first."""
        if self._between.is_next_epoch():
            self._finish()
        return self._trainer.step(batch)

    def _ends(self, number: int) -> bool:
        task = self._report.task
        last = min(announced_end(task), task.most_steps or task.end_step)
        return number >= last or self._is_late(number - self._lag)

    def _is_late(self, made: int) -> bool:
        """True if a step after the earliest possible end would overrun the time given.

        Only then steps wait for the device: they are long, and few.
        """
        limit_s = self._report.task.cut_s
        if limit_s is None:
            return False
        self._device_clock.settle()
        spent_s = real_time.perf_counter() - self._start_s
        return spent_s * (1.0 + (1 + self._lag) / made) > limit_s

    def _step_cutter(self) -> StepCutter | None:
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

    def _record(self, loss: Tensor) -> None:
        paused = self._timeline.pause is not None
        made = Made(micro_batch=self._trainer.counted_samples, accumulation=1)
        number = self._timeline.end(made, loss)
        self._between.on_step(number, paused=paused)
        self._timeline.write_passed()
        self._require_finite()

    def _require_finite(self) -> None:
        """Raise for a step whose loss is not a number; it does not count."""
        bad = first_not_finite(self._timeline.records[-2:])
        if bad is not None:
            del self._timeline.records[bad.step - 1 :]
            raise NonFiniteLossError(
                f"The loss of optimizer step {bad.step} is {bad.loss}; lower the learning rate or "
                "look at the data."
            )

    def _settle(self) -> None:
        self._timeline.settle()
        self._require_finite()

    def _finish_cut(self, loss: float) -> None:
        """Report the micro-batches' times; there is no time for a step."""
        assert self._cutter is not None
        if not math.isfinite(loss):
            raise NonFiniteLossError(f"The loss of the first micro-batches is {loss}.")
        self._report.cut = self._cutter.result(self._trainer.counted_samples, loss)
        self._finish()

    def _finish(self) -> None:
        self._settle()
        dist.barrier()
        self._report.write(end_step=self._timeline.steps)
        self._turns.end()
        leave(0)


class BetweenSteps:
    """Hears of it from the first step on; one for each engine that is measured."""

    def __init__(self, report: Report, ranks: Ranks, module: nn.Module, pauses: PauseRule) -> None:
        self._report = report
        self._ranks = ranks
        self._pauses = pauses
        self._in_step = False
        self._longest = Longest() if report.task.soak else None
        self._surroundings = Surroundings(own=report.task.folder)
        self._surroundings.guard()
        self.beside = Beside(report.task, ranks.rank, self._pauses, self._so_far)
        if report.task.soak:
            self.beside.data = TrainingData(report.task.end_step, repeats=False)
        report.beside, report.put_away = self.beside, self._surroundings.new
        model = module.module if isinstance(module, DistributedDataParallel) else module
        stay_out_of_scripts()
        model.register_forward_hook(_Hook(self._hear_call).hear, always_call=True)
        self._follow_loaders()

    @contextmanager
    def step(self) -> Iterator[None]:
        """A step of the engine; calls of the model inside are of the training."""
        self._surroundings.training_begins()
        self.beside.on_resume()
        if self.beside.data is not None:
            self.beside.data.trains()
        self._in_step = True
        try:
            yield
        finally:
            self._in_step = False

    @contextmanager
    def evaluation(self) -> Iterator[None]:
        """An evaluation by the engine; stages make it without a call of the whole model."""
        yield
        if self._report.steps:
            self._on_evaluation()

    def on_step(self, number: int, *, paused: bool) -> None:
        """A step has ended, before which there was a pause or not."""
        self.beside.on_step(paused=paused)
        if number == 1:
            self._surroundings.tell(self.beside)
        if number >= self._report.task.start_step:
            self.beside.write()

    def batch(self, batch: Any, *, is_last: bool) -> Any:
        """The batch to train on: in the last step of a soak the longest one so far."""
        if self._longest is None:
            return batch
        if not is_last:
            self._longest.see(batch)
            return batch
        self.beside.took_longest = True
        return self._longest.instead_of(batch)

    def goes_on(self) -> bool:
        """After the last step: True if the script goes on to its actions after an epoch."""
        return self._report.task.ends_epoch and self.beside.goes_on(self._all_agree)

    @property
    def is_over(self) -> bool:
        """True if the steps were made and the script goes on."""
        return self.beside.went_on

    def is_next_epoch(self) -> bool:
        """True if a step after the last one is of a new epoch, not of batches drawn before."""
        data = self.beside.data
        return data is None or data.is_new_epoch or not data.is_left_over()

    def _all_agree(self, wanted: bool) -> bool:
        """All ranks alike: as rank 0 wants, if every rank's data can be ended."""
        data = self.beside.data
        can_end = data is not None and data.can_end
        mine = (float(wanted and self._ranks.rank == 0), float(can_end))
        votes = torch.tensor(mine, device=self._ranks.device)
        if self._ranks.world_size > 1:
            dist.all_reduce(votes)
        return bool(votes[0] > 0 and votes[1] == self._ranks.world_size)

    def _so_far(self) -> RankResult:
        self._report.settle()
        if not self.beside.went_on:
            return self._report.result()
        result = self._report.result(end_step=len(self._report.steps))
        return replace(result, left_behind=self._surroundings.leftovers())

    def _hear_call(self, module: nn.Module, arguments: object, result: object) -> None:
        """The model was called; outside of a step that is an evaluation."""
        if self._in_step or not self._report.steps or torch.compiler.is_compiling():
            return
        if module.training and torch.is_grad_enabled():
            return
        self._on_evaluation()
        if result is None and isinstance(sys.exc_info()[1], Exception):
            self.beside.fails()

    def _on_evaluation(self) -> None:
        if self.beside.data is not None:
            self.beside.data.evaluates()
        self.beside.on_evaluation()

    def _follow_loaders(self) -> None:
        loader: Any = _BaseDataLoaderIter
        original = loader.__next__

        @wraps(original)
        def __next__(iterator: Any) -> Any:
            data = self.beside.data
            batch = original(iterator) if data is None else data.draw(iterator, original)
            if self._pauses.pause is not None:
                self._pauses.drew()
            return batch

        loader.__next__ = __next__


class _Hook(SharedByCopies):
    """Reports calls of the model and of its copies: many scripts evaluate its average."""

    def __init__(self, called: Callable[[nn.Module, object, object], None]) -> None:
        self._hear_call = called

    def hear(self, module: nn.Module, arguments: object, result: object) -> None:
        self._hear_call(module, arguments, result)
