"""A regression over knobs by boosted trees. Not: what is regressed (model_based)."""

from __future__ import annotations

import numpy as np

from ..table import CandidateTable, Column, Floats, concat

_ROUNDS = 30
_SETTINGS = {
    "objective": "reg:squarederror",
    "max_depth": 3,
    "eta": 0.3,
    "lambda": 0.1,
    "nthread": 1,
    "verbosity": 0,
}


def learn(seen: CandidateTable, targets: Floats, pool: CandidateTable, seed: int) -> Floats:
    """Expected targets of the pool's rows, from those of rows that were seen."""
    import xgboost  # half a second that only this strategy pays

    features = _features(concat((seen, pool)))
    # One thread also here: starting more takes a hundred times as long as the work.
    data = xgboost.DMatrix(features[: len(seen)], label=targets, nthread=1)
    trees = xgboost.train({**_SETTINGS, "seed": seed}, data, num_boost_round=_ROUNDS)
    rows = xgboost.DMatrix(features[len(seen) :], nthread=1)
    return np.asarray(trees.predict(rows), np.float64)


def _features(table: CandidateTable) -> Floats:
    """A column of numbers for each knob: its value where that is one, else its code."""
    return np.stack([_numbers(column) for _, column in table.columns], axis=1)


def _numbers(column: Column) -> Floats:
    known = column.categories
    if known is None or not all(isinstance(value, (int, float)) for value in known):
        return column.codes.astype(np.float64)
    return np.array([*known, np.nan], np.float64)[column.codes]
