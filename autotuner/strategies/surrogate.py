"""What is believed of each row's cost, from predictions and measurements. Not: which row is next.

Where all rows are predicted, the logarithm of measured over predicted cost is learned, so that
without a measurement the predictions stand as they are. With up to ``FEW`` measurements a
Gaussian process learns it; from then on boosted trees do, and the process what they leave over,
from the best and the latest measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..objective import Objective
from ..table import CandidateTable, Floats, Ints, PredictionTable, concat
from ..trial import Record
from .features import knob_features, prediction_features
from .gaussian import Belief, believed
from .trees import grown

FEW = 48
"""Measurements up to which trees know less than a Gaussian process; the process takes no more."""
_SPREAD_UNPREDICTED = 0.5
_SPREAD_UNSAID = 0.2
"""Of the logarithm of cost in a space of which nothing is predicted; of predictions without a
band."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Costs:
    """Logarithms of predicted and measured cost. ``guess_C`` is NaN where none is predicted.

    Attributes:
        records: measured ones, in order.
        before_S: what was predicted of them, NaN where nothing was.
        after_S: what was measured.
    """

    guess_C: Floats
    records: tuple[Record, ...]
    before_S: Floats
    after_S: Floats

    @property
    def predicted(self) -> bool:
        """Whether every row of the pool has a prediction."""
        return bool(np.isfinite(self.guess_C).all())

    @property
    def usable_S(self) -> Ints:
        """Numbers of the measurements to learn from."""
        usable = np.isfinite(self.before_S) if self.predicted else np.isfinite(self.after_S)
        return np.flatnonzero(usable)


def costs(
    pool: CandidateTable,
    predictions: PredictionTable | None,
    history: Sequence[Record],
    objective: Objective,
) -> Costs:
    """Of the rows of a pool and of what was measured."""
    records = tuple(record for record in history if record.measurement)
    pairs = [_pair(record, objective) for record in records]
    guess = np.full(len(pool), np.nan)
    if predictions is not None:
        samples = pool.global_batch_C if objective.per_sample else 1
        guess = np.log(predictions.step_s_C / samples)
    before, after = np.log(np.array(pairs, float).reshape(-1, 2)).T
    return Costs(guess_C=guess, records=records, before_S=before, after_S=after)


def belief(
    pool: CandidateTable, predictions: PredictionTable | None, known: Costs, seed: int
) -> Belief:
    """Logarithms of the costs of the pool's rows; needs a usable measurement."""
    base = known.guess_C if known.predicted else np.full(len(pool), known.after_S.mean())
    picked = known.usable_S
    targets = known.after_S - (known.before_S if known.predicted else known.after_S.mean())
    features = _features(pool, predictions, [known.records[i] for i in picked], known)
    targets, order, count = targets[picked], known.after_S[picked], len(picked)
    trees, spread, doubt = np.zeros(len(pool)), np.zeros(len(pool)), np.zeros(count)
    if count > FEW:
        forest = grown(features[:count], targets, features[count:], seed)
        trees, spread, doubt = forest.mean_C, forest.spread_C, forest.doubt_S
        targets = targets - forest.seen_S
    kept = _kept(order)
    process = believed(
        features[np.concatenate([kept, np.arange(count, len(features))])],
        targets[kept],
        spread=_prior_spread(predictions, known),
        constant=known.predicted,
        doubt_S=doubt[kept],
    )
    variance = process.variance_C + spread**2 / process.scale
    return replace(process, mean_C=base + trees + process.mean_C, variance_C=variance)


def _features(
    pool: CandidateTable,
    predictions: PredictionTable | None,
    records: Sequence[Record],
    known: Costs,
) -> Floats:
    seen = CandidateTable.from_candidates([record.trial.candidate for record in records])
    knobs = knob_features(concat((seen, pool)))
    if not known.predicted:
        return knobs
    told = prediction_features([record.prediction for record in records], predictions)
    return np.column_stack([knobs, told])


def _kept(costs_S: Floats) -> Ints:
    """The latest and the best measurements, at most ``FEW``, in order."""
    count = len(costs_S)
    if count <= FEW:
        return np.arange(count)
    latest = np.arange(count - FEW // 2, count)
    best = np.argsort(costs_S[: count - FEW // 2], kind="stable")[: FEW // 2]
    return np.sort(np.concatenate([best, latest]))


def _prior_spread(predictions: PredictionTable | None, known: Costs) -> float:
    if not known.predicted or predictions is None:
        return _SPREAD_UNPREDICTED
    return predictions.band or _SPREAD_UNSAID


def _pair(record: Record, objective: Objective) -> tuple[float, float]:
    """Predicted and measured cost."""
    predicted_s = record.prediction.step_s if record.prediction else None
    samples = record.trial.candidate.layout.global_batch
    measured_s = record.measurement.mean_step_s if record.measurement else np.nan
    cost_s = objective.cost_s
    return cost_s(predicted_s or np.nan, samples), cost_s(measured_s, samples)
