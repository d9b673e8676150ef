"""Paired measurements of a few configurations and what they say. Not: which are paired (finals).

The best of them, and the user's own, are launched in rounds; what is compared are two launches of
one round, so that what the machine did in that minute is in both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from .noise import SpeedUp, interval
from .objective import Objective
from .sequential import PairedEstimate, estimate
from .trial import Measurement, Record


@dataclass(slots=True)
class Arm:
    """A configuration in the rounds.

    Attributes:
        searched: its record in the search.
        rounds: record of each round, by the round's number.
        is_out: nothing more is measured of it.
        is_beaten: it is slower than another one beyond the noise.
    """

    searched: Record
    rounds: dict[int, Record] = field(default_factory=dict)
    is_out: bool = False
    is_beaten: bool = False

    @property
    def name(self) -> str:
        """Of its trial in the search."""
        return self.searched.trial.name

    @property
    def failed(self) -> Record | None:
        """The round that it failed in."""
        return next((record for record in self.rounds.values() if record.failure), None)

    def measured(self) -> Record | None:
        """The record of the search with all steps of all rounds; None where there are none."""
        made = [r.measurement for r in self.rounds.values() if r.measurement is not None]
        if not made:
            return None
        steps = tuple(step_s for measurement in made for step_s in measurement.step_s)
        return replace(self.searched, outcome=replace(made[-1], step_s=steps))

    def costs(self, objective: Objective) -> dict[int, float]:
        """Logarithm of what each round took, less is better."""
        made = {number: record.measurement for number, record in self.rounds.items()}
        return {n: log_cost(m, objective) for n, m in made.items() if m is not None}


def log_cost(measurement: Measurement, objective: Objective) -> float:
    """Logarithm of seconds to compare by, the mean of the steps' own."""
    logs = fmean(math.log(step_s) for step_s in measurement.step_s)
    return logs + math.log(objective.cost_s(1.0, measurement.samples_per_step))


def compare(slower: Arm, faster: Arm, objective: Objective, alpha: float = 0.05) -> PairedEstimate:
    """How much longer ``slower`` takes, over the rounds that both were in."""
    ours, theirs = slower.costs(objective), faster.costs(objective)
    return estimate([ours[n] - theirs[n] for n in sorted(ours) if n in theirs], alpha)


def paired_speed_up(before: Arm, after: Arm, objective: Objective) -> SpeedUp | None:
    """How much better ``after`` is, with the interval; None where they never met."""
    found = compare(before, after, objective)
    return interval(found.mean, found.width) if found.count else None


def leader(arms: Sequence[Arm], objective: Objective) -> Arm | None:
    """The best by what all of them were in; by the search where that is nothing."""
    costs = {arm.name: arm.costs(objective) for arm in arms}
    costs = {name: made for name, made in costs.items() if made}
    common = set.intersection(*map(set, costs.values())) if costs else set()
    if not common:
        return next((arm for arm in arms if not arm.failed), None)
    met = [arm for arm in arms if arm.name in costs and not arm.failed]
    return min(met, key=lambda arm: fmean(costs[arm.name][n] for n in common), default=None)
