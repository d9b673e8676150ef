"""The normal distribution over arrays."""

from __future__ import annotations

import numpy as np

from ..space import Floats

_POLYNOMIAL = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
_SHORT = 0.3275911


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
