"""The rule that chooses the best configuration.

The finalists and the user's own configuration are launched in rounds. A configuration *wins* if a
t-test on the log ratios of its times to the user's own, valid at any number of checks, shows
a gain. Of the winners that the rounds do not separate from the fastest, the smallest change is
chosen. Without a winner the user's own stays: as a *tie* if the rounds would have shown a gain of
10 %, else the result is *inconclusive*. Without rounds, single trials are compared the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from statistics import fmean

import numpy as np

from autoconf_launch.core import Candidate, FailureKind

from ..measurement import (
    CORRELATION,
    NORMAL,
    Effort,
    Noise,
    expected_excess,
    measured_name,
    of_student,
    speed_up,
)
from ..space import Measurement, Objective, Record, is_better

ALPHA = 0.05
"""Probability that the interval of two configurations is wrong after any round."""
MOST_ROUNDS = 20
"""Largest number of rounds."""
_BOUNDARY = 5.33
"""Square of the boundary in standard errors, less its growth, at which the error is ``ALPHA``."""
TIE_WIDTH = math.log(1.1)
"""Half-width of an interval, as a logarithm, up to which a gain that was not shown is a tie."""
LAUNCH = 0.01
"""Spread of launches in turn beyond what their steps explain: 0 to 0.016 in the recordings
(``tests/data/step_noise.json``, ``benchmarks/landscapes``)."""
FREEDOM = 6.0
"""Rounds that the spread expected from the steps in them counts for at most."""
_PRIOR_FREEDOM = 3.0
"""Turns that the noise of steps in the search counts for."""
_WIDTH = 1.96
"""Half-width of an interval of single trials, in standard errors."""
_DIGITS = 9
"""Digits of a cost that count; with equal costs the first contender leads."""


class TuneVerdict(str, Enum):
    """The outcome of the rule."""

    WINNER = "winner"
    TIE = "tie"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedEstimate:
    """Ratio of the costs of two configurations, as a logarithm.

    Attributes:
        mean: mean over the rounds that both were in.
        width: half-width of its interval, which holds after every round.
        error: standard error of the mean.
        count: number of these rounds; 0 for a comparison of single trials.
    """

    mean: float
    width: float
    error: float
    count: int

    @property
    def differs(self) -> bool:
        """True if the interval excludes zero."""
        return abs(self.mean) > self.width

    @property
    def is_tie(self) -> bool:
        """True if a difference of 10 % would have been shown, and none was."""
        return not self.differs and self.width <= TIE_WIDTH

    @property
    def expected_gain(self) -> float:
        """Expected saving by taking the first in place of the second, a share; 0 or more."""
        if math.isinf(self.error):
            return math.inf
        return float(expected_excess(np.array([-self.mean]), np.array([self.error]))[0])


UNKNOWN = PairedEstimate(mean=0.0, width=math.inf, error=math.inf, count=0)
"""Result for configurations that were not in the same rounds."""


def estimate_difference(
    differences: Sequence[float], spread: float, freedom: float
) -> PairedEstimate:
    """Student's test on the differences so far; the interval holds after every round at once.

    Args:
        differences: logarithms of ratios, one for each round.
        spread: their expected standard deviation.
        freedom: number of rounds that this expectation counts for.

    Source:
        Robbins 1970, "Statistical Methods Related to the Law of the Iterated Logarithm", for the
        form of the boundary. A sum of normal differences is ever beyond it within ``MOST_ROUNDS``
        with probability ``ALPHA``; with an estimated spread, the same quantile of Student's
        distribution.
    """
    count = len(differences)
    if count == 0:
        return UNKNOWN
    mean = fmean(differences)
    squares = freedom * spread**2 + sum((value - mean) ** 2 for value in differences)
    freedom += count - 1
    deviations = of_student(math.sqrt(_BOUNDARY + math.log1p(count)), freedom)
    error = math.sqrt(squares / freedom / count)
    return PairedEstimate(mean=mean, width=deviations * error, error=error, count=count)


@dataclass(slots=True)
class Contender:
    """A configuration in the rounds.

    Attributes:
        searched: its record in the search.
        rounds: its record in each round, by the round's number.
        is_out: True if it is not measured any more.
    """

    searched: Record
    rounds: dict[int, Record] = field(default_factory=dict)
    is_out: bool = False

    @property
    def name(self) -> str:
        """Name of its trial in the search."""
        return self.searched.trial.name

    @property
    def is_own(self) -> bool:
        """True if it is the user's own configuration."""
        return self.searched.trial.number == 0

    @property
    def failed(self) -> Record | None:
        """Its launch that failed."""
        return next((record for record in self.rounds.values() if record.failure), None)

    def playoff_record(self) -> Record:
        """The record of the search with the steps of all its rounds, if there are any."""
        made = [record.measurement for record in self.rounds.values() if record.measurement]
        if not made:
            return self.searched
        steps = tuple(step_s for measurement in made for step_s in measurement.step_s)
        return replace(self.searched, outcome=replace(made[-1], step_s=steps))


