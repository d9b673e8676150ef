"""Peak memory of an external rank. Not: a memory limit by itself (``rank/memory``).

On a GPU it is what its meter counts. On CPU it is the storages that lived at once in the one
step that is looked into, with what evaluations and checkpoints of a soak added to the process.
Before that, and if another step needs more, it is the process's growth since its first
forward pass.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from autoconf_launch.core import MemoryUse, real_time

from ..model import held_bytes
from ..rank import CpuMeter, CudaMeter

_NOTICEABLE_BYTES = 32 << 20
_NOTICEABLE_SHARE = 1 / 8
"""Growth of a step over the traced step beyond the growth of equal steps, as a share."""


class MemoryWatch:
    """Begins with the first forward pass that trains, at ``began_s`` of ``time.perf_counter``."""

    def __init__(self) -> None:
        self.began_s = real_time.perf_counter()
        self._began = False
        self._meter: CpuMeter | None = None
        self._cuda: CudaMeter | None = None
        self._storages_peak_bytes: int | None = None
        self._elsewhere_bytes = self._looked_bytes = 0
        self._high_bytes: int | None = None
        self._grown_bytes = 0

    def begin(self, module: nn.Module, limit_bytes: int | None) -> None:
        """Measure from here on, once; the limit holds from here on.

        Raises:
            torch.OutOfMemoryError: the weights by themselves exceed the limit.
        """
        if self._began:
            return
        self._began, self.began_s = True, real_time.perf_counter()
        weight = next(module.parameters(), None)
        device = weight.device if weight is not None else torch.device("cpu")
        if device.type == "cpu":
            self._meter = CpuMeter(limit_bytes, held_bytes(module))
            self._meter.enforce()
        elif device.type == "cuda":
            self._cuda = CudaMeter(device, limit_bytes, held_bytes(module))
            self._cuda.enforce()

    def lift(self) -> None:
        if meter := self._meter or self._cuda:
            meter.lift()

    def follow(self, *, paused: bool) -> None:
        """A step has ended; on CPU memory that a pause before it added counts as peak."""
        if self._meter:
            high = self._meter.use().peak_bytes
            if paused and self._high_bytes is not None:
                self._grown_bytes += max(0, high - self._high_bytes)
            self._high_bytes = high

    def look(self) -> None:
        """The step that begins is looked into."""
        if self._meter:
            self._elsewhere_bytes = self._meter.use().peak_bytes
            self._meter.restart()

    def end_look(self, storages_peak_bytes: int) -> None:
        """The step that was looked into has ended; 0: nothing was seen of its storages."""
        if self._meter:
            self._looked_bytes = self._meter.use().peak_bytes
        self._storages_peak_bytes = storages_peak_bytes or None

    def use(self, asked_bytes: int, *, larger: bool) -> MemoryUse | None:
        """Peak so far, with an allocation that was refused at the end; None: not begun.

        ``larger``: there were steps with more samples than the inspected step.
        """
        if self._meter:
            use = self._meter.use()
            peak = max(use.peak_bytes, self._elsewhere_bytes)
            seen = self._storages_peak_bytes
            if seen is not None and not asked_bytes:
                more = peak - self._looked_bytes - self._grown_bytes
                is_most = more < max(_NOTICEABLE_BYTES, seen * _NOTICEABLE_SHARE) and not larger
                peak = seen + self._grown_bytes if is_most else max(peak, seen)
            return replace(use, peak_bytes=peak + asked_bytes)
        if self._cuda is None:
            return None
        use = self._cuda.use()
        return replace(use, peak_bytes=use.peak_bytes + asked_bytes)


def use_before_training(
    asked_bytes: int, limit_bytes: int | None, *, of_weights: bool
) -> MemoryUse | None:
    """Memory use of a process that was refused memory before its first forward pass.

    ``of_weights``: to make or move a module. On CPU nothing else is known then.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        device = torch.device("cuda", torch.cuda.current_device())
        use = CudaMeter(device, limit_bytes).use()
        use = replace(use, peak_bytes=use.peak_bytes + asked_bytes)
    elif of_weights:
        use = replace(CpuMeter(None, 0).use(), peak_bytes=asked_bytes)
    else:
        return None
    return replace(use, weights_alone=of_weights and use.peak_bytes > use.free_before_bytes)
