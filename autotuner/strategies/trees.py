"""Boosted trees over features, several of them. Not: what is regressed (surrogate).

Each member learns from rows drawn with replacement, so that those it did not draw tell how wrong
it is, and the members' spread how sure they are of a row.
Shapes: S = measured rows, C = rows of the pool, F = features, M = members.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..table import Floats

MEMBERS = 4
_ROUNDS = 20
_SETTINGS = {
    "objective": "reg:squarederror",
    "max_depth": 4,
    "eta": 0.3,
    "lambda": 1.0,
    "nthread": 1,
    "verbosity": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Grown:
    """What the trees say.

    Attributes:
        seen_S: of each measured row by the members that did not learn from it.
        doubt_S: standard deviation over members of each measured row.
        mean_C: of each row of the pool.
        spread_C: standard deviation over members.
    """

    seen_S: Floats
    doubt_S: Floats
    mean_C: Floats
    spread_C: Floats


def grown(seen_SF: Floats, targets_S: Floats, pool_CF: Floats, seed: int) -> Grown:
    """Learn targets of measured rows; needs some dozens of them to be of use."""
    import xgboost  # half a second that only this strategy pays

    draw = np.random.default_rng((seed, len(targets_S)))
    # One thread also here: starting more takes a hundred times as long as the work.
    seen, pool = (xgboost.DMatrix(rows, nthread=1) for rows in (seen_SF, pool_CF))
    of_seen, of_pool, left_out = [], [], []
    for member in range(MEMBERS):
        drawn = draw.integers(len(targets_S), size=len(targets_S))
        data = xgboost.DMatrix(seen_SF[drawn], label=targets_S[drawn], nthread=1)
        trees = xgboost.train({**_SETTINGS, "seed": member}, data, num_boost_round=_ROUNDS)
        of_seen.append(trees.predict(seen))
        of_pool.append(trees.predict(pool))
        left_out.append(~np.isin(np.arange(len(targets_S)), drawn))
    pool_MC, seen_MS = np.array(of_pool, float), np.array(of_seen, float)
    return Grown(
        seen_S=_left_out_mean(seen_MS, np.array(left_out)),
        doubt_S=seen_MS.std(axis=0, ddof=1),
        mean_C=pool_MC.mean(axis=0),
        spread_C=pool_MC.std(axis=0, ddof=1),
    )


def _left_out_mean(found_MS: Floats, left_out_MS: Floats) -> Floats:
    """Mean over the members that did not draw a row; over all where each of them did."""
    weights = np.where(left_out_MS.any(axis=0), left_out_MS, True).astype(float)
    return np.asarray((found_MS * weights).sum(axis=0) / weights.sum(axis=0))