class Rounds:
    """Contenders with the rounds so far, and the comparisons that these allow."""

    def __init__(self, chosen: Sequence[Record], objective: Objective, noise: Noise) -> None:
        """Start before the first round.

        ``chosen``: records of the search that take part, the best first.
        """
        self.contenders = tuple(map(Contender, chosen))
        self.objective, self.noise = objective, noise

    @property
    def own(self) -> Contender | None:
        """The user's own configuration."""
        return next((one for one in self.contenders if one.is_own), None)

    def count(self, before: float = math.inf) -> int:
        """Number of rounds before round ``before`` that compared at least two contenders."""
        made = [number for one in self.contenders for number in self._costs(one)]
        return sum(made.count(number) > 1 for number in set(made) if number < before)

    @property
    def leader(self) -> Contender | None:
        """The fastest over the rounds that all were in; before the first, the search's best."""
        left = [one for one in self.contenders if not one.failed]
        costs = {one.name: self._costs(one) for one in left}
        met = [one for one in left if costs[one.name]]
        if not met:
            return left[0] if left else None
        common = set.intersection(*(set(costs[one.name]) for one in met))

        def mean_cost(one: Contender) -> float:
            rounds = costs[one.name]
            return round(fmean(rounds[number] for number in sorted(common or rounds)), _DIGITS)

        return min(met, key=mean_cost)

    def contender(self, name: str) -> Contender | None:
        """The contender that was measured and did not fail, by its name in the search."""
        met = (one for one in self.contenders if one.rounds and not one.failed)
        return next((one for one in met if one.name == name), None)

    def compare(self, slower: Contender, faster: Contender) -> PairedEstimate:
        """Cost of ``slower`` over ``faster``, as a logarithm, from the rounds of both."""
        ours, theirs = self._costs(slower), self._costs(faster)
        common = [number for number in sorted(ours) if number in theirs]
        pairs = [(slower.rounds[number], faster.rounds[number]) for number in common]
        spread, freedom = _expected_spread(pairs, self.noise)
        return estimate_difference([ours[n] - theirs[n] for n in common], spread, freedom)

    def is_settled(self, one: Contender, effort: Effort) -> bool:
        """True if another round with the leader would change nothing for this contender."""
        leader = self.leader
        if leader is None or one is leader:
            return False
        found = self.compare(one, leader)
        if not one.is_own:
            return found.expected_gain < effort.worth
        return found.differs or self.compare(leader, one).expected_gain < effort.worth

    def _costs(self, one: Contender) -> dict[int, float]:
        made = ((number, record.measurement) for number, record in one.rounds.items())
        return {number: log_cost(found, self.objective) for number, found in made if found}


def log_cost(measurement: Measurement, objective: Objective) -> float:
    """Logarithm of the mean cost, as a training pays it with all stalls."""
    return math.log(objective.cost_s(measurement.mean_step_s, measurement.samples_per_step))


