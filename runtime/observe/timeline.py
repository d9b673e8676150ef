"""Step records from points in time on the device that trains.

On CUDA the points are events in the stream, so that nothing waits for the device while steps run.
Losses reach the host in the same way: copied when they are known, read once they have arrived.
A step lasts from the end of the previous one to its own end; an evaluation or a checkpoint
between them is excluded, unless every step has one. Not: which calls bound a step (``steps``).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor

from autoconf_launch.core import STEPS_FILE, RankTask, StepRecord, real_time

from .steps import Made

_CELLS = 256
"""Numbers that share one block of pinned memory, which takes long to allocate."""
_WRITE_EVERY_S = 0.2
"""Short steps are written down several at a time."""
_Pending: TypeAlias = tuple[Any, Any, "float | None", Made, "Tensor | Arriving | None"]
"""Marks of its start and end, seconds if they are known, what was made, loss as it was sent."""


class Clock(Protocol):
    """Takes marks and tells the seconds between them."""

    lags: bool
    """True if the device can be behind its marks."""

    def mark(self) -> Any:
        """Now, in the order of the work given so far."""

    def has_passed(self, mark: Any) -> bool:
        """True if the device has come to a mark."""

    def between_s(self, start: Any, end: Any) -> float:
        """Seconds between two marks that the device has passed."""

    def wait(self, mark: Any) -> None:
        """Return when the device has come to a mark."""

    def settle(self) -> None:
        """Wait until every mark has passed."""


class HostClock:
    """A clock for devices that compute before they return."""

    lags = False
    mark = staticmethod(real_time.perf_counter)

    def has_passed(self, mark: Any) -> bool:
        return True

    def between_s(self, start: Any, end: Any) -> float:
        return float(end - start)

    def wait(self, mark: Any) -> None:
        pass

    def settle(self) -> None:
        pass


class CudaClock:
    """Events on the current stream of one GPU."""

    lags = True

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> torch.cuda.Event:
        event: torch.cuda.Event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def has_passed(self, mark: Any) -> bool:
        return bool(mark.query())

    def between_s(self, start: Any, end: Any) -> float:
        return float(start.elapsed_time(end)) / 1e3

    def wait(self, mark: Any) -> None:
        mark.synchronize()

    def settle(self) -> None:
        torch.cuda.synchronize(self._device)


def clock_of(device: torch.device) -> Clock:
    """The clock that fits a device."""
    return CudaClock(device) if device.type == "cuda" else HostClock()


class Arriving(NamedTuple):
    """A number on its way from a GPU to the host."""

    cell: Tensor
    copied: torch.cuda.Event


class LossReader:
    """Reads losses without waiting for the device.

    ``float(loss)`` waits for everything that is queued on a GPU, the next step's kernels too, so
    that no work of the host could overlap them.
    """

    def __init__(self) -> None:
        self._free: list[Tensor] = []

    def send(self, loss: Tensor | None) -> Tensor | Arriving | None:
        """Copy a loss of a GPU to pinned memory, in the order of the work queued so far."""
        if loss is None or not loss.is_cuda:
            return loss
        if not self._free:
            self._free += torch.empty(_CELLS, dtype=torch.float64, pin_memory=True).unbind()
        cell = self._free.pop()
        cell.copy_(loss.reshape(()), non_blocking=True)
        copied: torch.cuda.Event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        copied.record(torch.cuda.current_stream(loss.device))
        return Arriving(cell, copied)

    def has_arrived(self, sent: Tensor | Arriving | None) -> bool:
        """True if :meth:`read` returns at once."""
        return not isinstance(sent, Arriving) or bool(sent.copied.query())  # type: ignore[no-untyped-call]

    def read(self, sent: Tensor | Arriving | None) -> float | None:
        """The number that was sent; to be called once."""
        if not isinstance(sent, Arriving):
            return None if sent is None else float(sent)
        sent.copied.synchronize()
        value = float(sent.cell)
        self._free.append(sent.cell)
        return value


def loss_of(tensors: Any) -> Tensor | None:
    """The number that a backward pass starts from, without waiting for it; None: no number."""
    first = tensors[0] if isinstance(tensors, (tuple, list)) and tensors else tensors
    if type(first) is not Tensor:
        first = getattr(first, "_local_tensor", None)
    if first is None or first.numel() != 1 or not first.is_floating_point():
        return None
    loss: Tensor = first.detach().clone()  # scripts change theirs: all_reduce, *= steps
    return loss


def sum_of(earlier: Tensor | None, loss: Tensor | None) -> Tensor | None:
    """Sum of the losses of a step's backward passes so far."""
    if earlier is None or loss is None or earlier.device != loss.device:
        return loss
    return earlier.float() + loss.float()


class PauseRule:
    """Receives pauses and steps in order, with marks of any clock."""

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
        """A loader gave a batch: an evaluation's work on its results is over by now.

        Call it only in a pause.
        """
        if not self._resumed:
            self.pause = self._mark()

    def on_resume(self) -> None:
        """The training goes on: later batches of a loader belong to the step."""
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
        self.pause = None
        self._resumed = False


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
        self._since = self._clock.mark()
        self._began_s = None
        self.forget_pause()

    def end(self, made: Made, loss: Tensor | None) -> int:
        """A step ends here; its number. The device is at most one step behind from here on.

        So no rank can be other ahead of another than an announced end is. The wait is for the
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
        """Forget all steps: they did not belong to the training."""
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
