"""Trials that a search launches again: a surprising best once more, and the baseline at its end.

A trial that is the best, or was expected to be, and is far from the time expected by predictions
and other trials, is launched once more before it counts; so is a trial whose GPU was throttled. If
the repeat contradicts the trial beyond noise, it counts instead. When a search ends, the baseline
is launched once more unless it just was, which shows whether the machine has changed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..measurement import (
    AGAIN_SUFFIX,
    FEWEST_TIMED,
    Noise,
    estimate_noise,
    measured_name,
    relative_error,
    t_quantile,
)
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

CHANCE = 0.02
"""Probability that an ordinary trial counts as a surprise."""
_DEARER = 2.0
"""Largest cost of the closing repeat, in mean trials."""
_STALE = 3
"""Number of trials since the last launch of the baseline from which it is repeated."""
_FEWEST = 2
"""Measured trials before anything can be expected, without predictions."""
_SURE = 0.975


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Findings from the repeats of a search.

    Attributes:
        records: its trials in order, with the times of repeats that count instead.
        now: slowdown of the machine at the last repeat of the baseline, as a logarithm; 0 within
            the noise of launches.
        doubted: trials as they were measured, each with the repeat that counts instead.
        failed: repeats that failed.
    """

    records: tuple[Record, ...]
    doubted: tuple[tuple[Record, Record], ...] = ()
    failed: tuple[Record, ...] = ()
    now: float = 0.0


def drift(records: Sequence[Record], repeats: Sequence[Record]) -> Drift:
    """Findings from these repeats on the trials of a search and on the machine."""
    trials = {record.trial.name: record for record in records if record.measurement}
    doubted = {
        name: (trials[name], repeat)
        for repeat in repeats
        if (name := measured_name(repeat.trial.name)) in trials
        and counts_instead(repeat, trials[name], estimate_noise(records[: repeat.trial.again]))
    }
    return Drift(
        records=tuple(
            in_place_of(record, doubted[record.trial.name][1])
            if record.trial.name in doubted
            else record
            for record in records
        ),
        doubted=tuple(doubted.values()),
        failed=tuple(repeat for repeat in repeats if repeat.failure),
        now=machine_level(records, repeats),
    )


def counts_instead(repeat: Record, trial: Record, noise: Noise) -> bool:
    """True if a repeat replaces its surprising trial, because it contradicts the trial."""
    before, after = trial.measurement, repeat.measurement
    if not repeat.trial.doubted or before is None or after is None:
        return False
    change = _change(before, after, noise)
    return change < 0.0 if trial.is_throttled else change != 0.0


def in_place_of(record: Record, repeat: Record) -> Record:
    """A trial with the time of its repeat."""
    before, after = record.measurement, repeat.measurement
    if before is None or after is None:
        return record
    return at_level(record, math.log(after.mean_step_s / before.mean_step_s))


def at_level(record: Record, level: float) -> Record:
    """A record on a machine that is slower by ``level``, a logarithm."""
    measured = record.measurement
    if measured is None or level == 0.0:
        return record
    steps = tuple(math.exp(level) * step_s for step_s in measured.step_s)
    return replace(record, outcome=replace(measured, step_s=steps))


def machine_level(records: Sequence[Record], repeats: Sequence[Record]) -> float:
    """Slowdown of the machine at the last repeat of the baseline, as a logarithm."""
    own = [r.measurement for r in records if r.trial.number == 0 and r.measurement]
    again = [r for r in repeats if r.trial.number == 0 and r.measurement]
    if not own or not again or again[-1].measurement is None:
        return 0.0
    noise = estimate_noise(records[: again[-1].trial.again])
    return _change(own[0], again[-1].measurement, noise)


