"""A comparison that may be looked at after every pair. Not: who is paired with whom (finals).

The observations are differences of two launches of one round, as logarithms: what the machine
did in that minute is in both. Their spread is not known before, so that it is part of the test.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

EFFECT = 10.0
"""Variance of the differences between configurations over that of the noise, as the mixture
supposes it. It decides when an interval is narrowest, not whether it is true."""

PAIR_NOISE = 0.05
"""Spread of a difference of two launches of one round before any was seen: as on a busy machine
(``tests/data/step_noise.json``), so that a quiet one needs a few rounds to show that it is."""

PRIOR_FREEDOM = 3.0
"""How many seen differences that is worth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedEstimate:
    """The mean of the differences, and half the width of its interval at any time."""

    mean: float
    width: float
    count: int
    spread: float
    """Of a single difference, as far as is known."""

    @property
    def differs(self) -> bool:
        """Whether the interval leaves out zero."""
        return abs(self.mean) > self.width


def estimate(differences: Sequence[float], alpha: float = 0.05) -> PairedEstimate:
    """What the differences so far say; the interval holds at all times at once.

    Args:
        differences: logarithms of ratios, one for each round.
        alpha: probability that the interval is ever wrong.

    Source:
        Robbins 1970, "Statistical Methods Related to the Law of the Iterated Logarithm" (normal
        mixture), with the spread mixed, too, as in the t-statistic of Lai 1976, "On Confidence
        Sequences"; Wang and Ramdas 2024, "Anytime-valid t-tests and confidence sequences for
        Gaussian means with unknown variance". Here the mixture over the variance is an inverse
        gamma around ``PAIR_NOISE`` instead of the improper one, so that it says something from
        the second round on.
    """
    count = len(differences)
    if count == 0:
        return PairedEstimate(mean=0.0, width=math.inf, count=0, spread=PAIR_NOISE)
    mean = sum(differences) / count
    squares = _squares(differences, mean)
    return PairedEstimate(
        mean=mean,
        width=_width(squares, count, alpha),
        count=count,
        spread=math.sqrt(squares / (PRIOR_FREEDOM + count - 1)),
    )


def expected_width(now: PairedEstimate, count: int, alpha: float = 0.05) -> float:
    """Half the width of the interval after so many differences, if they spread as they did."""
    squares = now.spread**2 * (PRIOR_FREEDOM + count - 1)
    return _width(squares, count, alpha)


def _squares(differences: Sequence[float], mean: float) -> float:
    prior = PRIOR_FREEDOM * PAIR_NOISE**2
    return prior + sum((difference - mean) ** 2 for difference in differences)


def _width(squares: float, count: int, alpha: float) -> float:
    """Where the mixture's likelihood ratio against a mean reaches 1 / alpha.

    With S the sum of squares about the estimate, k = 1 + count * EFFECT and n the degrees of
    freedom: k**-0.5 * ((S + count d**2) / (S + count d**2 / k)) ** (n / 2) = 1 / alpha.
    """
    growth = 1.0 + count * EFFECT
    ratio = (math.sqrt(growth) / alpha) ** (2.0 / (PRIOR_FREEDOM + count))
    if ratio >= growth:
        return math.inf
    return math.sqrt(squares / count * (ratio - 1.0) / (1.0 - ratio / growth))
