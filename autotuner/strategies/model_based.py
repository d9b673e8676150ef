"""Boosted trees on what was measured, over the predictions. Not: a model of memory."""

from __future__ import annotations

import numpy as np

from ..objective import Objective
from ..table import CandidateTable, Column, Floats, PredictionTable, concat
from ..trial import Record, Trial
from .base import free_rows

_ENOUGH = 3
"""With fewer measurements the predictions alone rank the pool."""
_ROUNDS = 30
_TREES = {
    "objective": "reg:squarederror",
    "max_depth": 3,
    "eta": 0.3,
    "lambda": 0.1,
    "nthread": 1,
    "verbosity": 0,
}


class ModelBased:
    """Ranks by learned cost: predicted seconds times a learned factor, or learned seconds alone.

    The factor is learned only where each measured trial and each row of the pool has a
    prediction. Rows that tie go by prediction, then by order.
    """

    def __init__(self, objective: Objective) -> None:
        self._objective = objective

    def propose(
        self,
        pool: CandidateTable,
        predictions: PredictionTable | None,
        history: tuple[Record, ...],
        pending: tuple[Trial, ...],
        count: int,
        seed: int,
    ) -> tuple[int, ...]:
        """See :class:`~.base.Strategy`."""
        measured = tuple(record for record in history if record.measurement)
        prior = self._predicted_log_cost(pool, predictions)
        learned = np.zeros(len(pool))
        if len(measured) >= _ENOUGH:
            offsets = self._prior_of(measured)
            trusted = not np.isnan(prior).any() and not np.isnan(offsets).any()
            targets = self._log_cost(measured) - (offsets if trusted else 0.0)
            learned = _learn(pool, measured, targets, seed) + (prior if trusted else 0.0)
        free = free_rows(pool, pending)
        best_first = np.lexsort((free, prior[free], learned[free]))
        return tuple(free[best_first][:count].tolist())

    def _predicted_log_cost(
        self, pool: CandidateTable, predictions: PredictionTable | None
    ) -> Floats:
        if predictions is None:
            return np.full(len(pool), np.nan)
        samples = pool.global_batch_C if self._objective.per_sample else 1
        return np.asarray(np.log(predictions.step_s_C / samples), np.float64)

    def _log_cost(self, measured: tuple[Record, ...]) -> Floats:
        found = [record.measurement for record in measured if record.measurement]
        costs = [self._objective.cost_s(m.mean_step_s, m.samples_per_step) for m in found]
        return np.log(costs)

    def _prior_of(self, measured: tuple[Record, ...]) -> Floats:
        costs = [
            self._objective.cost_s(
                (record.prediction.step_s if record.prediction else None) or np.nan,
                record.trial.candidate.layout.global_batch,
            )
            for record in measured
        ]
        return np.log(costs)


def _learn(
    pool: CandidateTable, measured: tuple[Record, ...], targets: Floats, seed: int
) -> Floats:
    """Targets of the pool's rows by trees over knobs."""
    import xgboost  # half a second that only this strategy pays

    seen = CandidateTable.from_candidates([record.trial.candidate for record in measured])
    features = _features(concat((seen, pool)))
    data = xgboost.DMatrix(features[: len(seen)], label=targets, nthread=1)
    trees = xgboost.train({**_TREES, "seed": seed}, data, num_boost_round=_ROUNDS)
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
