"""Upper bound on the gain of the candidates that were not tried.

A candidate cannot beat the best one if its roofline excludes it, if it surely does not fit, if its
time, as predicted and corrected by all measurements, leaves it no chance, or if the curve of
throughput over the micro-batch excludes it: the bounds of all remaining candidates hold together
with ``CONFIDENCE``. A curve through two trials is as sure as the trials, so its bound includes
their noise, and the more of it the farther it reaches beyond them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..measurement import expected_excess, t_quantile
from ..space import CandidateTable, Floats, Objective, PredictionTable, Record
from ..strategies import CurveGains, chance_to_fit, costs, learn_costs, marginal_rows

CONFIDENCE = 0.98
"""Chance that no remaining candidate is below its bound: one certificate in fifty may be wrong."""
_SURELY_NOT = 0.01
_REFUTED = 0.9
"""Measured over least possible time; below it, noise does not explain the difference."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OptimalityBound:
    """Possible gains of the remaining candidates over the best measured one, as shares.

    Attributes:
        remaining: number of candidates, without ruled-out ones.
        possible_gain_C: largest possible gain of each; 0 if it cannot be faster.
        expected_gain: expected gain of the most promising candidate.
    """

    remaining: int
    possible_gain_C: Floats
    expected_gain: float

    @property
    def beaten(self) -> int:
        """Number of candidates that cannot be faster."""
        return int((self.possible_gain_C <= 0).sum())

    @property
    def possible_gain(self) -> float:
        """Largest possible gain of any candidate."""
        return float(self.possible_gain_C.max(initial=0.0))


def bound_gain(
    remaining: CandidateTable,
    predictions: PredictionTable | None,
    history: Sequence[Record],
    objective: Objective,
    *,
    curves: CurveGains | None = None,
) -> OptimalityBound | None:
    """Bound the gain by the predictions of the remaining candidates and by all records.

    ``curves``: possible gain of each by curves of throughput; None if these are not used.

    Returns:
        None if nothing was measured, or not every remaining candidate has a prediction.
    """
    known = costs(remaining, predictions, history, objective)
    if not len(remaining):
        return OptimalityBound(remaining=0, possible_gain_C=np.zeros(0), expected_gain=0.0)
    if predictions is None or not known.predicted or not len(known.usable_S):
        return None
    now = learn_costs(remaining, predictions, known)
    best = float(known.after_S.min())
    chance = 1.0 - (1.0 - CONFIDENCE) / len(remaining)
    likely = now.mean_C - t_quantile(chance, now.freedom) * now.spread_C
    least = np.maximum(likely, _floor(remaining, predictions, known.records, objective))
    odds = chance_to_fit(predictions, history)
    fits = np.ones(len(remaining), np.bool_) if odds is None else odds > _SURELY_NOT
    fits |= marginal_rows(remaining, predictions, history)
    most = best - least
    if curves is not None:
        most = np.minimum(most, curves.at_most_C(chance))
    gain = np.where(fits, np.expm1(np.maximum(most, 0.0)), 0.0)
    expected = expected_excess(best - now.mean_C, now.spread_C) * (1.0 if odds is None else odds)
    expected = np.minimum(expected, gain)
    return OptimalityBound(
        remaining=len(remaining),
        possible_gain_C=np.asarray(gain),
        expected_gain=float(np.max(expected)),
    )


def _floor(
    remaining: CandidateTable,
    predictions: PredictionTable,
    records: Sequence[Record],
    objective: Objective,
) -> Floats:
    """Logarithm of the least cost by the roofline, lowered if a measurement was below it.

    A measurement far below it shows that there is no such bound.
    """
    if predictions.least_step_s_C is None:
        return np.full(len(remaining), -np.inf)
    ratios = [
        record.measurement.mean_step_s / record.prediction.least_step_s
        for record in records
        if record.measurement and record.prediction and record.prediction.least_step_s
    ]
    lowered = min([1.0, *ratios])
    if lowered < _REFUTED:
        return np.full(len(remaining), -np.inf)
    samples = remaining.global_batch_C if objective.per_sample else 1
    least_s = predictions.least_step_s_C / samples * lowered
    return np.log(least_s, out=np.full(len(remaining), -np.inf), where=least_s > 0)
