"""What is expected of each row, and how surely. Not: which model expects it (gaussian, trees).

Shapes: S = measured rows, C = rows of the pool, F = features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from ..measurement import expected_excess
from ..space import Floats, Ints, Record

MEASUREMENT_NOISE = 0.02
"""What two runs of one setting differ by, as a share."""
OWN = 0.25
"""Share of the variance that no other row tells of."""
PRIOR_FREEDOM = 4.0
"""Measurements that the prior scale counts as."""


class Covariance(Protocol):
    """Covariance of rows by their features, in prior variances, without a row's own part."""

    def between(self, a_RF: Floats, b_RF: Floats) -> Floats:
        """Covariance of each row of ``a`` with each of ``b``."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Belief:
    """Logarithms to expect. Shapes: as in the module.

    Attributes:
        mean_C: expected value.
        variance_C: in units of ``scale``, without the noise of a new measurement.
        scale: variance of one unit of the prior.
        freedom: of the t-distribution.
    """

    mean_C: Floats
    variance_C: Floats
    scale: float
    freedom: float
    kernel: Covariance
    features_CF: Floats
    seen_CS: Floats

    @property
    def spread_C(self) -> Floats:
        """Standard deviation of each row's true value."""
        return np.sqrt(self.scale * self.variance_C)

    def after(self, row: int) -> Belief:
        """The belief as if ``row`` had been measured and were just what is expected of it."""
        near = self.kernel.between(self.features_CF, self.features_CF[row : row + 1])[:, 0]
        covariance = near - self.seen_CS @ self.seen_CS[row]
        column = covariance / np.sqrt(
            max(self.variance_C[row], OWN) + MEASUREMENT_NOISE**2 / self.scale
        )
        return replace(
            self,
            variance_C=np.maximum(self.variance_C - column**2, OWN),
            seen_CS=np.column_stack([self.seen_CS, column]),
        )


_MOST_DIVERSE = 32
"""Rows of a batch that are chosen one after the other; more follow in the order of the last."""

EVEN = 0.5
"""Chance to fit from which on a row rather does."""
_NO_GAIN = 1e-4
"""Share of the cost below which an expected improvement is none; rows then go by their mean."""


def by_prediction(log_cost_C: Floats, odds_C: Floats | None, free: Ints) -> Ints:
    """Free rows by what they are predicted to gain over the middle one, times the chance to fit.

    Rows that rather do not fit come last. Where all fit safely this is the order of the
    predictions; ties stay in the pool's order.
    """
    known = log_cost_C[np.isfinite(log_cost_C)]
    gain = (float(np.median(known)) if len(known) else 0.0) - log_cost_C
    if odds_C is None:
        return np.asarray(free[np.lexsort((free, -gain[free]))])
    weighed = np.where(gain > 0, gain * odds_C, gain)[free]
    return np.asarray(free[np.lexsort((free, -weighed, odds_C[free] < EVEN))])


def by_improvement(
    belief: Belief,
    best: float,
    weight_C: Floats,
    free: Ints,
    count: int,
) -> Ints:
    """Free rows by expected improvement times ``weight_C``, each as if those before had run.

    What a row that is chosen says of the rows like it is no longer to be gained there, so that
    the next one is of another region.
    """
    chosen: list[int] = []
    left = free
    while len(left):
        order = left[_best_first(belief, best, weight_C, left)]
        if len(chosen) + 1 >= min(count, _MOST_DIVERSE):
            return np.array([*chosen, *order.tolist()], np.int64)
        first = int(order[0])
        chosen.append(first)
        left = left[left != first]
        belief = belief.after(first)
        best = min(best, float(belief.mean_C[first]))
    return np.array(chosen, np.int64)


def _best_first(belief: Belief, best: float, weight_C: Floats, rows: Ints) -> Ints:
    mean = belief.mean_C[rows]
    gain = expected_excess(best - mean, belief.spread_C[rows])
    gain = np.where(gain > _NO_GAIN, gain * weight_C[rows], 0.0)
    return np.asarray(np.lexsort((rows, mean, -gain)))


def trial_weight(belief: Belief, samples_C: Ints | int, records: Sequence[Record]) -> Floats:
    """One over the expected time of each row's trial, 1 on average; 1 where trials took none."""
    plain = np.ones_like(belief.mean_C)
    timed = [record for record in records if record.measurement and record.wall_s > 0]
    if not timed:
        return plain
    steps = np.median([len(r.measurement.step_s) for r in timed if r.measurement])
    spent = [r.wall_s - sum(r.measurement.step_s) for r in timed if r.measurement]
    trial_s = max(float(np.median(spent)), 0.0) + steps * np.exp(belief.mean_C) * samples_C
    return np.asarray(trial_s.mean() / trial_s)