def at_last_level(records: Sequence[Record], repeats: Sequence[Record]) -> tuple[Record, ...]:
    """Trials in order as they would be measured at the last repeat of the baseline.

    If the machine has changed since, a trial belongs to the nearer of both levels, by its time
    over its prediction relative to the baseline's.
    """
    level = machine_level(records, repeats)
    own = next((_log_off(r) for r in records if r.trial.number == 0), math.nan)
    return tuple(
        at_level(record, level) if abs(off) < abs(off - level) else record
        for record in records
        for off in [_log_off(record) - own]
    )


def _log_off(record: Record) -> float:
    """Logarithm of the measured over the predicted time; NaN if one is not known."""
    made, predicted = record.measurement, record.prediction
    if made is None or made.mean_step_s <= 0.0 or not predicted or not predicted.step_s:
        return math.nan
    return math.log(made.mean_step_s / predicted.step_s)


def _change(before: Measurement, after: Measurement, noise: Noise) -> float:
    """Logarithm of the change between two launches of a configuration; 0 within the noise."""
    if min(before.mean_step_s, after.mean_step_s) <= 0.0:
        return 0.0
    change = math.log(after.mean_step_s / before.mean_step_s)
    errors = (relative_error(one, noise) for one in (before, after))
    spread = math.hypot(*errors, math.sqrt(2.0) * noise.between)
    return change if abs(change) > t_quantile(_SURE, noise.between_freedom) * spread else 0.0


class Repeats:
    """The launches to repeat; the same records lead to the same repeats."""

    def __init__(self, objective: Objective) -> None:
        self._objective = objective
        self._told: list[Record] = []
        self._surprise: Record | None = None

    @property
    def records(self) -> tuple[Record, ...]:
        """All repeats that have ended, in order."""
        return tuple(self._told)

    @property
    def is_in_doubt(self) -> bool:
        """True if a surprise waits for its repeat."""
        return self._surprise is not None

    def tell(self, record: Record, before: Sequence[Record]) -> None:
        """Take a trial, and all trials before it."""
        if record.trial.number == 0 or record.measurement is None or not record.wall_s:
            return
        if record.is_throttled or is_surprise(record, before, self._objective):
            self._surprise = self._surprise or record

    def tell_again(self, record: Record) -> None:
        """Take a repeat."""
        self._told.append(record)
        name = measured_name(record.trial.name)
        if self._surprise is not None and self._surprise.trial.name == name:
            self._surprise = None

    def due(self, trials: int) -> Trial | None:
        """The surprise, once more, after this many trials."""
        return self._again(self._surprise, trials, doubted=True) if self._surprise else None

    def closing(self, records: Sequence[Record]) -> Trial | None:
        """The baseline once more when the search would end; None if it failed or just ran."""
        own = next((r for r in records if r.trial.number == 0 and r.measurement), None)
        if own is None or own.measurement is None or not own.wall_s:
            return None
        spared = max(0, len(own.measurement.step_s) - FEWEST_TIMED)
        launch_s = own.wall_s - spared * own.measurement.mean_step_s
        again = [repeat for repeat in self._told if repeat.trial.number == 0]
        last = max((repeat.trial.again for repeat in again), default=records.index(own))
        failed = any(repeat.failure for repeat in again)
        cheap = launch_s * len(records) <= _DEARER * sum(record.wall_s for record in records)
        is_due = len(records) - last >= _STALE and cheap and not failed
        return self._again(own, len(records), doubted=False) if is_due else None

    def _again(self, record: Record, trials: int, *, doubted: bool) -> Trial:
        name = f"{record.trial.name}{AGAIN_SUFFIX}"
        attempt = 1 + sum(repeat.trial.name == name for repeat in self._told)
        return replace(record.trial, name=name, attempt=attempt, again=trials, doubted=doubted)


def is_surprise(record: Record, others: Sequence[Record], objective: Objective) -> bool:
    """True if a trial contradicts predictions and other trials, and may be the best.

    A fast trial counts if it would be the best, a slow trial if it was expected to be as good.
    """
    known = [one for one in others if one.measurement][-MOST_SEEN:]
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
