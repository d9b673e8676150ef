"""Trials that are another than predictions and all other trials let expect. Not: what follows.

What may be expected is as in the bound (:mod:`.optimality_bound`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from itertools import islice

import numpy as np

from ..measurement import estimate_noise, t_quantile
from ..space import CandidateTable, Objective, Prediction, PredictionTable, Record
from ..strategies import MOST_SEEN, by_process, costs

CHANCE = 0.02
"""Probability that an ordinary trial counts as an outlier."""

_FEWEST = 2
"""Measured trials before anything can be expected; without predictions."""


def is_outlier(record: Record, others: Sequence[Record], objective: Objective) -> bool:
    """Whether a trial is beyond what predictions and other trials let expect, and would matter.

    A fast one does where it would be the best; a slow one where, as expected, it would have been
    as good as the best.
    """
    known = _latest(others)
    if record.measurement is None or not known:
        return False
    table = CandidateTable.from_candidates([record.trial.candidate])
    predictions = _table(record.prediction)
    found = costs(table, predictions, known, objective)
    if len(found.usable_S) < (1 if found.predicted else _FEWEST):
        return False
    expected = by_process(table, predictions, found)
    samples = record.trial.candidate.layout.global_batch
    cost = math.log(objective.cost_s(record.measurement.mean_step_s, samples))
    of_launches = math.sqrt(2.0) * estimate_noise(known).between
    spread = math.hypot(float(expected.spread_C[0]), of_launches)
    limit = t_quantile(1.0 - CHANCE / 2.0, expected.freedom)
    off, best = cost - float(expected.mean_C[0]), float(found.after_S.min())
    if abs(off) <= limit * spread:
        return False
    return cost < best if off < 0.0 else cost - off <= best + of_launches


def most_off(
    records: Sequence[Record], objective: Objective, but: Collection[str]
) -> Record | None:
    """The trial that was slowest beside its prediction, and would be the best were it as usual.

    None where there is no such trial but those of the names ``but``, or some were not predicted.
    """
    known = _latest(records)
    if len(known) < _FEWEST:
        return None
    table = CandidateTable.from_candidates([known[0].trial.candidate])
    found = costs(table, None, known, objective)
    off_S = found.after_S - found.before_S
    off_S -= np.median(off_S)
    would_S = found.after_S - off_S < found.after_S.min()
    fresh_S = np.array([record.trial.name not in but for record in known])
    off_S = np.where(would_S & fresh_S, off_S, -np.inf)
    return known[int(off_S.argmax())] if np.isfinite(off_S.max()) else None


def _latest(records: Sequence[Record]) -> list[Record]:
    """The last trials that were measured, in order."""
    found = (one for one in reversed(records) if one.measurement)
    return [*islice(found, MOST_SEEN)][::-1]


def _table(prediction: Prediction | None) -> PredictionTable | None:
    if prediction is None or prediction.step_s is None:
        return None
    peak = np.nan if prediction.peak_bytes is None else float(prediction.peak_bytes)
    return PredictionTable(
        peak_bytes_C=np.array([peak]),
        step_s_C=np.array([prediction.step_s]),
        band=prediction.band,
        how=prediction.how,
        parts=tuple((name, np.array([seconds])) for name, seconds in prediction.parts),
    )
