"""Trials as they are compared, by what was measured again.

A surprise whose repeat is off it, towards what was expected, is one of a single launch: the repeat
counts. One whose repeat is further off still is left as it is: of two launches neither is right.
That is decided once, by what was known when it was launched again. Everything else is compared as
it was measured.

Not: what follows for trials (drift), which are compared as they were measured: when between two
launches of the baseline the machine changed, predictions alone tell (``at_last_level``). That is
enough to choose what is measured again in the playoff, and for nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from ..space import Measurement, Record
from .noise import Noise, estimate_noise, measured_name, relative_error, t_quantile

_SURE = 0.975


def level_now(launches: Sequence[Record], noise: Noise) -> float:
    """Logarithm of what the last launch of a configuration takes beside the first one.

    0 within the noise of launches. ``launches`` are of one configuration, in order.
    """
    done = [one for r in launches if (one := r.measurement) and one.mean_step_s > 0.0]
    if len(done) < 2:
        return 0.0
    first, last = done[0], done[-1]
    difference = math.log(last.mean_step_s / first.mean_step_s)
    return beyond(difference, 1, (first, last), noise)


def beyond(difference: float, count: int, last: Sequence[Measurement], noise: Noise) -> float:
    """What is left of a difference of a launch and the mean of ``count``; 0 within the noise.

    Source:
        the positive part of James and Stein 1961, "Estimation with Quadratic Loss", with the
        noise taken at its 95 % bound: of a large difference almost all is left.
    """
    errors = [relative_error(measurement, noise) for measurement in last]
    spread = math.hypot(*errors, math.sqrt(1.0 + 1.0 / count) * noise.between)
    limit = t_quantile(_SURE, noise.between_freedom) * spread
    return difference * (1.0 - (limit / difference) ** 2) if abs(difference) > limit else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What repeats say of a search.

    Attributes:
        records: its trials in order; the same objects where no repeat counts instead.
        now: how much slower the machine is at the last repeat of the baseline, as a logarithm.
        doubted: trials as they were measured, each with the repeat that counts instead of it.
        failed: repeats that failed.
    """

    records: tuple[Record, ...]
    doubted: tuple[tuple[Record, Record], ...] = ()
    failed: tuple[Record, ...] = ()
    now: float = 0.0


def without_drift(records: Sequence[Record], repeats: Sequence[Record]) -> tuple[Record, ...]:
    """Trials of a search in order, as they are compared; repeats that agree change none."""
    return drift(records, repeats).records


def drift(records: Sequence[Record], repeats: Sequence[Record]) -> Drift:
    """What repeats say of the trials of a search and of the machine."""
    doubted = {
        measured_name(repeat.trial.name): repeat
        for repeat in repeats
        if repeat.trial.doubted and counts_instead(repeat, records)
    }
    trials = {record.trial.name: record for record in records if record.measurement}
    return Drift(
        records=tuple(in_place_of(one, doubted.get(one.trial.name)) for one in records),
        doubted=tuple((trials[name], repeat) for name, repeat in doubted.items()),
        failed=tuple(repeat for repeat in repeats if repeat.failure),
        now=machine_level(records, repeats),
    )


def machine_level(records: Sequence[Record], repeats: Sequence[Record]) -> float:
    """How much slower the machine is at the last repeat of the baseline, as a logarithm."""
    again = [repeat for repeat in repeats if repeat.trial.number == 0]
    if not again:
        return 0.0
    own = [record for record in records if record.trial.number == 0]
    return level_now((*own, *again), estimate_noise(records[: again[-1].trial.again]))


def at_last_level(records: Sequence[Record], repeats: Sequence[Record]) -> tuple[Record, ...]:
    """Trials in order as they would be measured at the last launch of the baseline.

    Where the baseline took longer before, or less, a trial of that time has the level of the
    launch of the baseline that it is nearer to, by what was measured over what was predicted.
    """
    own = [one for one in (*records, *repeats) if one.trial.number == 0 and one.measurement]
    noise = estimate_noise(records)
    levels = [level_now((before, own[-1]), noise) for before in own[:-1]]
    changed = max((place for place, level in enumerate(levels) if level), default=None)
    if changed is None:
        return tuple(records)
    level, until = levels[changed], own[changed + 1].trial.again
    then, now = _log_off(own[changed], own[0]), _log_off(own[-1], own[0])
    return tuple(
        at_level(one, level) if _is_nearer(_log_off(one), then, now) else one
        for one in records[:until]
    ) + tuple(records[until:])


def _is_nearer(value: float, to: float, than: float) -> bool:
    """Whether a value is nearer to the first; not where it is not known."""
    return abs(value - to) < abs(value - than)


def counts_instead(repeat: Record, records: Sequence[Record]) -> bool:
    """Whether the repeat of a surprise counts instead of its trial, one of ``records``."""
    known = records[: repeat.trial.again]
    name = measured_name(repeat.trial.name)
    trial = next((record for record in reversed(known) if record.trial.name == name), None)
    before, after = trial.measurement if trial else None, repeat.measurement
    if trial is None or before is None or after is None:
        return False
    if agree(before, after, estimate_noise(known)):
        return False
    if trial.is_throttled:
        return after.mean_step_s < before.mean_step_s
    return (after.mean_step_s - before.mean_step_s) * _unusual(trial, known) < 0.0


def in_place_of(record: Record, repeat: Record | None) -> Record:
    """A trial with the time of the repeat that counts instead of it, if one does."""
    before, after = record.measurement, repeat.measurement if repeat else None
    if before is None or after is None:
        return record
    return at_level(record, math.log(after.mean_step_s / before.mean_step_s))


def agree(one: Measurement, other: Measurement, noise: Noise) -> bool:
    """Whether two launches of a configuration differ by no more than launches do."""
    if min(one.mean_step_s, other.mean_step_s) <= 0.0:
        return True
    difference = math.log(other.mean_step_s / one.mean_step_s)
    return not beyond(difference, 1, (one, other), noise)


def at_level(record: Record, level: float) -> Record:
    """A record at another level of the machine, from level 0."""
    measured = record.measurement
    if measured is None or level == 0.0:
        return record
    steps = tuple(math.exp(level) * step_s for step_s in measured.step_s)
    return replace(record, outcome=replace(measured, step_s=steps))


def _unusual(trial: Record, records: Sequence[Record]) -> float:
    """How much slower than other trials it is: beside predictions, else for each sample."""
    others = [one for one in records if one is not trial]
    for off in (_log_off, _log_sample_s):
        known = [value for one in others if not math.isnan(value := off(one))]
        if known and not math.isnan(own := off(trial)):
            return own - median(known)
    return 0.0


def _log_off(record: Record, trial: Record | None = None) -> float:
    """Logarithm of what was measured over what was predicted; NaN where one is not known.

    ``trial``: has the prediction of a repeat.
    """
    measured, predicted = record.measurement, (trial or record).prediction
    if measured is None or measured.mean_step_s <= 0.0 or not predicted or not predicted.step_s:
        return math.nan
    return math.log(measured.mean_step_s / predicted.step_s)


def _log_sample_s(record: Record) -> float:
    measured = record.measurement
    if measured is None or measured.mean_step_s <= 0.0 or measured.samples_per_step <= 0:
        return math.nan
    return math.log(measured.mean_step_s / measured.samples_per_step)
