"""Boosted trees over features, several of them. Not: what is regressed (surrogate).

Each member leaves some of the measured rows out, a different part each, and weighs the others at
random (the Bayesian bootstrap, Rubin 1981): what it says of those that it excluded tells how wrong
the trees are, and the members' spread how sure they are of a row.
Shapes: S = measured rows, C = rows of the pool, F = features, M = members.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from ..space import Floats, Ints
from .belief import OWN, PRIOR_FREEDOM, Belief

if TYPE_CHECKING:
    from xgboost import Booster, DMatrix

_MOST_MEMBERS = 12
_ROUNDS = 20
_SETTINGS = {
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


@dataclass(frozen=True, slots=True)
class Members:
    """Covariance of rows: the features are each member's distance from their mean."""

    def between(self, a_RF: Floats, b_RF: Floats) -> Floats:
        """Covariance of each row of ``a`` with each of ``b``."""
        return np.asarray(a_RF @ b_RF.T)


def fit_trees(
    features_RF: Floats, targets_S: Floats, *, margin_R: Floats, spread: float, seed: int
) -> Belief:
    """What targets of the first rows say of the others.

    Args:
        features_RF: of the measured rows, then of the pool.
        targets_S: what was found for each measured row.
        margin_R: what each row counts as where the trees say nothing.
        spread: standard deviation to expect of a target around it.
        seed: of the members' weights.
    """
    count = len(targets_S)
    value_MR = _predict(features_RF, targets_S, margin_R, seed)
    groups = _groups(count)
    left_out_S = targets_S - value_MR[groups, np.arange(count)] if count > 1 else targets_S * 0.0
    squares = PRIOR_FREEDOM * spread**2 + float(left_out_S @ left_out_S)
    scale = squares / (PRIOR_FREEDOM + count) / OWN
    away_CM = (value_MR - value_MR.mean(axis=0)).T[count:] / np.sqrt(max(len(value_MR) - 1, 1))
    return Belief(
        mean_C=value_MR.mean(axis=0)[count:],
        variance_C=OWN + np.square(away_CM).sum(axis=1) / scale,
        scale=scale,
        freedom=PRIOR_FREEDOM + count,
        kernel=Members(),
        features_CF=away_CM / np.sqrt(scale),
        seen_CS=np.zeros((len(features_RF) - count, 0)),
    )


def _groups(count: int) -> Ints:
    """Which member leaves each row out."""
    return np.arange(count) % _MOST_MEMBERS


def _predict(features_RF: Floats, targets_S: Floats, margin_R: Floats, seed: int) -> Floats:
    """What each member predicts of all rows."""
    count = len(targets_S)
    rows_RF = np.column_stack([features_RF, margin_R])
    lesson = np.column_stack([rows_RF[:count], targets_S])
    return _fit(lesson.tobytes(), count, seed).predict(rows_RF)


@lru_cache(maxsize=4)  # a long study learns from the same rows for some trials
def _fit(lesson: bytes, count: int, seed: int) -> _Ensemble:
    """Members that learn from rows of features, margin and target."""
    import xgboost  # half a second that only these trees pay

    rows = np.frombuffer(lesson).reshape(count, -1)
    groups, draw = _groups(count), np.random.default_rng((seed, count))
    members = []
    for member in range(min(count, _MOST_MEMBERS)):
        kept = rows[(groups != member) | (count == 1)]
        data = _matrix(kept[:, :-1], label=kept[:, -1], weight=draw.exponential(size=len(kept)))
        trees = xgboost.Booster(_SETTINGS, [data])
        for done in range(_ROUNDS):  # xgboost.train takes twice as long for its callbacks
            trees.update(data, done)
        members.append(trees)
    return _Ensemble(members)


def _matrix(rows_RF: Floats, **targets: Floats) -> DMatrix:
    """Features, with the margin in the last column."""
    import xgboost

    return xgboost.DMatrix(rows_RF[:, :-1], base_margin=rows_RF[:, -1], nthread=1, **targets)


class _Ensemble:
    """Fitted members, and what they predict of each row that they were asked for."""

    def __init__(self, members: list[Booster]) -> None:
        self._members = members
        self._place: dict[bytes, int] = {}
        self._value_MR = np.zeros((len(members), 0))

    def predict(self, rows_RF: Floats) -> Floats:
        """What each member predicts."""
        keys = rows_RF.view(f"V{rows_RF.strides[0]}")[:, 0].tolist()
        fresh = [i for i, place in enumerate(map(self._place.get, keys)) if place is None]
        if fresh:
            every = _matrix(rows_RF[fresh])
            value_MR = np.array([member.predict(every) for member in self._members], float)
            first = self._value_MR.shape[1]
            self._value_MR = np.concatenate([self._value_MR, value_MR], axis=1)
            self._place.update((keys[i], first + n) for n, i in enumerate(fresh))
        return self._value_MR.take([*map(self._place.__getitem__, keys)], axis=1)
