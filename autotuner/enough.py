"""Whether further rounds would say anything new of a pair. Not: what they said (sequential)."""

from __future__ import annotations

import math

from .sequential import PairedEstimate, expected_width

EQUAL = 0.02
"""Configurations that surely differ by less are equal."""

PRECISION = 0.03
"""Half the width of the interval of what may be equal that is narrow enough."""

DISTANCE = 0.05
"""The same for the distance of a baseline that is surely slower."""

_Z_95 = 1.645


def is_settled(found: PairedEstimate, *, is_baseline: bool, rounds: int, alpha: float) -> bool:
    """Of an arm beside the leader.

    Args:
        found: what the rounds so far say of the two.
        is_baseline: the arm is the user's own, whose distance is to be known as well.
        rounds: that there will be at most.
        alpha: probability that the interval is ever wrong.
    """
    if found.differs:
        return not is_baseline or found.width <= DISTANCE
    if found.width > PRECISION:
        return False
    if abs(found.mean) + found.width <= EQUAL:
        return True
    likely = abs(found.mean) + _Z_95 * found.spread / math.sqrt(found.count)
    return likely < expected_width(found, rounds, alpha)
