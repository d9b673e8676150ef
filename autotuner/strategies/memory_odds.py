"""The chance that a candidate fits, corrected by what was measured. Not: the memory model.

Logarithms of true over predicted peaks are normal around a common one, which is learned: a
measured peak says what it is, a trial that ran or ran out of memory on which side of the limit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..dominance import is_out_of_memory
from ..normal import chance_below
from ..table import Floats, PredictionTable
from ..trial import FailedTrial, Record

_COMMON = 0.1
_OWN = 0.06
"""Spreads of the common correction and of a row's own around it; together a band of about 12 %,
which is what the memory models reach on models that they were not fitted on."""
_GRID = np.linspace(-5 * _COMMON, 5 * _COMMON, 101)
_ODDS = np.linspace(-1.0, 1.0, 401)


def chance_to_fit(predictions: PredictionTable | None, history: Sequence[Record]) -> Floats | None:
    """Of each row, between 0 and 1; None where no limit or no prediction is known."""
    limit_bytes = memory_limit_bytes(predictions, history)
    if predictions is None or limit_bytes is None:
        return None
    room = np.log(limit_bytes / predictions.peak_bytes_C)
    odds = chance_below((_ODDS[:, None] - _GRID) / _OWN) @ _correction(history, limit_bytes)
    found = np.interp(np.clip(room, -1.0, 1.0), _ODDS, odds)
    return np.asarray(np.where(np.isnan(room), 1.0, found))


def memory_limit_bytes(
    predictions: PredictionTable | None, history: Sequence[Record]
) -> float | None:
    """What a rank has: as trials found it, or as the planner was told."""
    for record in reversed(history):
        outcome = record.outcome
        if outcome.memory is not None and outcome.memory.limit_bytes:
            return float(outcome.memory.limit_bytes)
    return None if predictions is None else predictions.limit_bytes


def _correction(history: Sequence[Record], limit_bytes: float) -> Floats:
    """Chances of the values of the common correction."""
    weights = np.exp(-0.5 * (_GRID / _COMMON) ** 2)
    for record in history:
        if record.prediction is not None and record.prediction.peak_bytes:
            weights = weights * _likelihood(record, record.prediction.peak_bytes, limit_bytes)
            weights /= weights.sum()
    return np.asarray(weights / weights.sum())


def _likelihood(record: Record, predicted_bytes: float, limit_bytes: float) -> Floats:
    """Of the outcome, for each value of the common correction."""
    room = np.log(limit_bytes / predicted_bytes)
    ran = np.maximum(chance_below((room - _GRID) / _OWN), 1e-12)
    if is_out_of_memory(record):
        return np.asarray(np.maximum(1.0 - ran, 1e-12))
    if isinstance(record.outcome, FailedTrial):
        return np.ones_like(_GRID)
    memory = record.outcome.memory
    if memory is None or not memory.peak_bytes:
        return np.asarray(ran)
    away = (np.log(memory.peak_bytes / predicted_bytes) - _GRID) / _OWN
    return np.asarray(np.maximum(np.exp(-0.5 * away**2), 1e-12))