def _expected_spread(pairs: Sequence[tuple[Record, Record]], noise: Noise) -> tuple[float, float]:
    """Spread of the rounds' differences by the steps in them, and the rounds that this counts for.

    Steps in turn have the noise of neighbours in common and differ independently otherwise. Of
    launches that follow each other, neighbouring steps are alike (DESIGN, rule 11), so that more
    steps do not make the launches alike.
    """
    shares = [_in_turn(*pair) for pair in pairs]
    if not shares or min(map(len, shares)) < 2:
        return math.sqrt(2.0 * (noise.within**2 + LAUNCH**2)), FREEDOM
    freedom = sum(len(turns) - 1 for turns in shares) + _PRIOR_FREEDOM
    squares = sum(share**2 for turns in shares for share in turns)
    expected = 2.0 * (1.0 - CORRELATION) * noise.within**2
    of_turns = (squares + _PRIOR_FREEDOM * expected) / freedom
    spread = math.sqrt(of_turns / min(map(len, shares)) + 2.0 * LAUNCH**2)
    return spread, min(freedom, FREEDOM)


def _in_turn(one: Record, other: Record) -> tuple[float, ...]:
    """Differences of the shares that each turn has in its launch; none without turns."""
    launches = [(r.measurement, r.trial.turn) for r in (one, other) if r.measurement]
    made = [(done.step_s, turn.length) for done, turn in launches if turn]
    if len(made) < 2:
        return ()
    turns = min(len(step_s) // length for step_s, length in made)
    means = [
        [fmean(step_s[n * length : (n + 1) * length]) for n in range(turns)]
        for step_s, length in made
    ]
    return tuple(a / fmean(means[0]) - b / fmean(means[1]) for a, b in zip(*means, strict=True))


def rounds_of(
    records: Sequence[Record], launches: Sequence[Record], objective: Objective, noise: Noise
) -> Rounds:
    """The rounds that these launches made; ``records`` and ``noise`` are of the search."""
    names = {measured_name(launch.trial.name) for launch in launches}
    ranked = ranking(records, objective)
    rounds = Rounds([r for r in ranked if r.trial.name in names], objective, noise)
    for launch in launches:
        if not launch.failure or launch.failure.kind is not FailureKind.PREEMPTED:
            name = measured_name(launch.trial.name)
            for one in rounds.contenders:
                if one.name == name:
                    one.rounds[launch.trial.attempt] = launch
    return rounds


def ranking(records: Sequence[Record], objective: Objective) -> tuple[Record, ...]:
    """Measured candidates once each, the best first; the earlier one if two are equal."""
    latest = {r.trial.name: r for r in records if objective.of(r) is not None}
    ranked: list[Record] = []
    for record in latest.values():
        place = next((i for i, r in enumerate(ranked) if is_better(record, r, objective)), None)
        ranked.insert(len(ranked) if place is None else place, record)
    return tuple(ranked)


class Ruling:
    """The rule applied to the trials of a search and the rounds after it."""

    def __init__(self, records: Sequence[Record], rounds: Rounds, effort: Effort = NORMAL) -> None:
        """Compare.

        Args:
            records: trials of the search.
            rounds: the rounds after it, if there were any.
            effort: sets the difference below which configurations are equal.
        """
        self.rounds = rounds
        self._equal = effort.equal
        failed = {one.name for one in rounds.contenders if one.failed}
        ranked = ranking(records, rounds.objective)
        self._usable = [r for r in ranked if r.trial.name not in failed]
        self._own = next((r for r in self._usable if r.trial.number == 0), None)

    def versus(self, slower: Record, faster: Record) -> PairedEstimate:
        """Cost of ``slower`` over ``faster`` by the rounds of both, else by one trial of each."""
        ours, theirs = (self.rounds.contender(r.trial.name) for r in (slower, faster))
        if ours and theirs:
            return self.rounds.compare(ours, theirs)
        before, after = slower.measurement, faster.measurement
        objective, noise = self.rounds.objective, self.rounds.noise
        found = speed_up(before, after, objective, noise) if before and after else None
        if found is None or ours or theirs:
            return UNKNOWN
        mean = math.log(found.ratio)
        width = math.log(found.high) - mean
        return PairedEstimate(mean=mean, width=width, error=width / _WIDTH, count=0)

    def is_gain(self, record: Record) -> bool:
        """True if it was shown to be faster than the user's own, or if the user's own failed."""
        if self._own is None:
            return True
        found = self.versus(self._own, record)
        return found.differs and found.mean > 0.0

    @property
    def order(self) -> tuple[Record, ...]:
        """Usable configurations, the one to train with first, each with all its rounds' steps."""
        met = [one.name for one in self._by_rounds()]
        ranked = {record.trial.name: record for record in self._usable}
        played = [ranked[name] for name in met]
        rest = [record for record in self._usable if record.trial.name not in met]
        shown = [record for record in played or rest if self.is_gain(record)]
        own = [self._own] if self._own else []
        names = dict.fromkeys(
            r.trial.name for r in (*self._smallest_change_first(shown), *own, *played, *rest)
        )
        return tuple(self._with_rounds(ranked[name]) for name in names)

    def _by_rounds(self) -> list[Contender]:
        leader = self.rounds.leader
        met = [one for one in self.rounds.contenders if one.rounds and not one.failed]
        if leader is None or not self.rounds.count():
            return []
        return sorted(met, key=lambda one: self.rounds.compare(one, leader).mean)

    def _smallest_change_first(self, shown: list[Record]) -> list[Record]:
        """The smallest change among the fastest of these first, then the others."""
        if not shown or self._own is None:
            return shown
        equal = [record for record in shown if self._is_equal(record, shown[0])]
        own = self._own.trial.candidate
        first = min(equal, key=lambda record: _change(own, record.trial.candidate))
        return [first, *(record for record in shown if record is not first)]

    def _is_equal(self, record: Record, fastest: Record) -> bool:
        found = self.versus(record, fastest)
        return record is fastest or (not found.differs and abs(found.mean) <= self._equal)

    def _with_rounds(self, record: Record) -> Record:
        one = self.rounds.contender(record.trial.name)
        return one.playoff_record() if one else record

    def rivals(self, winner: Record) -> tuple[tuple[Record, PairedEstimate], ...]:
        """Configurations that noise does not separate from the winner, the fastest first.

        If the winner was in rounds, only others from these rounds count.
        """
        met = self.rounds.contender(winner.trial.name) is not None
        found = [
            (record, self.versus(record, winner))
            for record in self._usable
            if record.trial.name != winner.trial.name
            and (not met or self.rounds.contender(record.trial.name))
        ]
        alike = [(record, says) for record, says in found if not says.differs]
        is_shown = self.is_gain(winner)
        alike = [pair for pair in alike if not is_shown or pair[0] is not self._own]
        return tuple(sorted(alike, key=lambda pair: pair[1].mean))

    def verdict(self, winner: Record) -> TuneVerdict:
        """The verdict: the winner is shown to be best, tied, or neither is known."""
        rivals = [found for _, found in self.rivals(winner)]
        if not rivals or (self._own is not None and self.is_gain(winner)):
            return TuneVerdict.WINNER
        are_ties = all(found.is_tie for found in rivals)
        return TuneVerdict.TIE if are_ties else TuneVerdict.INCONCLUSIVE


def _change(before: Candidate, after: Candidate) -> tuple[float, int]:
    """Ratio of the global batches, as a logarithm, and the number of knobs that change."""
    batches = after.layout.global_batch / before.layout.global_batch
    names = before.layout.__slots__
    moved = sum(getattr(before.layout, n) != getattr(after.layout, n) for n in names)
    extras = {*before.extras} ^ {*after.extras}
    return abs(math.log(batches)), moved + len({name for name, _ in extras})
