"""The machine's level over a search, by what was launched again. Not: what follows for trials.

The level is how much slower the machine is than when the search began, as a logarithm. Where a
configuration that was launched before takes another time beyond the noise of two launches, the
level may have changed since. When, its trials tell: the change is put where they are off what was
predicted by the least. Without predictions it is put in the middle. So is the end of a load, which
may be over before the next repeat: then the level is 0 again.

Launches that differ without order look like many changes, so that one is believed only where it
explains what was launched again much better than noise does that is as large as they show it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from .noise import Noise, measured_name, relative_error, t_quantile
from .table import Floats, Ints
from .trial import Measurement, Record

_FEWEST = 3
_NEAR = 48
"""Trials that a change is placed by, the last ones."""
_SURE = 0.975
_STRONG = math.log(30.0)
"""Odds from which on a change is believed: "very strong evidence" in Jeffreys, "Theory of
Probability", appendix B. Where nothing changes and launches differ by 6, 8, 10 %, 0, 1, 3 of 25
searches believe one; 9, 15, 21 would if each repeat beyond the noise that was known before did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """``start_s`` and ``at_s``, its middle, are seconds of launches since the search began.

    ``log_s`` is the logarithm of the mean step, NaN where it failed; ``name`` that of the trial.
    """

    record: Record
    name: str
    start_s: float
    at_s: float
    log_s: float

    @property
    def is_trial(self) -> bool:
        """Whether it was no repeat."""
        return not self.record.trial.again

    @property
    def off(self) -> float:
        """Logarithm of what was measured over what was predicted; NaN where one is not known."""
        predicted = self.record.prediction
        if predicted is None or not predicted.step_s:
            return math.nan
        return self.log_s - math.log(predicted.step_s)


Step = tuple[float, float]
"""A time and the level from then on."""


def launches_of(records: Iterable[Record]) -> tuple[Launch, ...]:
    """Of records in the order of their starts."""
    found, start_s = [], 0.0
    for record in records:
        measured = record.measurement
        timed = measured is not None and measured.mean_step_s > 0.0
        found.append(
            Launch(
                record=record,
                name=measured_name(record.trial.name),
                start_s=start_s,
                at_s=start_s + record.wall_s / 2.0,
                log_s=math.log(measured.mean_step_s) if measured and timed else math.nan,
            )
        )
        start_s += record.wall_s
    return tuple(found)


def levels(
    launches: Sequence[Launch], noise: Noise, checks: Collection[int], refuted: Collection[str]
) -> tuple[Step, ...]:
    """When the level became another one, and which.

    Args:
        launches: of a search, in order.
        noise: as the trials alone tell it.
        checks: by id, launches that were to confirm a surprise; they show no change.
        refuted: names of trials that do not count.
    """
    steps: tuple[Step, ...] = ()
    known_s = 0.0
    earlier: defaultdict[str, list[Launch]] = defaultdict(list)
    for place, launch in enumerate(launches):
        if math.isnan(launch.log_s) or (launch.is_trial and launch.name in refuted):
            continue
        before = earlier[launch.name]
        if before and not launch.is_trial and id(launch) not in checks:
            moved = _moved(launch, before, steps, noise)
            since_s = max(known_s, before[-1].at_s)
            if moved:
                level = level_at(steps, launch.at_s) + moved
                steps = _with(launches[: place + 1], steps, since_s, level)
            known_s = launch.at_s
        before.append(launch)
    steps = _believed(steps, [some for some in earlier.values() if len(some) > 1], noise)
    last = level_at(steps, math.inf)
    return _with(launches, steps, known_s, 0.0, may_stay=True) if last else steps


def level_at(steps: Sequence[Step], at_s: float) -> float:
    """At a time."""
    return next((level for from_s, level in reversed(steps) if from_s <= at_s), 0.0)


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


