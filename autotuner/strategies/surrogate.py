"""What is believed of each row's cost, from predictions and measurements.

Where all rows are predicted, the logarithm of measured over predicted cost is learned, so that
without a measurement the predictions stand as they are. A Gaussian process learns it where few
knobs vary, boosted trees where many do. One unit of a feature is one step of its knob: a factor of
2 of a size, another value of a choice.

Shapes: R = rows (measured ones, then those of the pool), F = features.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ..space import (
    ABSENT,
    LAYOUT_KNOBS,
    CandidateTable,
    CodedColumn,
    Floats,
    Ints,
    Objective,
    Prediction,
    PredictionTable,
    Record,
    concat,
)
from .belief import Belief
from .gaussian import fit_process
from .trees import fit_trees

_MOST_CHOICES = 8
"""Most values of one knob; beyond that, rows are distinguished by the other knobs alone."""
_SHARE_UNITS = 4.0
"""A part that takes a quarter of the step more is one unit away."""
_NOTHING = Prediction(peak_bytes=None, step_s=None, band=None, how="")
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


def knob_features(table: CandidateTable) -> Floats:
    """A column or more for each knob that varies."""
    found = [column for name, c in table.columns for column in _columns(name, c)]
    return _stack(found, len(table))


def prediction_features(
    seen: Sequence[Prediction | None], predictions: PredictionTable | None
) -> Floats:
    """Time, memory and parts of the measured rows, then of the pool; only what all rows have."""
    if predictions is None:
        return np.zeros((len(seen), 0))
    known = [prediction or _NOTHING for prediction in seen]
    step_s = _join([p.step_s for p in known], predictions.step_s_C)
    columns = [
        np.log2(step_s),
        np.log2(_join([p.peak_bytes for p in known], predictions.peak_bytes_C)),
    ]
    for name, seconds in predictions.parts:
        part_s = _join([dict(p.parts).get(name) for p in known], seconds)
        columns.append(_SHARE_UNITS * part_s / step_s)
    whole = [column for column in columns if np.isfinite(column).all() and np.ptp(column) > 0]
    return _stack(whole, len(step_s))


def _join(seen: Sequence[float | None], pool: Floats) -> Floats:
    return np.concatenate([np.array([np.nan if x is None else x for x in seen], float), pool])


def _columns(name: str, column: CodedColumn) -> list[Floats]:
    codes = column.codes
    if not len(codes) or codes.min() == codes.max():
        return []
    knob = LAYOUT_KNOBS.get(name)
    if knob is not None and knob.is_number:
        return [codes.astype(float) if knob.values else np.log2(codes)]
    sizes = _sizes(column)
    if sizes is not None:
        return [sizes[codes]]
    present = np.unique(codes)
    if len(present) > _MOST_CHOICES:
        return []
    return [np.sqrt(0.5) * (codes == code) for code in present]


def _sizes(column: CodedColumn) -> Floats | None:
    """Octaves of a column of plain numbers above 0, by code; None where it is of other values."""
    values = column.categories or ()
    if not values or (column.codes == ABSENT).any():
        return None
    if all(type(x) in (int, float) and x > 0 for x in values):  # type: ignore[operator]
        return np.asarray(np.log2(np.array(values, float)))
    return None


def _stack(columns: list[Floats], rows: int) -> Floats:
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0))
