"""From step times in blocks to numbers that can be compared. Pure.

The speed of a machine drifts over minutes, so arms are measured in turn, and two of them are
compared within each block.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How fast one arm is beside another: the median over blocks, the lowest and the highest."""

    median: float
    low: float
    high: float


def samples_per_s(
    step_s_of_ranks: Sequence[Sequence[float]], *, samples_per_step: int, warmup: int
) -> float:
    """Samples of all ranks per wall second after the warm-up; the slowest rank of a step counts.

    Raises:
        ValueError: no step is left after the warm-up.
    """
    slowest_s: list[float] = [max(times) for times in zip(*step_s_of_ranks, strict=True)][warmup:]
    if not slowest_s:
        raise ValueError(f"no step is left after {warmup} of warm-up")
    return samples_per_step * len(slowest_s) / sum(slowest_s)


def in_turn(arms: Sequence[T], block: int) -> tuple[T, ...]:
    """The order of one block: each arm once, another one first in each block."""
    start = block % len(arms)
    return (*arms[start:], *arms[:start])


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> Ratio:
    """Compare two arms block by block."""
    found = [above / below for above, below in zip(numerator, denominator, strict=True)]
    return Ratio(median=statistics.median(found), low=min(found), high=max(found))


def rank_arms(values: Mapping[T, Sequence[float]]) -> tuple[T, ...]:
    """Arms by their median, the fastest first; equal ones stay in order."""
    return tuple(sorted(values, key=lambda arm: -statistics.median(values[arm])))
