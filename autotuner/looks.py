"""How far a mean may stray by chance when it is looked at again and again. Not: of what.

Shapes: S = grid of sums.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

LOOKS = 40
"""All of which the bound holds for at once."""

_STEP = 0.2
"""Of the grid of sums, in standard deviations of one observation."""
_HALVINGS = 16
_MOST = 40.0


def bound(look: int, alpha: float) -> float:
    """Standard errors that a mean of so many observations is within at every look, from 1.

    Normal observations of known spread; the chance to be ever beyond is ``alpha`` over the first
    ``LOOKS``. The bound grows slowly, so that much of that chance is spent early.
    """
    return math.sqrt(_level(alpha) + _growth(look))


def of_student(deviations: float, freedom: float) -> float:
    """What a t-distributed number is beyond as rarely as a normal one is beyond ``deviations``.

    A little more than that, never less: 1 % from eight degrees of freedom on, 20 % at three.

    Source:
        Wallace 1959, "Bounds on normal approximations to Student's and the chi-square
        distributions", the approximation solved for t; in place of a normal bound as in Jennison
        and Turnbull 2000, "Group Sequential Methods", 4.4.
    """
    if freedom <= 0.0:
        return math.inf
    exponent = (deviations * (8.0 * freedom + 3.0) / (8.0 * freedom + 1.0)) ** 2 / freedom
    return math.inf if exponent > _MOST else math.sqrt(freedom * math.expm1(exponent))


def _growth(look: int) -> float:
    return math.log1p(look)


@lru_cache(maxsize=64)
def _level(alpha: float) -> float:
    """Where the chance to be ever beyond is ``alpha``, by bisection."""
    low, high = 0.0, _MOST
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if chance_beyond(middle) > alpha else (low, middle)
    return high


def chance_beyond(level: float) -> float:
    """To be ever beyond the bound of this level.

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
