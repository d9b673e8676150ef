"""The chance that a candidate fits, corrected by what was measured.

Logarithms of true over predicted peaks are normal around a common one, which is learned: a
measured peak says what it is, a trial that ran or ran out of memory on which side of the limit.
Shapes: R = records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from ..measurement import chance_below
from ..space import (
    UNCALIBRATED_MEMORY_BAND,
    Bools,
    CandidateTable,
    FailedTrial,
    Floats,
    PredictionTable,
    Record,
    is_out_of_memory,
)

_COMMON = 0.1
_OWN = 0.06
"""Spreads of the common correction and of a row's own around it; together a band of about 12 %,
which is what the memory models reach on models that they were not fitted on."""
MARGINAL = 0.2
"""Weight of the gain of a row that is over the limit by no more than the band."""
_LEAST = 1e-12
"""Chance of an outcome that cannot be."""
_LATEST = 128
"""Trials that are learned from."""
_GRID = np.linspace(-5 * _COMMON, 5 * _COMMON, 101)
_ODDS = np.linspace(-1.0, 1.0, 401)


def chance_to_fit(predictions: PredictionTable | None, history: Sequence[Record]) -> Floats | None:
    """Each row's chance to fit, 0 to 1; None where no limit or no prediction is known."""
    limit_bytes = memory_limit_bytes(predictions, history)
    if predictions is None or limit_bytes is None:
        return None
    room = np.log(limit_bytes / predictions.peak_bytes_C)
    odds = _chance_of_each() @ _correction(history, limit_bytes)
    found = np.interp(np.clip(room, -1.0, 1.0), _ODDS, odds)
    return np.asarray(np.where(np.isnan(room), 1.0, found))


@cache
def _chance_of_each() -> Floats:
    """Chance to fit with each room, for each value of the common correction."""
    return chance_below((_ODDS[:, None] - _GRID) / _OWN)


def marginal_rows(
    table: CandidateTable, predictions: PredictionTable | None, history: Sequence[Record]
) -> Bools:
    """Rows that may need too much by their prediction, and may as well fit within its band.

    One trial of a structure that ran out of memory closes all that are left of it, and all that
    need as much. Predictions count as larger where trials were seen to need more.
    """
    limit_bytes = memory_limit_bytes(predictions, history)
    if predictions is None or limit_bytes is None:
        return np.zeros(len(table), np.bool_)
    peaks_C = predictions.peak_bytes_C
    low_C = max([1.0, *_largest_error(history)]) * peaks_C * (1.0 - UNCALIBRATED_MEMORY_BAND)
    rows_C = (peaks_C > limit_bytes) & (low_C <= limit_bytes)
    for record in filter(is_out_of_memory, history):
        predicted = record.prediction.peak_bytes if record.prediction else None
        rows_C &= peaks_C < (predicted or np.inf)
        rows_C &= ~table.matches(record.trial.candidate, but=("micro_batch", "accumulation"))
    return np.asarray(rows_C, np.bool_)


def _largest_error(history: Sequence[Record]) -> list[float]:
    """Measured over predicted peak of the trial that was predicted to need most, if there is."""
    measured = _peaks(history).measured
    return [peak / predicted for predicted, peak in sorted(measured)[-1:]]


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
    peaks = _peaks(history)
    logs = -0.5 * (_GRID / _COMMON) ** 2
    for was_full, predicted in ((False, peaks.ran), (True, peaks.full)):
        room_R = np.log(limit_bytes / np.array(predicted, np.float64))
        fits = chance_below((room_R[:, None] - _GRID) / _OWN)
        logs += np.log(np.maximum(1.0 - fits if was_full else fits, _LEAST)).sum(axis=0)
    measured_R2 = np.array(peaks.measured, np.float64).reshape(-1, 2)
    error_R = np.log(measured_R2[:, 1] / measured_R2[:, 0])
    away = (error_R[:, None] - _GRID) / _OWN
    logs += np.log(np.maximum(np.exp(-0.5 * away**2), _LEAST)).sum(axis=0)
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Peaks:
    """Predicted peaks of trials that ran and that ran out of memory; with what was measured."""

    ran: list[float] = field(default_factory=list)
    full: list[float] = field(default_factory=list)
    measured: list[tuple[float, float]] = field(default_factory=list)


def _peaks(history: Sequence[Record]) -> _Peaks:
    """What the latest trials say of memory; another failure says nothing."""
    found = _Peaks()
    for record in history[-_LATEST:]:
        predicted = record.prediction.peak_bytes if record.prediction else None
        if not predicted:
            continue
        memory = record.outcome.memory
        if is_out_of_memory(record):
            found.full.append(predicted)
        elif isinstance(record.outcome, FailedTrial):
            continue
        elif memory is None or not memory.peak_bytes:
            found.ran.append(predicted)
        else:
            found.measured.append((predicted, memory.peak_bytes))
    return found
