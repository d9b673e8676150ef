"""Learned cost of each row: XGBoost on top of the predictions.

If all rows are predicted, the trees learn the logarithm of measured over predicted cost; otherwise
they learn the logarithm of the cost from the knobs. A few measurements move a row little: all rows
share their mean error, and the trees shrink the rest toward the prediction. Each member of the
ensemble leaves a different part of the measured rows out and weighs the others at random (the
Bayesian bootstrap, Rubin 1981): its error on the excluded rows shows how wrong the trees are, and
the spread of the members how sure they are of a row.
One unit of a feature is one step of its knob: a factor of 2 of a size, another value of a choice.

Shapes: S = measured rows, C = rows of the pool, R = both in this order, F = features,
M = members.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from xgboost import Booster, DMatrix

_MOST_MEMBERS = 12
_ROUNDS = 20
_TREES = {
    "objective": "reg:squarederror",
    "tree_method": "exact",
    "max_depth": 3,
    "min_child_weight": 0.1,
    "eta": 0.3,
    "lambda": 1.0,
    "nthread": 1,  # starting more takes a hundred times as long as the work
    "verbosity": 0,
    "seed": 0,
}
_PRIOR_FREEDOM = 4.0
"""Number of measurements that the expected spread of the predictions counts as."""
_OWN_SHARE = 0.6
"""Share of the predictions' variance that no other row shows. With 1 the searches of
``benchmarks/results/search_models.md`` stopped a trial later, and no sooner within 2 %."""
_MOST_CHOICES = 8
"""Most values of one knob; a knob with more is not used as a feature."""
_NOTHING = Prediction(peak_bytes=None, step_s=None, band=None, how="")
MOST_SEEN = 64
"""Measurements to learn from; if there are more, the best and the latest of them."""
_FIT_EVERY = 32
"""Measurements between two fits, from ``MOST_SEEN`` on. A study of 220 trials found as much with
1, 16 and 32."""
_SPREAD_UNPREDICTED = 0.5
_SPREAD_UNSAID = 0.2
"""Spread of the log cost without predictions, and of predictions without a band."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Costs:
    """Logarithms of predicted and measured cost; a missing prediction is NaN.

    Attributes:
        guess_C: predicted cost of the pool's rows.
        records: measured trials, in order.
        before_S: their predicted cost.
        after_S: their measured cost.
    """

    guess_C: Floats
    records: tuple[Record, ...]
    before_S: Floats
    after_S: Floats

    @property
    def predicted(self) -> bool:
        """True if every row of the pool has a prediction."""
        return bool(np.isfinite(self.guess_C).all())

    @property
    def usable_S(self) -> Ints:
        """Numbers of the measurements to learn from."""
        usable = np.isfinite(self.before_S) if self.predicted else np.isfinite(self.after_S)
        return np.flatnonzero(usable)

    def over(
        self, pool: CandidateTable, predictions: PredictionTable | None, objective: Objective
    ) -> Costs:
        """The same measurements with the rows of another pool."""
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


def learn_costs(
    pool: CandidateTable, predictions: PredictionTable | None, known: Costs, seed: int = 0
) -> Belief:
    """Logarithms of the costs of the pool's rows; needs a usable measurement."""
    known = _at_last_fit(known)
    lesson = _lesson(pool, predictions, known)
    count, base_R = len(lesson.errors_S), np.concatenate([lesson.before_S, known.guess_C])
    if not known.predicted:
        base_R = np.full(count + len(pool), lesson.before_S[0])
    rows_RF = np.column_stack([lesson.features_RF, base_R + lesson.errors_S.mean()])
    targets_S = lesson.before_S + lesson.errors_S
    members = _fit(np.column_stack([rows_RF[:count], targets_S]).tobytes(), count, seed)
    value_MR = members.predict(rows_RF)
    squares = _PRIOR_FREEDOM * _OWN_SHARE * _prior_spread(predictions, known) ** 2
    if count > 1:
        excluded_S = targets_S - value_MR[_groups(count), np.arange(count)]
        squares += float(excluded_S @ excluded_S)
    between_C = value_MR.var(axis=0, ddof=min(count - 1, 1))[count:]
    return Belief(
        mean_C=value_MR.mean(axis=0)[count:],
        variance_C=squares / (_PRIOR_FREEDOM + count) + between_C,
        freedom=_PRIOR_FREEDOM + count,
        features_CF=lesson.features_RF[count:],
    )


