"""A comparison that may be looked at after every round. Not: what is compared (playoff).

The observations are differences of two launches of one round, as logarithms: what the machine
did in that minute is in both. Their spread is not known before, so that it is part of the test;
what the steps of the launches let expect of it is where the test begins.

Shapes: S = grid of sums.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .noise import of_student

LOOKS = 40
"""All of which the bound holds for at once."""

_STEP = 0.2
"""Spacing of the grid of sums, in standard deviations of one observation."""
_HALVINGS = 16
_MOST = 40.0


def bound(look: int, alpha: float) -> float:
    """Standard errors that a mean of so many observations is within at every look, from 1.

    Normal observations of known spread; the chance to be ever beyond is ``alpha`` over the first
    ``LOOKS``. The bound grows slowly, so that much of that chance is spent early.
    """
    return math.sqrt(_level(alpha) + _growth(look))


def _growth(look: int) -> float:
    return math.log1p(look)


@lru_cache(maxsize=64)
def _level(alpha: float) -> float:
    """The level at which the chance to be ever beyond is ``alpha``, by bisection."""
    low, high = 0.0, _MOST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if chance_beyond(middle) > alpha else (low, middle)
    return high


def chance_beyond(level: float) -> float:
    """The chance to be ever beyond the bound of this level.

    Source:
        Armitage, McPherson and Rowe 1969, "Repeated Significance Tests on Accumulating Data": the
        density of the sums that are still within, from look to look.
    """
    edges = [math.sqrt((level + _growth(look)) * look) for look in range(1, LOOKS + 1)]
    sums_S = np.arange(-edges[-1] - 1.0, edges[-1] + 1.0, _STEP)
    scale = _STEP / math.sqrt(2.0 * math.pi)
    step_SS = scale * np.exp(-0.5 * np.square(sums_S[:, None] - sums_S[None, :]))
    within_S = scale * np.exp(-0.5 * np.square(sums_S))
    for look, edge in enumerate(edges, 1):
        within_S = within_S if look == 1 else step_SS @ within_S
        within_S = within_S * np.clip((edge - np.abs(sums_S)) / _STEP + 0.5, 0.0, 1.0)
    return 1.0 - float(within_S.sum())


LAUNCH = 0.01
"""Spread of launches of one configuration side by side beyond what their steps explain: 0 to
0.016 in what was recorded (``tests/data/step_noise.json``, ``benchmarks/landscapes``). Where it is
more than 0.012 the rounds' own spread corrects it only with time, and intervals of the first
rounds are too narrow."""

FREEDOM = 3.0
"""How many seen differences a guess of what launches differ by is worth."""

MOST_FREEDOM = 12.0
"""How many what steps show is worth at most: beyond that the rounds themselves must say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a difference is expected to spread by, and how many differences that is worth."""

    spread: float
    freedom: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedEstimate:
    """The mean of the differences, and half the width of its interval at any time."""

    mean: float
    width: float
    count: int
    spread: float
    """Standard deviation of a single difference, as far as is known."""
    freedom: float
    """Degrees of freedom that the spread stands on."""

    @property
    def differs(self) -> bool:
        """Whether the interval excludes zero."""
        return abs(self.mean) > self.width


def expect_in_turn(variance: float, freedom: float, steps: int) -> Expected:
    """What to expect of steps that took turns, whose differences have nothing in common.

    Args:
        variance: of a difference of two steps about the mean of its round.
        freedom: degrees of freedom of ``variance``.
        steps: of each launch.

    Source:
        Satterthwaite 1946, "An Approximate Distribution of Estimates of Variance Components", for
        the degrees of freedom of a sum of what steps show and what launches are guessed to add.
    """
    of_steps, of_launches = variance / steps, 2.0 * LAUNCH**2
    total = of_steps + of_launches
    doubt = of_steps**2 / freedom + of_launches**2 / FREEDOM
    return Expected(spread=math.sqrt(total), freedom=min(total**2 / doubt, MOST_FREEDOM))


def expect_apart(variance: float, freedom: float) -> Expected:
    """What to expect of the steps of launches that follow each other.

    Neighbouring steps have most of their noise in common (DESIGN, rule 11), so that launches may
    differ by as much as single steps do, however many steps they make.

    Args:
        variance: of a single step about its launch.
        freedom: degrees of freedom of ``variance``; the spread's are those of a product of it and
            a guess.
    """
    spread = math.sqrt(2.0 * (variance + LAUNCH**2))
    return Expected(spread=spread, freedom=1.0 / (1.0 / FREEDOM + 1.0 / freedom))


def estimate_difference(
    differences: Sequence[float], expected: Expected, alpha: float = 0.05
) -> PairedEstimate:
    """What the differences so far say; the interval holds after every round at once.

    Args:
        differences: logarithms of ratios, one for each round.
        expected: of their spread, from other observations.
        alpha: probability that the interval is ever wrong.

    Source:
        :mod:`.looks`, with the spread estimated as from ``expected.freedom`` differences more.
    """
    count, freedom = len(differences), expected.freedom
    if count == 0:
        return PairedEstimate(
            mean=0.0, width=math.inf, count=0, spread=expected.spread, freedom=freedom
        )
    mean = sum(differences) / count
    squares = freedom * expected.spread**2 + sum((value - mean) ** 2 for value in differences)
    freedom += count - 1
    spread = math.sqrt(squares / freedom) if freedom > 0.0 else math.inf
    width = _width(spread, freedom, count, alpha)
    return PairedEstimate(mean=mean, width=width, count=count, spread=spread, freedom=freedom)


def expected_width(now: PairedEstimate, count: int, alpha: float = 0.05) -> float:
    """Half the width of the interval after so many rounds, if they spread as they did."""
    return _width(now.spread, now.freedom + count - now.count, count, alpha)


def _width(spread: float, freedom: float, count: int, alpha: float) -> float:
    if math.isinf(spread):
        return math.inf
    return of_student(bound(count, alpha), freedom) * spread / math.sqrt(count)
