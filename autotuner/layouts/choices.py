"""Which values of each knob are enumerated. Not: which of them go together (rules)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autoconf_launch.core import Offload, Recompute

Values = tuple[int, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Values to enumerate; None stands for all that there are.

    Attributes:
        layers: layers of a stage that are recomputed in full; None for a ladder of quarters, an
            empty tuple for no such layouts.
    """

    tensor: Values = None
    pipeline: Values = None
    virtual: Values = None
    context: Values = None
    expert: Values = None
    micro_batch: Values = None
    zero: tuple[int, ...] = (0, 1, 2, 3)
    recompute: tuple[Recompute, ...] = tuple(Recompute)
    layers: Values = None
    sequence_parallel: tuple[bool, ...] = (False, True)
    offload: tuple[Offload, ...] = tuple(Offload)


def chosen(found: tuple[int, ...], wanted: Values) -> tuple[int, ...]:
    """Of the values found those that are wanted, in order."""
    return found if wanted is None else tuple(value for value in found if value in wanted)


def divisors(number: int) -> tuple[int, ...]:
    """All of them, ascending."""
    low = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*low, *(number // d for d in low)}))