def _at_last_fit(known: Costs) -> Costs:
    """Measurements up to the last fit, once there are more than are learned from."""
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Lesson:
    """Features of all rows; expected costs of the measured ones and by how much they are off."""

    features_RF: Floats
    before_S: Floats
    errors_S: Floats


def _lesson(pool: CandidateTable, predictions: PredictionTable | None, known: Costs) -> _Lesson:
    picked = known.usable_S[_best_and_latest(known.after_S[known.usable_S])]
    level = np.full(len(picked), known.after_S[known.usable_S].mean())
    before_S = known.before_S[picked] if known.predicted else level
    return _Lesson(
        features_RF=_features(pool, predictions, [known.records[i] for i in picked], known),
        before_S=before_S,
        errors_S=known.after_S[picked] - before_S,
    )


def _features(
    pool: CandidateTable,
    predictions: PredictionTable | None,
    records: Sequence[Record],
    known: Costs,
) -> Floats:
    seen = CandidateTable.from_candidates([record.trial.candidate for record in records])
    knobs = knob_features(concat((seen, pool)))
    columns = [np.zeros(len(knobs)), knobs]  # XGBoost needs a column, even if nothing varies
    if known.predicted:
        columns.append(prediction_features([one.prediction for one in records], predictions))
    return np.column_stack(columns)


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
    """Time, memory and parts of the measured rows, then of the pool, if all rows have them."""
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
        columns.append(part_s / step_s)
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
    """Octaves of a column of plain numbers above 0, by code; None for other values."""
    values = column.categories or ()
    if not values or (column.codes == ABSENT).any():
        return None
    if all(type(x) in (int, float) and x > 0 for x in values):  # type: ignore[operator]
        return np.asarray(np.log2(np.array(values, float)))
    return None


def _stack(columns: list[Floats], rows: int) -> Floats:
    return np.stack(columns, axis=1) if columns else np.zeros((rows, 0))


def _groups(count: int) -> Ints:
    """Member that leaves each row out."""
    return np.arange(count) % _MOST_MEMBERS


@lru_cache(maxsize=4)  # a long study learns from the same rows for some trials
def _fit(lesson: bytes, count: int, seed: int) -> _Ensemble:
    """Members fitted to rows of features, margin and target."""
    import xgboost  # takes half a second

    rows = np.frombuffer(lesson).reshape(count, -1)
    groups, draw = _groups(count), np.random.default_rng((seed, count))
    members = []
    for member in range(min(count, _MOST_MEMBERS)):
        kept = rows[(groups != member) | (count == 1)]
        data = _matrix(kept[:, :-1], label=kept[:, -1], weight=draw.exponential(size=len(kept)))
        trees = xgboost.Booster(_TREES, [data])
        for done in range(_ROUNDS):  # xgboost.train takes twice as long for its callbacks
            trees.update(data, done)
        members.append(trees)
    return _Ensemble(members)


def _matrix(rows_RF: Floats, **targets: Floats) -> DMatrix:
    """Features, with the margin in the last column."""
    import xgboost

    return xgboost.DMatrix(rows_RF[:, :-1], base_margin=rows_RF[:, -1], nthread=1, **targets)


class _Ensemble:
    """Fitted members, with a cache of their predictions."""

    def __init__(self, members: list[Booster]) -> None:
        self._members = members
        self._place: dict[bytes, int] = {}
        self._value_MR = np.zeros((len(members), 0))

    def predict(self, rows_RF: Floats) -> Floats:
        """Prediction of each member for each row, (M, R)."""
        keys = rows_RF.view(f"V{rows_RF.strides[0]}")[:, 0].tolist()
        fresh = [i for i, place in enumerate(map(self._place.get, keys)) if place is None]
        if fresh:
            every = _matrix(rows_RF[fresh])
            value_MR = np.array([member.predict(every) for member in self._members], float)
            first = self._value_MR.shape[1]
            self._value_MR = np.concatenate([self._value_MR, value_MR], axis=1)
            self._place.update((keys[i], first + n) for n, i in enumerate(fresh))
        return self._value_MR.take([*map(self._place.__getitem__, keys)], axis=1)
