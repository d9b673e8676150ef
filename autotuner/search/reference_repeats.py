"""What a search measures again, and when.

Two things are measured again. References: the user's own configuration and the best so far, the
one that was not launched for longer; as many as take a fixed share of the trials' time, so that
short searches have none. And outliers: a trial that is not what all other trials and
predictions let expect, and would change the choice, is launched once more before it counts; so is
a trial whose GPU was throttled.
Each trial is looked at when it comes back, and the one that is furthest off its prediction at
every later one, as it may be known only then. What may be expected is as in the bound
(:mod:`.optimality_bound`). When a search ends, the baseline is launched once
more unless it just was, so that a load that came or went since does not go unseen.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import islice
from statistics import median

import numpy as np

from ..measurement import AGAIN_SUFFIX, FEWEST_TIMED, estimate_noise, measured_name, t_quantile
from ..space import (
    CandidateTable,
    Measurement,
    Objective,
    Prediction,
    PredictionTable,
    Record,
    Trial,
)
from ..strategies import MOST_SEEN, costs, learn_costs

SHARE = 0.12
"""Share of the trials' time that repeats may take, to the nearest whole launch."""

_DEARER = 2.0
"""How many times the other one's cost a reference may have."""
_STALE = 3
"""Trials since the last launch of the baseline from which on it is out of date."""
_CREDIT = 1.0
"""Launches by which outliers may exceed that share for a while."""


class ReferenceRepeats:
    """Names what is to be launched again; told of the same records it does so again."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._told: list[Record] = []
        self._trials_s = self._repeats_s = 0.0
        self._counts: dict[str, int] = {}
        self._failed: set[str] = set()
        self._outlier: Record | None = None
        self._own: Record | None = None
        self._last: dict[str, int] = {}
        """How many trials had come back when each was launched last."""

    @property
    def repeats(self) -> tuple[Record, ...]:
        """Everything that was launched again, in order."""
        return tuple(self._told)

    @property
    def is_in_doubt(self) -> bool:
        """Whether something is not believed yet."""
        return self._outlier is not None

    def tell(self, record: Record, before: Sequence[Record]) -> None:
        """Take a trial, and all trials before it, without drift."""
        is_free = self._repeats_s <= self._room_s() + _CREDIT * _launch_s(record)
        self._trials_s += record.wall_s
        self._last.setdefault(record.trial.name, len(before))
        if record.trial.number == 0 and record.measurement:
            self._own = record
        if not is_free or self._outlier is not None or not record.wall_s:
            return
        trials = (*before, record)
        doubtful = (record, most_off(before, self._objective, self._counts))
        found = (one for one in doubtful if one is not None and one.trial.number)
        self._outlier = next((one for one in found if self._is_outlier(one, trials)), None)

    def tell_again(self, record: Record) -> None:
        """Take a repeat."""
        name = measured_name(record.trial.name)
        self._told.append(record)
        self._repeats_s += record.wall_s
        self._counts[name] = max(self._counts.get(name, 0), record.trial.attempt)
        self._last[name] = max(self._last.get(name, 0), record.trial.again)
        self._failed.update([name] if record.failure else [])
        if self._outlier is not None and self._outlier.trial.name == name:
            self._outlier = None

    def due(self, records: Sequence[Record], best: Record | None, *, beside: bool) -> Trial | None:
        """What is to be launched again now, if anything.

        Args:
            records: all trials, in order.
            best: the best of them.
            beside: trials run side by side, where the baseline had the machine to itself.
        """
        if self._outlier is not None:
            return replace(self._again(self._outlier, len(records)), doubted=True)
        chosen = self._reference(records, best, beside=beside)
        if chosen is None:
            return None
        launch_s = _launch_s(chosen, records)
        kept_s = 0.0 if beside or self._own is None else _launch_s(self._own, records)
        spent_s = self._repeats_s + kept_s  # for the one at the end
        is_due = spent_s + launch_s / 2.0 <= self._room_s() and launch_s > 0.0
        is_new = not self._told or self._told[-1].trial.again < len(records)
        return self._again(chosen, len(records)) if is_due and is_new else None

    def closing_repeat(self, records: Sequence[Record], *, beside: bool) -> Trial | None:
        """The baseline once more when the search would end, if that is due; see :meth:`due`."""
        own = self._own
        if beside or own is None or own.trial.name in self._failed:
            return None
        is_stale = len(records) - self._last[own.trial.name] >= _STALE
        is_cheap = _launch_s(own, records) * len(records) <= _DEARER * self._trials_s
        return self._again(own, len(records)) if is_stale and is_cheap and own.wall_s else None

    def _is_outlier(self, record: Record, trials: Sequence[Record]) -> bool:
        others = [other for other in trials if other is not record]
        if record.is_throttled and record.measurement:
            return record.trial.name not in self._counts
        return is_outlier(record, others, self._objective)

    def _room_s(self) -> float:
        return SHARE * self._trials_s

    def _reference(
        self, records: Sequence[Record], best: Record | None, *, beside: bool
    ) -> Record | None:
        """The one of baseline and best that was not launched for longer."""
        found = [
            record
            for record in (None if beside else self._own, best)
            if record is not None
            and record.trial.name not in self._failed
            and not (beside and record.trial.number == 0)
        ]
        costs_s = [_launch_s(record, records) for record in found]
        most_s = _DEARER * min(costs_s, default=0.0)
        cheap = [one for one, cost_s in zip(found, costs_s, strict=True) if cost_s <= most_s]
        return min(cheap, key=lambda record: self._last[record.trial.name], default=None)

    def _again(self, record: Record, count: int) -> Trial:
        name = record.trial.name
        attempt = self._counts.get(name, 0) + 1
        return replace(record.trial, name=f"{name}{AGAIN_SUFFIX}", attempt=attempt, again=count)


def _launch_s(record: Record, records: Sequence[Record] = ()) -> float:
    """What a short launch of it should take; by the others where its own time is not known.

    Nobody saw the end of a trial that was adopted.
    """
    measured = record.measurement
    if measured is None:
        return record.wall_s
    if not record.wall_s:
        starts_s = [
            _launch_s(one) - _timed_s(done)
            for one in records
            if one.wall_s and (done := one.measurement)
        ]
        return max(0.0, median(starts_s) + _timed_s(measured)) if starts_s else 0.0
    spared = max(0, len(measured.step_s) - FEWEST_TIMED)
    return max(0.0, record.wall_s - spared * measured.mean_step_s)


def _timed_s(measured: Measurement) -> float:
    """Seconds of the steps that a short launch times."""
    return min(len(measured.step_s), FEWEST_TIMED) * measured.mean_step_s


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
    expected = learn_costs(table, predictions, found)
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