def _moved(launch: Launch, before: Sequence[Launch], steps: Sequence[Step], noise: Noise) -> float:
    """How much slower a repeat shows the machine to be, as far as noise does not explain it."""
    usual = fmean(x.log_s - level_at(steps, x.at_s) for x in before)
    both = [r.measurement for r in (before[-1].record, launch.record) if r.measurement]
    return beyond(launch.log_s - usual - level_at(steps, launch.at_s), len(before), both, noise)


def _with(
    launches: Sequence[Launch],
    steps: tuple[Step, ...],
    since_s: float,
    level: float,
    *,
    may_stay: bool = False,
) -> tuple[Step, ...]:
    """One step more after ``since_s``, where it explains best what trials are off by.

    ``may_stay``: there may be none.
    """
    trials = [launch for launch in launches if launch.is_trial]
    open_ = [launch.start_s for launch in trials if launch.at_s > since_s]
    if not open_:
        return steps if may_stay else (*steps, (launches[-1].start_s, level))
    places = [*open_, launches[-1].start_s]
    found = [(*steps, (start_s, level)) for start_s in places]
    if may_stay:
        found[-1] = steps
    off = [(x.at_s, x.off) for x in trials[-_NEAR:] if not math.isnan(x.off)]
    if len(off) < _FEWEST:
        return steps if may_stay else found[len(open_) // 2]
    return min(reversed(found), key=lambda some: _misfit(off, some))


def _misfit(off: Sequence[tuple[float, float]], steps: Sequence[Step]) -> float:
    """How far trials are off in different ways once levels are taken off."""
    left = [value - level_at(steps, at_s) for at_s, value in off]
    usual = median(left)
    return sum(abs(value - usual) for value in left)


def _believed(
    steps: tuple[Step, ...], repeated: Sequence[Sequence[Launch]], noise: Noise
) -> tuple[Step, ...]:
    """Without those that noise explains as well; where one is none, the level before it stays."""
    if not steps:
        return ()
    evidence = _Evidence(repeated, noise)
    odds = evidence.log_odds(steps)
    while steps:
        fewer = max(_fewer(steps), key=evidence.log_odds)
        if evidence.log_odds(fewer) < odds:
            break
        steps, odds = fewer, evidence.log_odds(fewer)
    return steps


def _fewer(steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    """Without each one, and without each one and what follows it: a load that came and went."""
    for place in range(len(steps)):
        yield (*steps[:place], *steps[place + 1 :])
        yield (*steps[:place], *steps[place + 2 :])


class _Evidence:
    """What launches of configurations that were launched again say for steps.

    Shapes: L = those launches.
    """

    def __init__(self, repeated: Sequence[Sequence[Launch]], noise: Noise) -> None:
        launches = [launch for some in repeated for launch in some]
        self._at_s_L: Floats = np.array([launch.at_s for launch in launches])
        self._log_s_L: Floats = np.array([launch.log_s for launch in launches])
        sizes = [len(some) for some in repeated]
        self._group_L: Ints = np.repeat(np.arange(len(sizes)), sizes)
        self._size = np.array(sizes)
        done = [found for launch in launches if (found := launch.record.measurement)]
        of_steps = fmean(relative_error(one, noise) ** 2 for one in done)
        self._before = noise.between_freedom * (noise.between**2 + of_steps)
        self._freedom = noise.between_freedom + len(launches) - len(sizes)

    def log_odds(self, steps: Sequence[Step]) -> float:
        """Of steps, up to what is the same for all.

        How far launches are from the mean of their configuration is taken as normal, of a variance
        that is known as the noise is before anything was repeated.
        """
        from_s = np.array([-np.inf, *(from_s for from_s, _ in steps)])
        level = np.array([0.0, *(level for _, level in steps)])
        place_L = np.searchsorted(from_s, self._at_s_L, side="right") - 1
        left_L = self._log_s_L - level[place_L]
        usual = np.bincount(self._group_L, left_L) / self._size
        squares = float(np.sum((left_L - usual[self._group_L]) ** 2))
        return -self._freedom / 2.0 * math.log(self._before + squares) - _STRONG * len(steps)
