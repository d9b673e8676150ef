"""The default strategy: predictions corrected by measurements, largest expected gain first.

Without a measurement rows are sorted by predicted cost and chance to fit, afterwards by expected
improvement (Mockus 1978) times the chance to fit, over the time of the trial; running trials count
as if they had ended as expected. A row over the memory limit by no more than the prediction's band
keeps a fair chance until a row of its structure ran out of memory. If most rows are not predicted,
each curve over the micro-batch offers the next value of its line search, the best curve first.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..space import CandidateTable, Floats, Ints, Objective, PredictionTable, Trial, concat
from .base import Ask
from .belief import (
    EVEN,
    MARGINAL,
    by_improvement,
    by_prediction,
    chance_to_fit,
    marginal_rows,
    trial_weight,
)
from .micro_batch_curve import MicroBatchCurves, cost_of
from .past import PastTime, as_records
from .surrogate import MOST_SEEN, Costs, costs, knob_features, learn_costs

_MOST = 8192
"""Rows that are looked at closely: the best predicted rows, or any without predictions."""
_MOST_PAIRS = 10_000_000
"""Most pairs compared of a row with and a row without a prediction."""


class ModelBased:
    """The default; see the module."""

    def __init__(
        self,
        objective: Objective,
        past: tuple[PastTime, ...] = (),
    ) -> None:
        self._objective, self._past = objective, past

    def with_past(self, past: tuple[PastTime, ...]) -> ModelBased:
        """The strategy with the measurements of earlier studies."""
        return ModelBased(self._objective, past)

    def propose(self, ask: Ask) -> tuple[int, ...]:
        ask = replace(ask, predictions=_fill_in(ask.pool, ask.predictions))
        odds = chance_to_fit(ask.predictions, ask.history)
        if odds is not None:
            doubtful = marginal_rows(ask.pool, ask.predictions, ask.history)
            odds = np.where(doubtful, np.maximum(odds, MARGINAL), odds)
        known = costs(ask.pool, ask.predictions, ask.history, self._objective)
        order = by_prediction(np.nan_to_num(known.guess_C, nan=np.inf), odds, ask.free_rows)
        if not known.predicted and len(order) > _MOST:
            order = ask.generator().permutation(order)
        close = order[:_MOST]
        if len(known.usable_S) and len(close):
            chances = np.ones(len(close)) if odds is None else odds[close]
            best = self._best(ask.take(close), known, chances)
            order = np.concatenate([close[best], order[_MOST:]])
        if not known.predicted:
            order = self._next_points_first(ask, order, odds)
        return tuple(order[: ask.count].tolist())

    def _next_points_first(self, ask: Ask, order: Ints, odds: Floats | None) -> Ints:
        """The rows, those first that the line searches take next."""
        close = order[:_MOST]
        seen = [record.trial.candidate for record in ask.history]
        running = [trial.candidate for trial in ask.pending]
        curves = MicroBatchCurves(ask.pool.take(close), self._objective, (*seen, *running))
        for row, record in enumerate(ask.history, len(close)):
            cost_s = cost_of(record, self._objective)
            if cost_s is not None:
                curves.assume(row, cost_s)
        busy = range(len(close) + len(seen), len(close) + len(seen) + len(running))
        likely = None if odds is None else odds[close] >= EVEN
        first = close[curves.next_rows(np.arange(len(close)), likely, busy)]
        return np.concatenate([first, order[~np.isin(order, first)]])

    def _best(self, ask: Ask, measured: Costs, odds: Floats) -> Ints:
        """All rows of a small pool, the most promising first."""
        rows = len(ask.pool)
        table, predictions = _with_pending(ask.pool, ask.predictions, ask.pending)
        known = measured.over(table, predictions, self._objective)
        if before := as_records(self._past, table, predictions, measured.records):
            known = costs(table, predictions, (*before, *measured.records), self._objective)
        now = learn_costs(table, predictions, known, ask.seed)
        for row in range(rows, len(table)):
            now = now.after(row)
        samples = table.global_batch_C if self._objective.per_sample else 1
        weight = trial_weight(now, samples, known.records[-MOST_SEEN:])[:rows] * odds
        best = float(measured.after_S.min())
        return by_improvement(now, best, weight, np.arange(rows), ask.count)


def _with_pending(
    pool: CandidateTable, predictions: PredictionTable | None, pending: tuple[Trial, ...]
) -> tuple[CandidateTable, PredictionTable | None]:
    """Running trials as additional rows, predicted as the most similar rows."""
    if not pending:
        return pool, predictions
    running = CandidateTable.from_candidates([trial.candidate for trial in pending])
    table = concat((pool, running))
    if predictions is None:
        return table, None
    knobs = knob_features(table)
    nearest = _nearest(knobs[: len(pool)], knobs[len(pool) :])
    return table, predictions.take([*range(len(pool)), *nearest])


def _fill_in(pool: CandidateTable, predictions: PredictionTable | None) -> PredictionTable | None:
    """Fill in a few missing times from the most similar rows."""
    if predictions is None:
        return None
    lacks_C = np.isnan(predictions.step_s_C)
    lacking, told = np.flatnonzero(lacks_C), np.flatnonzero(~lacks_C)
    if not 0 < len(lacking) < len(told) or len(lacking) * len(pool) > _MOST_PAIRS:
        return predictions
    knobs = knob_features(pool)
    taken = np.arange(len(pool))
    taken[lacking] = told[_nearest(knobs[told], knobs[lacking])]
    own = predictions.peak_bytes_C
    found = predictions.take(taken)
    return replace(found, peak_bytes_C=np.where(np.isnan(own), found.peak_bytes_C, own))


def _nearest(knobs_CF: Floats, others_RF: Floats) -> list[int]:
    """The most similar row for each of the others."""
    return [int(np.argmin(np.square(knobs_CF - row).sum(axis=1))) for row in others_RF]
