"""Trials as if all were measured at one time, by what was measured again.

Not: when something is (anchors), nor how slow the machine was when (levels).

A surprise whose repeat is off it, towards what was expected, is one of a single launch: the repeat
counts. One whose repeat is further off still is left as it is: of two launches neither is right.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from .levels import Launch, Step, beyond, launches_of, level_at, levels
from .noise import Noise, estimate_noise
from .trial import Measurement, Record


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
    launches = launches_of(timeline(records, repeats))
    pairs = _pairs(launches)
    doubted = _refuted(pairs, launches, noise)
    steps = levels(launches, noise, {id(again) for _, again in pairs}, doubted)
    found = tuple(_corrected(launch, steps, doubted) for launch in launches if launch.is_trial)
    height = [0.0, *(level for _, level in steps)]
    return Drift(
        records=found,
        doubted=tuple(launch.record for launch in doubted.values()),
        now=height[-1],
        most=max(height) - min(height),
    )


def timeline(records: Sequence[Record], repeats: Sequence[Record]) -> tuple[Record, ...]:
    """All launches of a search in the order of their starts."""
    after: defaultdict[int, list[Record]] = defaultdict(list)
    for repeat in sorted(repeats, key=lambda record: record.trial.again):
        after[min(repeat.trial.again, len(records))].append(repeat)
    told = (
        one for count, record in enumerate(records, 1) for one in (record, *after.get(count, ()))
    )
    return (*after.get(0, ()), *told)


def agree(one: Measurement, other: Measurement, noise: Noise) -> bool:
    """Whether two launches of a configuration differ by no more than launches do."""
    if min(one.mean_step_s, other.mean_step_s) <= 0.0:
        return True
    difference = math.log(other.mean_step_s / one.mean_step_s)
    return not beyond(difference, 1, (one, other), noise)


def at_level(record: Record, level: float) -> Record:
    """The same at another level of the machine, from level 0."""
    measured = record.measurement
    if measured is None or level == 0.0:
        return record
    steps = tuple(math.exp(level) * step_s for step_s in measured.step_s)
    return replace(record, outcome=replace(measured, step_s=steps))


def _pairs(launches: Sequence[Launch]) -> list[tuple[Launch, Launch]]:
    """Trials that were surprises, each with the repeat that was to confirm it."""
    trials = {launch.name: launch for launch in launches if launch.is_trial}
    checks = [launch for launch in launches if launch.record.trial.doubted]
    return [(trials[again.name], again) for again in checks if again.name in trials]


def _refuted(
    pairs: Sequence[tuple[Launch, Launch]], launches: Sequence[Launch], noise: Noise
) -> dict[str, Launch]:
    """Repeats that count instead of a trial, by its name."""
    return {
        one.name: again
        for one, again in pairs
        if (before := one.record.measurement) and (after := again.record.measurement)
        if not agree(before, after, noise)
        if (again.log_s - one.log_s) * _unusual(one, launches) < 0.0
    }


def _unusual(launch: Launch, launches: Sequence[Launch]) -> float:
    """How much slower than other trials it is: beside predictions, else for each sample."""
    others = [x for x in launches if x.is_trial and x is not launch]
    for own, offs in (
        (launch.off, (x.off for x in others)),
        (_log_sample_s(launch), map(_log_sample_s, others)),
    ):
        known = [value for value in offs if not math.isnan(value)]
        if known and not math.isnan(own):
            return own - median(known)
    return 0.0


def _log_sample_s(launch: Launch) -> float:
    measured = launch.record.measurement
    if measured is None or measured.samples_per_step <= 0:
        return math.nan
    return launch.log_s - math.log(measured.samples_per_step)


def _corrected(launch: Launch, steps: Sequence[Step], doubted: dict[str, Launch]) -> Record:
    """A trial at level 0; by its repeat where that counts."""
    counted = doubted.get(launch.name, launch)
    if math.isnan(launch.log_s):
        return launch.record
    return at_level(launch.record, counted.log_s - launch.log_s - level_at(steps, counted.at_s))
