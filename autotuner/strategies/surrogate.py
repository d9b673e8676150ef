"""What is believed of each row's cost, from predictions and measurements.

Where all rows are predicted, the logarithm of measured over predicted cost is learned, so that
without a measurement the predictions stand as they are. A Gaussian process learns it where few
knobs vary, boosted trees where many do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ..space import CandidateTable, Floats, Ints, Objective, PredictionTable, Record, concat
from .belief import Belief
from .features import knob_features, prediction_features
from .gaussian import fit_process
from .trees import fit_trees

MOST_SEEN = 64
"""Measurements that are learned from; where there are more, the best and the latest. The time of a
proposal grows with their cube; no recorded search had as many."""
_FIT_EVERY = 32
"""Measurements from one fit of the trees to the next, from ``MOST_SEEN`` on. A study of 220 trials
found as much with 1, 16 and 32."""
_MANY_KNOBS = 6
"""Number of varying knobs from which trees learn: with eight they needed fewer trials than the
process, with up to five no more and no fewer (``benchmarks/results/search_models.md``)."""
_FOLLOWS = ("data_parallel", "accumulation")
"""Knobs that the others determine, batch and devices given."""
_SPREAD_UNPREDICTED = 0.5
_SPREAD_UNSAID = 0.2
"""Spread of the log cost where nothing is predicted, and of predictions without a band."""


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

    def over(
        self, pool: CandidateTable, predictions: PredictionTable | None, objective: Objective
    ) -> Costs:
        """The measurements beside the rows of another pool."""
        return replace(self, guess_C=_guess(pool, predictions, objective))


def costs(
    pool: CandidateTable,
    predictions: PredictionTable | None,
    history: Sequence[Record],
    objective: Objective,
) -> Costs:
    """Expected costs of a pool's rows, from predictions and measurements."""
    records = tuple(record for record in history if record.measurement)
    before_s = [(p.step_s if (p := record.prediction) else None) or np.nan for record in records]
    after_s = [m.mean_step_s for record in records if (m := record.measurement)]
    samples = [record.trial.candidate.layout.global_batch for record in records]
    samples_S = np.array(samples, float) if objective.per_sample else 1.0
    return Costs(
        guess_C=_guess(pool, predictions, objective),
        records=records,
        before_S=np.log(np.array(before_s, float) / samples_S),
        after_S=np.log(np.array(after_s, float) / samples_S),
    )


def _guess(
    pool: CandidateTable, predictions: PredictionTable | None, objective: Objective
) -> Floats:
    if predictions is None:
        return np.full(len(pool), np.nan)
    samples = pool.global_batch_C if objective.per_sample else 1
    return np.asarray(np.log(predictions.step_s_C / samples))


Model: TypeAlias = Callable[[CandidateTable, PredictionTable | None, Costs, int], Belief]
"""Logarithms of the costs of a pool's rows, by a model; the number is the study's seed."""


def by_process(
    pool: CandidateTable, predictions: PredictionTable | None, known: Costs, seed: int = 0
) -> Belief:
    """Logarithms of the costs of the pool's rows; needs a usable measurement."""
    lesson = _lesson(pool, predictions, known)
    found = fit_process(
        lesson.features_RF,
        lesson.targets_S,
        spread=_prior_spread(predictions, known),
        constant=known.predicted,
    )
    return replace(found, mean_C=lesson.base_C + found.mean_C)


def by_trees(
    pool: CandidateTable, predictions: PredictionTable | None, known: Costs, seed: int
) -> Belief:
    """Logarithms of the costs by boosted trees, with the predictions as margin."""
    known = _at_last_fit(known)
    lesson = _lesson(pool, predictions, known)
    shared = float(np.mean(lesson.targets_S))
    base_R = np.concatenate([lesson.before_S, lesson.base_C])
    return fit_trees(
        lesson.features_RF,
        lesson.before_S + lesson.targets_S,
        margin_R=base_R + shared,
        spread=_prior_spread(predictions, known),
        seed=seed,
    )


def _at_last_fit(known: Costs) -> Costs:
    """Measurements up to the last fit, where there are more than are learned from."""
    usable = known.usable_S
    since = max(len(usable) - MOST_SEEN, 0) % _FIT_EVERY
    if not since:
        return known
    count = int(usable[-since])
    return replace(
        known,
        records=known.records[:count],
        before_S=known.before_S[:count],
        after_S=known.after_S[:count],
    )


def by_knobs(
    pool: CandidateTable, predictions: PredictionTable | None, known: Costs, seed: int
) -> Belief:
    """Logarithms of the costs by trees where many knobs vary, by the process where few do."""
    varying = sum(
        bool(len(column.codes) > 0 and np.ptp(column.codes) > 0)
        for name, column in pool.columns
        if name not in _FOLLOWS
    )
    model = by_trees if varying >= _MANY_KNOBS else by_process
    return model(pool, predictions, known, seed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Lesson:
    """Targets around ``before_S``, and features of these rows, then of the pool's."""

    features_RF: Floats
    before_S: Floats
    targets_S: Floats
    base_C: Floats


def _lesson(pool: CandidateTable, predictions: PredictionTable | None, known: Costs) -> _Lesson:
    picked = known.usable_S[_best_and_latest(known.after_S[known.usable_S])]
    level = 0.0 if known.predicted else float(known.after_S[known.usable_S].mean())
    before_S = known.before_S[picked] if known.predicted else np.full(len(picked), level)
    return _Lesson(
        features_RF=_features(pool, predictions, [known.records[i] for i in picked], known),
        before_S=before_S,
        targets_S=known.after_S[picked] - before_S,
        base_C=known.guess_C if known.predicted else np.full(len(pool), level),
    )


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
    predicted = prediction_features([record.prediction for record in records], predictions)
    return np.column_stack([knobs, predicted])


def _best_and_latest(costs_S: Floats) -> Ints:
    """The latest and the best measurements, at most ``MOST_SEEN``, in order."""
    count = len(costs_S)
    if count <= MOST_SEEN:
        return np.arange(count)
    latest = np.arange(count - MOST_SEEN // 2, count)
    best = np.argsort(costs_S[: count - MOST_SEEN // 2], kind="stable")[: MOST_SEEN // 2]
    return np.sort(np.concatenate([best, latest]))


def _prior_spread(predictions: PredictionTable | None, known: Costs) -> float:
    if not known.predicted or predictions is None:
        return _SPREAD_UNPREDICTED
    return predictions.band or _SPREAD_UNSAID
