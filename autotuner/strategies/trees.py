"""Boosted trees over features, several of them. Not: what is regressed (surrogate).

Each member leaves some of the measured rows out, a different part each, and weighs the others at
random (the Bayesian bootstrap, Rubin 1981): what it says of those that it excluded tells how wrong
the trees are, and the members' spread how sure they are of a row.
Shapes: S = measured rows, C = rows of the pool, F = features, M = members.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..space import Floats, Ints
from .belief import OWN, PRIOR_FREEDOM, Belief

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
    value_MR = _predict(features_RF, targets_S, margin_R, np.random.default_rng((seed, count)))
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


def _predict(
    features_RF: Floats, targets_S: Floats, margin_R: Floats, draw: np.random.Generator
) -> Floats:
    """What each member predicts of all rows."""
    import xgboost  # half a second that only these trees pay

    count, groups = len(targets_S), _groups(len(targets_S))
    every = xgboost.DMatrix(features_RF, base_margin=margin_R, nthread=1)
    values = []
    for member in range(min(count, _MOST_MEMBERS)):
        kept = (groups != member) | (count == 1)
        data = xgboost.DMatrix(
            features_RF[:count][kept],
            label=targets_S[kept],
            base_margin=margin_R[:count][kept],
            weight=draw.exponential(size=int(kept.sum())),
            nthread=1,
        )
        trees = xgboost.train(_SETTINGS, data, num_boost_round=_ROUNDS)
        values.append(trees.predict(every))
    return np.array(values, float)
