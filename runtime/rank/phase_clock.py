"""Time of an optimizer step by phase, and of compiling, taken while they run.

Each end of a phase waits for the device, so only steps that are never compared are taken apart.
All ranks end it after the same micro-batch; they agree after the first, second, fourth, …, so
that a step which is not cut pays a handful of exchanges. Torch's own callbacks say how long it
compiles, so that no deadline counts that as hung; old versions lack them.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from autoconf_launch.core import CutStep, RankTask, compile_sign, real_time

from .ranks import Ranks
from .report import write_sign

FORWARD, BACKWARD, EXCHANGE, UPDATE = "forward", "backward", "exchange", "update"
PASSES = "pipeline"
"""Forward and backward passes of a pipeline's micro-batches, which overlap."""
FEWEST_MADE = 2
"""Micro-batches of a step that is cut: one, and the last one with the exchange."""


def device_now_s(device: torch.device) -> float:
    """Seconds of a clock, once the device has computed all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return real_time.perf_counter()


class PhaseClock:
    """Sums seconds by phase over the steps between ``begin`` and ``end_step``.

    Of several micro-batches only the last one's backward also exchanges gradients; what it takes
    longer than the others is the exposed exchange. With one micro-batch it cannot be seen.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._now = partial(device_now_s, ranks.device)
        self._since = 0.0
        self._step: list[tuple[str, float]] = []
        self._sums: dict[str, float] = {}
        self._count = 0

    def begin(self) -> None:
        self._step = []
        self._since = self._now()

    def lap(self, phase: str) -> None:
        now = self._now()
        self._step.append((phase, now - self._since))
        self._since = now

    def end_step(self) -> None:
        """The step counts; a step that is begun anew without this does not."""
        backward = [seconds for phase, seconds in self._step if phase == BACKWARD]
        exchange = self._exchange_s(backward)
        seen = ((BACKWARD, -exchange), (EXCHANGE, exchange)) if backward else ()
        for phase, seconds in (*self._step, *seen):
            self._sums[phase] = self._sums.get(phase, 0.0) + seconds
        self._count += 1

    def means(self) -> tuple[tuple[str, float], ...]:
        """Seconds of a step by phase; nothing if no step counted."""
        order = (PASSES, FORWARD, BACKWARD, EXCHANGE, UPDATE)
        seen = (phase for phase in order if phase in self._sums)
        return tuple((phase, self._sums[phase] / self._count) for phase in seen)

    def _exchange_s(self, backward: list[float]) -> float:
        if self._ranks.world_size == 1 or len(backward) < 2:
            return 0.0
        *others, last = backward
        return max(0.0, last - sum(others) / len(others))


class StepCutter:
    """Times the micro-batches of one step and says which is the last; not to be used twice."""

    def __init__(self, limit_s: float, micro_batches: int, ranks: Ranks) -> None:
        """Start the clock.

        Args:
            limit_s: seconds from now that the step may take.
            micro_batches: of the whole step.
            ranks: that make it together.
        """
        self._limit_s, self._whole, self._ranks = limit_s, micro_batches, ranks
        self._now = partial(device_now_s, ranks.device)
        self._last = micro_batches
        self._micro_s: list[float] = []
        self._start_s = self._since = self._now()

    @property
    def is_cut(self) -> bool:
        """True if the step ends before its last micro-batch."""
        return self._last < self._whole

    def last(self) -> int:
        """Number of the last micro-batch, as all ranks see it before they make the next one."""
        made = len(self._micro_s)
        if made and made & (made - 1) == 0 and made < self._last:
            self._last = self._agreed_last(made)
        return self._last

    def end_micro_batch(self) -> None:
        now = self._now()
        self._micro_s.append(now - self._since)
        self._since = now

    def result(self, samples: int, loss: float) -> CutStep:
        """The step's phases, once the update is over."""
        *others, last_s = self._micro_s
        return CutStep(
            whole=self._whole,
            micro_s=tuple(others),
            rest_s=last_s + self._now() - self._since,
            samples=samples,
            loss=loss,
        )

    def _agreed_last(self, made: int) -> int:
        """The last micro-batch by the slowest rank; at least one more, to exchange gradients."""
        counted = self._micro_s[1:] or self._micro_s
        spent_s = self._since - self._start_s
        both = torch.tensor(
            (spent_s, sum(counted) / len(counted)), dtype=torch.float64, device=self._ranks.device
        )
        if self._ranks.world_size > 1:
            dist.all_reduce(both, op=dist.ReduceOp.MAX)
        spent_s, micro_s = both.tolist()
        more = int(max(0.0, self._limit_s - spent_s) / max(micro_s, 1e-9))
        return min(self._whole, max(FEWEST_MADE, made + max(1, more)))


class CompileTime:
    """Seconds of torch.compile in this process; writes them when it begins and when it ends."""

    def __init__(self, task: RankTask) -> None:
        self.autocast: torch.dtype | None = None
        """Format of autocast around the first call that was compiled under it."""
        self._task = task
        self._spent_s = 0.0
        self._since_s: float | None = None
        self._watches = False

    def watch(self) -> None:
        """Count from here on, if torch.compile is loaded; once."""
        callback: Any = sys.modules.get("torch._dynamo.callback")
        handler = getattr(callback, "callback_handler", None)
        if self._watches or handler is None:
            return
        with suppress(AttributeError):
            handler.register_end_callback(self._ends)
            handler.register_start_callback(self._begins)
            self._watches = True

    def _begins(self, *_: object) -> None:
        self.autocast = self.autocast or autocast_format()
        if self._since_s is None:
            self._since_s = real_time.time()
            self._write(str(self._since_s))

    def _ends(self, *_: object) -> None:
        if self._since_s is not None:
            self._spent_s += max(0.0, real_time.time() - self._since_s)
            self._since_s = None
            self._write("")

    def _write(self, since: str) -> None:
        with suppress(OSError):
            write_sign(self._task, compile_sign(os.getpid()), f"{self._spent_s} {since}")


def autocast_format() -> torch.dtype | None:
    """The format that autocast computes matrix products in here and now; None: it is off."""
    for device in ("cuda", "cpu"):
        if torch.is_autocast_enabled(device):
            return torch.get_autocast_dtype(device)
    return None
