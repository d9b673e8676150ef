"""Times the optimizer steps of a trial, reports, and ends the rank. Not: what a step does."""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from autoconf_launch.core import AppliedStrategy, StepRecord, encode
from autoconf_launch.core.rank import STEPS_FILE

from .batches import Batch
from .failures import NonFiniteLossError
from .ranks import Ranks
from .report import Report, leave
from .trainer import Trainer


class Measured:
    """A trainer whose steps are timed from the end of one to the end of the next.

    So the script's own work between steps, its data loader above all, counts; the first step
    counts from the end of ``initialize``. After the last step asked for the process ends.
    """

    def __init__(self, trainer: Trainer, report: Report, ranks: Ranks) -> None:
        self._trainer = trainer
        self._report = report
        self._ranks = ranks
        path = Path(report.task.folder) / STEPS_FILE
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        self._since = self._now()

    @property
    def module(self) -> nn.Module:
        """The trainer's."""
        return self._trainer.module

    @property
    def applied(self) -> AppliedStrategy | None:
        """The trainer's."""
        return self._trainer.applied

    def step(self, batch: Batch) -> Tensor:
        """The trainer's step, timed; does not return from the last one."""
        with self._report.guard():
            loss = self._trainer.step(batch)
            self._record(float(loss), self._trainer.samples_per_step)
            self._report.applied = self._trainer.applied
            if len(self._report.steps) >= self._report.task.end_step:
                self._finish()
        return loss

    def _record(self, loss: float, samples: int) -> None:
        now = self._now()
        record = StepRecord(
            rank=self._ranks.rank,
            step=len(self._report.steps) + 1,
            wall_s=now - self._since,
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

    def _finish(self) -> None:
        dist.barrier()
        self._report.write()
        leave(0)

    def _now(self) -> float:
        if self._ranks.device.type == "cuda":
            torch.cuda.synchronize(self._ranks.device)
        return time.perf_counter()
