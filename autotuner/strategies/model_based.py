"""Ranks by what boosted trees learned of measured cost. Not: a model of memory."""

from __future__ import annotations

import numpy as np

from ..objective import Objective
from ..table import CandidateTable, Floats, PredictionTable
from ..trial import Record, Trial
from .base import free_rows
from .trees import learn

_ENOUGH = 3
"""With fewer measurements the predictions alone rank the pool."""


class ModelBased:
    """Learns the factor from predicted to measured cost, and ranks by the product.

    Where any prediction is missing it learns the cost itself. Rows that tie go by prediction,
    then by order.
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
        measured = [record for record in history if record.measurement]
        predicted = self._predicted(pool, predictions)
        cost = np.zeros(len(pool))
        if len(measured) >= _ENOUGH:
            before, after = np.log([self._costs_s(record) for record in measured]).T
            trusted = not np.isnan(predicted).any() and not np.isnan(before).any()
            seen = CandidateTable.from_candidates([record.trial.candidate for record in measured])
            cost = learn(seen, after - before if trusted else after, pool, seed)
            cost += predicted if trusted else 0.0
        free = free_rows(pool, pending)
        best_first = np.lexsort((free, predicted[free], cost[free]))
        return tuple(free[best_first][:count].tolist())

    def _predicted(self, pool: CandidateTable, predictions: PredictionTable | None) -> Floats:
        """Logarithms of predicted costs; NaN where unknown."""
        if predictions is None:
            return np.full(len(pool), np.nan)
        samples = pool.global_batch_C if self._objective.per_sample else 1
        return np.asarray(np.log(predictions.step_s_C / samples), np.float64)

    def _costs_s(self, record: Record) -> tuple[float, float]:
        """Predicted and measured cost."""
        predicted_s = record.prediction.step_s if record.prediction else None
        samples = record.trial.candidate.layout.global_batch
        measured_s = record.measurement.mean_step_s if record.measurement else np.nan
        cost_s = self._objective.cost_s
        return cost_s(predicted_s or np.nan, samples), cost_s(measured_s, samples)
