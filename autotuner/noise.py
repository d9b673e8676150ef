"""How far two measurements may be trusted to differ. Not: when a trial has run long enough.

Naive for now: intervals from single steps as if these were independent. Steps on a shared
machine are correlated, so that the intervals here are too narrow; block means and repeated
baselines come later behind the same functions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .objective import Objective
from .trial import Measurement

_T_975 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""Student's t for 95 %, two-sided, for 1 to 10 degrees of freedom."""


_WIDEST = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedUp:
    """How many times better in the metric's direction, with its 95 % interval."""

    ratio: float
    low: float
    high: float


def relative_error(measurement: Measurement) -> float:
    """Standard error of the mean step over that mean; infinite from one step."""
    count, mean_s = len(measurement.step_s), measurement.mean_step_s
    if count < 2:
        return math.inf
    variance = sum((step_s - mean_s) ** 2 for step_s in measurement.step_s) / (count - 1)
    return math.sqrt(variance / count) / mean_s


def speed_up(baseline: Measurement, best: Measurement, objective: Objective) -> SpeedUp | None:
    """How much better ``best`` is; None where a measurement lacks the metric."""
    before, after = objective.value(baseline), objective.value(best)
    if not before or not after:
        return None
    ratio = after / before if objective.higher_is_better else before / after
    spread = math.hypot(relative_error(baseline), relative_error(best))
    if math.isinf(spread):
        return SpeedUp(ratio=ratio, low=0.0, high=math.inf)
    freedom = len(baseline.step_s) + len(best.step_s) - 2
    width = math.exp(min(_t(freedom) * spread, _WIDEST))
    return SpeedUp(ratio=ratio, low=ratio / width, high=ratio * width)


def is_tie(a: Measurement, b: Measurement, objective: Objective) -> bool:
    """Whether the noise of both could explain their difference."""
    ratio = speed_up(a, b, objective)
    return ratio is not None and ratio.low <= 1.0 <= ratio.high


def _t(freedom: int) -> float:
    return _T_975[freedom - 1] if freedom <= len(_T_975) else 1.96 + 2.5 / freedom
