"""Normal and Student's t distributions over arrays. Not: any model of measurements."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from ..space import Floats

_POLYNOMIAL = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
_SHORT = 0.3275911
_STANDARD = NormalDist()


def chance_below(x: Floats) -> Floats:
    """Chance that a standard normal number is below ``x``, to 1e-7.

    Source: Abramowitz and Stegun 1964, 7.1.26.
    """
    scaled = np.abs(x) / np.sqrt(2.0)
    t = 1.0 / (1.0 + _SHORT * scaled)
    tail = np.polyval((*_POLYNOMIAL, 0.0), t) * np.exp(-(scaled**2))
    return np.asarray(np.where(x > 0, 1.0 - tail / 2.0, tail / 2.0))


def density(x: Floats) -> Floats:
    """Density of the standard normal distribution."""
    return np.asarray(np.exp(-0.5 * np.square(x)) / np.sqrt(2.0 * np.pi))


def expected_excess(mean: Floats, spread: Floats) -> Floats:
    """What normal numbers are above 0 by, counting 0 where they are not.

    Args:
        mean: of each number.
        spread: standard deviation of each number, above 0.
    """
    z = mean / spread
    return np.asarray(np.maximum(spread * (z * chance_below(z) + density(z)), 0.0))


def student_quantile(chance: float, freedom: float) -> float:
    """What a t-distributed number is below with a chance; freedom is at least 3.

    Source: Abramowitz and Stegun 1964, 26.7.5 (an expansion around the normal quantile).
    """
    z = _STANDARD.inv_cdf(chance)
    terms = (
        (z**3 + z) / 4.0,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96.0,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384.0,
    )
    return z + sum(term / freedom ** (i + 1) for i, term in enumerate(terms))
