"""Watch a script on our engine between its steps, and after a soak's last step.

The model is watched for calls outside of steps, and what the script saves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data.dataloader import _BaseDataLoaderIter

from autoconf_launch.core import RankResult

from ..model import SharedByCopies, stay_out_of_scripts
from ..observe import PauseRule
from ..rank import Ranks, Report
from ..redirect import Surroundings
from ..soak import Beside, Longest, TrainingData


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
            self.beside.note()

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
        """After the last step: whether the script goes on to what it does after an epoch."""
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
        """All ranks alike: as rank 0 wants, where every rank's data can be ended."""
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
    """A copy of the model is heard as the model is: its average is what many evaluate."""

    def __init__(self, called: Callable[[nn.Module, object, object], None]) -> None:
        self._hear_call = called

    def hear(self, module: nn.Module, arguments: object, result: object) -> None:
        """A forward hook."""
        self._hear_call(module, arguments, result)
