"""Trials as if all were measured at one time, by what was measured again. Not: when to (anchors).

The machine's level is how much slower it is than when the search began, as a logarithm. Where a
configuration that was launched before takes another time beyond the noise of two launches, the
level has changed since. When, its trials tell: the change is put where they are off what was
predicted by the least. Without predictions it is put in the middle. So is the end of a load, which
may be over before the next repeat: then the level is 0 again.

A surprise whose repeat is off it, towards what was expected, is one of a single launch: the repeat
counts. One whose repeat is further off still is left as it is: of two launches neither is right.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from .noise import Noise, estimate_noise, measured_name, relative_error, t_quantile
from .trial import Measurement, Record

_FEWEST = 3
_NEAR = 48
"""Trials that a change is placed by, the last ones."""
_SURE = 0.975


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """What repeats say of a search.

    Attributes:
        records: its trials in order, their steps as they would be at level 0; the same objects
            where nothing is corrected.
        now: the machine's level at the end.
        most: the highest level less the lowest one.
        doubted: repeats that count instead of their trial.
    """

    records: tuple[Record, ...]
    doubted: tuple[Record, ...] = ()
    now: float = 0.0
    most: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Launch:
    """``start_s`` and ``at_s``, its middle, are seconds of launches since the search began."""

    record: Record
    start_s: float
    at_s: float
    log_s: float

    @property
    def name(self) -> str:
        return measured_name(self.record.trial.name)


_Step = tuple[float, float]
"""A time and the level from then on."""


def without_drift(records: Sequence[Record], repeats: Sequence[Record]) -> tuple[Record, ...]:
    """Trials of a search in order, as if measured at one time; repeats that agree change none."""
    return drift(records, repeats).records


def drift(records: Sequence[Record], repeats: Sequence[Record]) -> Drift:
    """The machine's level over a search, and its trials without it.

    What launches differ by without cause is taken from the trials alone: a machine that drifts
    would hide that by its repeats.
    """
    if not repeats:
        return Drift(records=tuple(records))
    noise = estimate_noise(records)
    launches = _launches(timeline(records, repeats))
    doubted = _refuted(launches, noise)
    steps = _levels(launches, noise)
    found = tuple(_corrected(launch, steps, doubted) for launch in launches if _is_trial(launch))
    levels = [0.0, *(level for _, level in steps)]
    return Drift(
        records=found,
        doubted=tuple(launch.record for launch in doubted.values()),
        now=levels[-1],
        most=max(levels) - min(levels),
    )


def timeline(records: Sequence[Record], repeats: Sequence[Record]) -> tuple[Record, ...]:
    """All launches of a search in the order of their starts."""
    told: list[Record] = []
    waiting = sorted(repeats, key=lambda record: record.trial.again)
    for count, record in enumerate(records, 1):
        told.append(record)
        told += [repeat for repeat in waiting if repeat.trial.again == count]
    return (*told, *(repeat for repeat in waiting if repeat.trial.again > len(records)))


def agree(one: Measurement, other: Measurement, noise: Noise) -> bool:
    """Whether two launches of a configuration differ by no more than launches do."""
    if min(one.mean_step_s, other.mean_step_s) <= 0.0:
        return True
    difference = math.log(other.mean_step_s / one.mean_step_s)
    return not _beyond(difference, 1, (one, other), noise)


def at_level(record: Record, level: float) -> Record:
    """The same at another level of the machine, from level 0."""
    measured = record.measurement
    if measured is None or level == 0.0:
        return record
    steps = tuple(math.exp(level) * step_s for step_s in measured.step_s)
    return replace(record, outcome=replace(measured, step_s=steps))


def _launches(records: Iterable[Record]) -> tuple[_Launch, ...]:
    """What was measured has the logarithm of its mean step, what failed NaN."""
    found, start_s = [], 0.0
    for record in records:
        measured = record.measurement
        timed = measured is not None and measured.mean_step_s > 0.0
        log_s = math.log(measured.mean_step_s) if measured and timed else math.nan
        at_s = start_s + record.wall_s / 2.0
        found.append(_Launch(record=record, start_s=start_s, at_s=at_s, log_s=log_s))
        start_s += record.wall_s
    return tuple(found)


def _is_trial(launch: _Launch) -> bool:
    return not launch.record.trial.again


def _pairs(launches: Sequence[_Launch]) -> list[tuple[_Launch, _Launch]]:
    """Trials that were surprises, each with the repeat that was to confirm it."""
    trials = {launch.name: launch for launch in launches if _is_trial(launch)}
    checks = [launch for launch in launches if launch.record.trial.doubted]
    return [(trials[again.name], again) for again in checks if again.name in trials]


def _refuted(launches: Sequence[_Launch], noise: Noise) -> dict[str, _Launch]:
    """Repeats that count instead of a trial, by its name."""
    return {
        one.name: again
        for one, again in _pairs(launches)
        if (before := one.record.measurement) and (after := again.record.measurement)
        if not agree(before, after, noise)
        if (again.log_s - one.log_s) * _unusual(one, launches) < 0.0
    }


def _unusual(launch: _Launch, launches: Sequence[_Launch]) -> float:
    """How much slower than other trials it is: beside predictions, else for each sample."""
    others = [x for x in launches if _is_trial(x) and x is not launch]
    for off in (_off, _log_sample_s):
        known = [value for x in others if not math.isnan(value := off(x))]
        if known and not math.isnan(own := off(launch)):
            return own - median(known)
    return 0.0


def _log_sample_s(launch: _Launch) -> float:
    measured = launch.record.measurement
    if measured is None or measured.samples_per_step <= 0:
        return math.nan
    return launch.log_s - math.log(measured.samples_per_step)


def _levels(launches: Sequence[_Launch], noise: Noise) -> tuple[_Step, ...]:
    checks = {id(again) for _, again in _pairs(launches)}
    refuted = _refuted(launches, noise)
    steps: tuple[_Step, ...] = ()
    known_s = 0.0
    for place, launch in enumerate(launches):
        if _is_trial(launch) or math.isnan(launch.log_s) or id(launch) in checks:
            continue
        before = [x for x in launches[:place] if x.name == launch.name and not math.isnan(x.log_s)]
        if launch.name in refuted:
            before = [x for x in before if not _is_trial(x)]
        if before:
            moved = _moved(launch, before, steps, noise)
            since_s = max(known_s, before[-1].at_s)
            if moved:
                level = _level(steps, launch.at_s) + moved
                steps = _with(launches[: place + 1], steps, since_s, level)
            known_s = launch.at_s
    last = _level(steps, math.inf)
    return _with(launches, steps, known_s, 0.0, may_stay=True) if last else steps


def _moved(
    launch: _Launch, before: Sequence[_Launch], steps: Sequence[_Step], noise: Noise
) -> float:
    """How much slower a repeat shows the machine to be, as far as noise does not explain it."""
    usual = fmean(x.log_s - _level(steps, x.at_s) for x in before)
    both = [r.measurement for r in (before[-1].record, launch.record) if r.measurement]
    return _beyond(launch.log_s - usual - _level(steps, launch.at_s), len(before), both, noise)


def _with(
    launches: Sequence[_Launch],
    steps: tuple[_Step, ...],
    since_s: float,
    level: float,
    *,
    may_stay: bool = False,
) -> tuple[_Step, ...]:
    """One step more after ``since_s``, where it explains best what trials are off by.

    ``may_stay``: there may be none.
    """
    trials = [launch for launch in launches if _is_trial(launch)]
    open_ = [launch.start_s for launch in trials if launch.at_s > since_s]
    if not open_:
        return steps if may_stay else (*steps, (launches[-1].start_s, level))
    places = [*open_, launches[-1].at_s + launches[-1].record.wall_s]
    found = [(*steps, (start_s, level)) for start_s in places]
    if may_stay:
        found[-1] = steps
    near = trials[-_NEAR:]
    off = [(x.at_s, _off(x)) for x in near if not math.isnan(_off(x))]
    if len(off) < _FEWEST:
        return steps if may_stay else found[len(open_) // 2]
    return min(reversed(found), key=lambda some: _misfit(off, some))


def _off(launch: _Launch) -> float:
    """Logarithm of what was measured over what was predicted; NaN where one is not known."""
    predicted = launch.record.prediction
    if predicted is None or not predicted.step_s:
        return math.nan
    return launch.log_s - math.log(predicted.step_s)


def _misfit(off: Sequence[tuple[float, float]], steps: Sequence[_Step]) -> float:
    """How far trials are off in different ways once levels are taken off."""
    left = [value - _level(steps, at_s) for at_s, value in off]
    usual = median(left)
    return sum(abs(value - usual) for value in left)


def _beyond(difference: float, count: int, last: Sequence[Measurement], noise: Noise) -> float:
    """What is left of a difference of a launch and the mean of ``count``; 0 within the noise.

    Source:
        the positive part of James and Stein 1961, "Estimation with Quadratic Loss", with the
        noise taken at its 95 % bound: of a large difference almost all is left.
    """
    errors = [relative_error(measurement, noise) for measurement in last]
    spread = math.hypot(*errors, math.sqrt(1.0 + 1.0 / count) * noise.between)
    limit = t_quantile(_SURE, noise.between_freedom) * spread
    return difference * (1.0 - (limit / difference) ** 2) if abs(difference) > limit else 0.0


def _level(steps: Sequence[_Step], at_s: float) -> float:
    return next((level for from_s, level in reversed(steps) if from_s <= at_s), 0.0)


def _corrected(launch: _Launch, steps: Sequence[_Step], doubted: dict[str, _Launch]) -> Record:
    """A trial at level 0; by its repeat where that counts."""
    counted = doubted.get(launch.name, launch)
    if math.isnan(launch.log_s):
        return launch.record
    return at_level(launch.record, counted.log_s - launch.log_s - _level(steps, counted.at_s))
