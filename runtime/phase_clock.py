"""Where the time of an optimizer step goes, by phase while it runs. Not: the step's own time.

Each end of a phase waits for the device, so only steps that are never compared are taken apart.
"""

from __future__ import annotations

import time

import torch

from .ranks import Ranks

FORWARD, BACKWARD, EXCHANGE, UPDATE = "forward", "backward", "exchange", "update"


class PhaseClock:
    """Sums seconds by phase over the steps between ``begin`` and ``end_step``.

    Of several micro-batches only the last one's backward also exchanges gradients; what it takes
    longer than the others is the exposed exchange. With one micro-batch it cannot be seen.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._since = 0.0
        self._step: list[tuple[str, float]] = []
        self._sums: dict[str, float] = {}
        self._count = 0

    def begin(self) -> None:
        """A step begins."""
        self._step = []
        self._since = self._now()

    def lap(self, phase: str) -> None:
        """A phase is over."""
        now = self._now()
        self._step.append((phase, now - self._since))
        self._since = now

    def end_step(self) -> None:
        """The step counts; one that is begun anew without this does not."""
        backward = [seconds for phase, seconds in self._step if phase == BACKWARD]
        exchange = self._exchange_s(backward)
        for phase, seconds in (*self._step, (BACKWARD, -exchange), (EXCHANGE, exchange)):
            self._sums[phase] = self._sums.get(phase, 0.0) + seconds
        self._count += 1

    def means(self) -> tuple[tuple[str, float], ...]:
        """Seconds of a step by phase; nothing where no step counted."""
        order = (FORWARD, BACKWARD, EXCHANGE, UPDATE)
        seen = (phase for phase in order if phase in self._sums)
        return tuple((phase, self._sums[phase] / self._count) for phase in seen)

    def _exchange_s(self, backward: list[float]) -> float:
        if self._ranks.world_size == 1 or len(backward) < 2:
            return 0.0
        *others, last = backward
        return max(0.0, last - sum(others) / len(others))

    def _now(self) -> float:
        if self._ranks.device.type == "cuda":
            torch.cuda.synchronize(self._ranks.device)
        return time.perf_counter()
