"""What each ZeRO stage leaves room for: the micro-batch asked for, and the largest one.

Not: where the bytes of a layout come from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from autoconf_launch.autotuner.cost.fitting import Verdict, verdict
from autoconf_launch.core import Layout, Recompute

_MOST_DOUBLINGS = 20
PeakOf: TypeAlias = Callable[[Layout], float]
"""Bytes that the fullest rank of a layout needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """One stage and recomputation.

    ``peak_bytes`` is with the micro-batch asked for; ``largest`` is the largest one that surely
    fits, 0 where none does.
    """

    zero_stage: int
    recompute: Recompute
    peak_bytes: float
    verdict: Verdict
    largest: int


def rooms(
    layout: Layout, kinds: Sequence[Recompute], peak: PeakOf, limit_bytes: float
) -> tuple[Room, ...]:
    """All stages that differ on so many ranks, with each kind of recomputation."""
    stages = range(4) if layout.data_parallel * layout.context_parallel > 1 else range(1)
    return tuple(
        _room(replace(layout, zero_stage=stage, recompute=kind), peak, limit_bytes)
        for kind in kinds
        for stage in stages
    )


def _room(layout: Layout, peak: PeakOf, limit_bytes: float) -> Room:
    def fits(size: int) -> bool:
        needed = peak(replace(layout, micro_batch=size))
        return verdict(needed, limit_bytes) is Verdict.YES

    now = peak(layout)
    return Room(
        zero_stage=layout.zero_stage,
        recompute=layout.recompute,
        peak_bytes=now,
        verdict=verdict(now, limit_bytes),
        largest=largest(fits),
    )


def largest(fits: Callable[[int], bool]) -> int:
    """The largest number of samples that fits, where more never fit better; 0: not even one."""
    if not fits(1):
        return 0
    low = 1
    while fits(2 * low):
        low *= 2
        if low >= 1 << _MOST_DOUBLINGS:
            return low
    high = 2 * low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
