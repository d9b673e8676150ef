"""Expected cost of each row, its chance to fit, and the order of trials that follows.

The cost is learned in :mod:`.surrogate`. Logarithms of true over predicted peaks are normal around
a common value, which is learned: a measured peak shows the value, a trial that ran or ran out of
memory shows on which side of the limit it is.
Shapes: C = rows of the pool, R = records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from ..measurement import chance_below, expected_excess
from ..space import (
    UNCALIBRATED_MEMORY_BAND,
    Bools,
    CandidateTable,
    FailedTrial,
    Floats,
    Ints,
    PredictionTable,
    Record,
    is_out_of_memory,
)

_COMMON = 0.1
_OWN = 0.06
"""Spreads of the common correction and of a row's own around it; together a band of about 12 %,
which is what the memory models reach on models that they were not fitted on."""
MARGINAL = 0.2
"""Weight of the gain of a row that is over the limit by no more than the band."""
_LEAST = 1e-12
"""Chance of an outcome that cannot be."""
_LATEST = 128
"""Trials that are learned from."""
_GRID = np.linspace(-5 * _COMMON, 5 * _COMMON, 101)
_ODDS = np.linspace(-1.0, 1.0, 401)
_SHARED = 0.5
"""Share of a row's variance that a trial of an equal row removes."""
_REACH = 1.0
"""Steps of a knob over which that share falls to 1/e."""
_MOST_DIVERSE = 32
"""Rows of a batch that are chosen one after the other; more follow in the order of the last."""
EVEN = 0.5
"""Chance to fit from which on a row rather does."""
_NO_GAIN = 1e-4
"""Share of the cost below which an expected improvement is none; rows then go by their mean."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Belief:
    """Expected logarithms of costs. Shapes: as in the module, and F = features.

    Attributes:
        mean_C: expected value.
        variance_C: of the true value.
        freedom: degrees of freedom of the t-distribution.
        features_CF: place of each row; 1 apart is one step of a knob.
    """

    mean_C: Floats
    variance_C: Floats
    freedom: float
    features_CF: Floats

    @property
    def spread_C(self) -> Floats:
        """Standard deviation of each row's true value."""
        return np.sqrt(self.variance_C)

    def after(self, row: int) -> Belief:
        """The belief while ``row`` runs: rows near it leave less to learn."""
        squares_C = np.square(self.features_CF - self.features_CF[row]).sum(axis=1)
        near_C = np.exp(-np.sqrt(squares_C) / _REACH)
        return replace(self, variance_C=self.variance_C * (1.0 - _SHARED * near_C))


def by_prediction(log_cost_C: Floats, odds_C: Floats | None, free: Ints) -> Ints:
    """Free rows by what they are predicted to gain over the middle one, times the chance to fit.

    Rows that rather do not fit come last. If all fit safely this is the order of the
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
    """Inverse of the expected time of each row's trial, 1 on average; 1 if trials took no time."""
    plain = np.ones_like(belief.mean_C)
    timed = [record for record in records if record.measurement and record.wall_s > 0]
    if not timed:
        return plain
    steps = np.median([len(r.measurement.step_s) for r in timed if r.measurement])
    spent = [r.wall_s - sum(r.measurement.step_s) for r in timed if r.measurement]
    trial_s = max(float(np.median(spent)), 0.0) + steps * np.exp(belief.mean_C) * samples_C
    return np.asarray(trial_s.mean() / trial_s)


def chance_to_fit(predictions: PredictionTable | None, history: Sequence[Record]) -> Floats | None:
    """Each row's chance to fit, 0 to 1; None if no limit or no prediction is known."""
    limit_bytes = memory_limit_bytes(predictions, history)
    if predictions is None or limit_bytes is None:
        return None
    room = np.log(limit_bytes / predictions.peak_bytes_C)
    odds = _chance_of_each() @ _correction(history, limit_bytes)
    found = np.interp(np.clip(room, -1.0, 1.0), _ODDS, odds)
    return np.asarray(np.where(np.isnan(room), 1.0, found))


@cache
def _chance_of_each() -> Floats:
    """Chance to fit with each room, for each value of the common correction."""
    return chance_below((_ODDS[:, None] - _GRID) / _OWN)


def marginal_rows(
    table: CandidateTable, predictions: PredictionTable | None, history: Sequence[Record]
) -> Bools:
    """Rows that are predicted to exceed the limit by no more than the band.

    One trial of a structure that ran out of memory closes all rows of the structure, and all rows
    that need as much. Predictions count as larger if trials needed more than predicted.
    """
    limit_bytes = memory_limit_bytes(predictions, history)
    if predictions is None or limit_bytes is None:
        return np.zeros(len(table), np.bool_)
    peaks_C = predictions.peak_bytes_C
    low_C = max([1.0, *_largest_error(history)]) * peaks_C * (1.0 - UNCALIBRATED_MEMORY_BAND)
    rows_C = (peaks_C > limit_bytes) & (low_C <= limit_bytes)
    for record in filter(is_out_of_memory, history):
        predicted = record.prediction.peak_bytes if record.prediction else None
        rows_C &= peaks_C < (predicted or np.inf)
        rows_C &= ~table.matches(record.trial.candidate, but=("micro_batch", "accumulation"))
    return np.asarray(rows_C, np.bool_)


def _largest_error(history: Sequence[Record]) -> list[float]:
    """Measured over predicted peak of the trial that was predicted to need most, if there is."""
    measured = _peaks(history).measured
    return [peak / predicted for predicted, peak in sorted(measured)[-1:]]


def memory_limit_bytes(
    predictions: PredictionTable | None, history: Sequence[Record]
) -> float | None:
    """Memory of a rank, from trials or from the predictions."""
    for record in reversed(history):
        outcome = record.outcome
        if outcome.memory is not None and outcome.memory.limit_bytes:
            return float(outcome.memory.limit_bytes)
    return None if predictions is None else predictions.limit_bytes


def _correction(history: Sequence[Record], limit_bytes: float) -> Floats:
    """Chances of the values of the common correction."""
    peaks = _peaks(history)
    logs = -0.5 * (_GRID / _COMMON) ** 2
    for was_full, predicted in ((False, peaks.ran), (True, peaks.full)):
        room_R = np.log(limit_bytes / np.array(predicted, np.float64))
        fits = chance_below((room_R[:, None] - _GRID) / _OWN)
        logs += np.log(np.maximum(1.0 - fits if was_full else fits, _LEAST)).sum(axis=0)
    measured_R2 = np.array(peaks.measured, np.float64).reshape(-1, 2)
    error_R = np.log(measured_R2[:, 1] / measured_R2[:, 0])
    away = (error_R[:, None] - _GRID) / _OWN
    logs += np.log(np.maximum(np.exp(-0.5 * away**2), _LEAST)).sum(axis=0)
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Peaks:
    """Predicted and measured peaks of trials that ran and that ran out of memory."""

    ran: list[float] = field(default_factory=list)
    full: list[float] = field(default_factory=list)
    measured: list[tuple[float, float]] = field(default_factory=list)


def _peaks(history: Sequence[Record]) -> _Peaks:
    found = _Peaks()
    for record in history[-_LATEST:]:
        predicted = record.prediction.peak_bytes if record.prediction else None
        if not predicted:
            continue
        memory = record.outcome.memory
        if is_out_of_memory(record):
            found.full.append(predicted)
        elif isinstance(record.outcome, FailedTrial):
            continue
        elif memory is None or not memory.peak_bytes:
            found.ran.append(predicted)
        else:
            found.measured.append((predicted, memory.peak_bytes))
    return found
