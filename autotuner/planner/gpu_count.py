"""The fewest GPUs on which a training is within its limits. Not: their layout (search)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from .search import Limits, Plan, Planned, Question, plan

_MOST_GPUS = 1 << 17
_STEPS = 128
_WORTH = 0.99
_MOST_VAIN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuCount:
    """Result of a search for the smallest number of GPUs.

    Attributes:
        gpus: the fewest; None if no number is within the limits.
        nearest: the number of GPUs that comes nearest to the limits without meeting them.
        fewer: the best layout on ``nearest`` GPUs; None if nothing fits on fewer.
    """

    gpus: int | None
    nearest: int
    fewer: Planned | None = None


@dataclass(slots=True, kw_only=True)
class _Seen:
    """The nearest miss of the limits so far."""

    nearest: int = 1
    layout: Planned | None = None
    excess: float = float("inf")
    least_bytes: float = float("inf")
    ideal_gpu_s: float = 0.0

    def add(self, gpus: int, found: Plan, limits: Limits) -> bool:
        """Look at a plan; whether it is clearly nearer to the limits than all before."""
        if one := found.fastest or found.smallest:
            self.ideal_gpu_s = gpus * dict(one.parts)["ideal"]
        if one := found.fastest:
            excess, before = (
                one.step_s / min(limits.deadline_step_s, limits.cost_step_s),
                self.excess,
            )
            if excess < before:
                self.nearest, self.layout, self.excess = gpus, one, excess
            return excess < _WORTH * before
        if (one := found.smallest) and self.layout is None and one.peak_bytes < self.least_bytes:
            is_nearer = one.peak_bytes < _WORTH * self.least_bytes
            self.nearest, self.least_bytes = gpus, one.peak_bytes
            return is_nearer
        return False


def fewest_gpus(question: Question, limits_of: Callable[[int], Limits]) -> GpuCount:
    """Count up, within a node by GPUs, then by nodes, until a layout is within the limits.

    Beyond 128 nodes in steps of at most 2 %. It ends when more GPUs bring it no nearer, at the
    latest at 131,072.

    Args:
        question: its world, limits and number of layouts are replaced.
        limits_of: limits on a number of GPUs.
    """
    seen, vain = _Seen(), 0
    for counts in _windows(question.training.machine.gpus_per_node):
        is_nearer = False
        for gpus in counts:
            limits = limits_of(gpus)
            if seen.ideal_gpu_s / gpus > limits.deadline_step_s:
                is_nearer = True
                continue
            found = plan(replace(question, world=gpus, limits=limits, most=1))
            if found.best:
                return GpuCount(gpus=gpus, nearest=seen.nearest, fewer=seen.layout)
            is_nearer |= seen.add(gpus, found, limits)
        vain = 0 if is_nearer else vain + 1
        if vain == _MOST_VAIN:
            break
    return GpuCount(gpus=None, nearest=seen.nearest, fewer=seen.layout)


def _windows(node: int) -> Iterator[range]:
    """Numbers of GPUs, up to twice as many in each."""
    yield range(1, node + 1)
    last = 2
    while last * node <= _MOST_GPUS:
        step = max(1, last // _STEPS)
        yield range((last // 2 + step) * node, last * node + 1, step * node)
        last *= 2
