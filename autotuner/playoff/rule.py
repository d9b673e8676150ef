"""The rule that chooses the best configuration.

The finalists and the user's own configuration are launched in rounds. A configuration *wins* if a
t-test on the log ratios of its times to the user's own, valid after every round, shows a gain. Of
the winners that the rounds do not separate from the fastest, the smallest change is chosen.
Without a winner the user's own stays: as a *tie* if the rounds would have shown a gain of 10 %,
else the result is *inconclusive*. Without rounds, single trials are compared the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from statistics import fmean

from autoconf_launch.core import Candidate, FailureKind

from ..measurement import (
    CORRELATION,
    NORMAL,
    CostRatio,
    Effort,
    Noise,
    compare_trials,
    measured_name,
    of_student,
)
from ..space import Objective, Record

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
_DIGITS = 9
"""Digits of a cost that count; with equal costs the first contender leads."""


class TuneVerdict(str, Enum):
    """The outcome of the rule."""

    WINNER = "winner"
    TIE = "tie"
    INCONCLUSIVE = "inconclusive"


def estimate_difference(differences: Sequence[float], spread: float, freedom: float) -> CostRatio:
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
        return CostRatio()
    mean = fmean(differences)
    squares = freedom * spread**2 + sum((value - mean) ** 2 for value in differences)
    freedom += count - 1
    deviations = of_student(math.sqrt(_BOUNDARY + math.log1p(count)), freedom)
    error = math.sqrt(squares / freedom / count)
    return CostRatio(mean=mean, width=deviations * error, error=error, rounds=count)


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

    def costs(self, objective: Objective) -> dict[int, float]:
        """Logarithm of its mean cost in each round, as a training pays it with all stalls."""
        return {
            number: math.log(objective.cost_s(made.mean_step_s, made.samples_per_step))
            for number, record in self.rounds.items()
            if (made := record.measurement)
        }


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
        made = [number for one in self.contenders for number in one.costs(self.objective)]
        return sum(made.count(number) > 1 for number in set(made) if number < before)

    @property
    def met(self) -> tuple[Contender, ...]:
        """Contenders that were measured and did not fail."""
        return tuple(one for one in self.contenders if one.rounds and not one.failed)

    @property
    def leader(self) -> Contender | None:
        """The fastest over the rounds that all were in; before the first, the search's best."""
        costs = {one.name: one.costs(self.objective) for one in self.met}
        if not costs:
            return next((one for one in self.contenders if not one.failed), None)
        common = set.intersection(*map(set, costs.values()))

        def mean_cost(one: Contender) -> float:
            rounds = costs[one.name]
            return round(fmean(rounds[number] for number in sorted(common or rounds)), _DIGITS)

        return min(self.met, key=mean_cost)

    def contender(self, name: str) -> Contender | None:
        """The contender that was measured and did not fail, by its name in the search."""
        return next((one for one in self.met if one.name == name), None)

    def compare(self, slower: Contender, faster: Contender) -> CostRatio:
        """Cost of ``slower`` over ``faster``, from the rounds of both."""
        ours, theirs = slower.costs(self.objective), faster.costs(self.objective)
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


def _expected_spread(pairs: Sequence[tuple[Record, Record]], noise: Noise) -> tuple[float, float]:
    """Spread of the rounds' differences by the steps in them, and the rounds that this counts for.

    Steps in turn have the noise of neighbours in common and differ independently otherwise. Of
    launches that follow each other, neighbouring steps are alike (DESIGN, rule 11), so that more
    steps do not make the launches alike.
    """
    shares = [
        [a - b for a, b in zip(*map(_shares_of_turns, pair), strict=False)] for pair in pairs
    ]
    turns = min(map(len, shares), default=0)
    if turns < 2:
        return math.sqrt(2.0 * (noise.within**2 + LAUNCH**2)), FREEDOM
    freedom = sum(len(each) - 1 for each in shares) + _PRIOR_FREEDOM
    expected = 2.0 * (1.0 - CORRELATION) * noise.within**2
    squares = sum(share**2 for each in shares for share in each) + _PRIOR_FREEDOM * expected
    spread = math.sqrt(squares / freedom / turns + 2.0 * LAUNCH**2)
    return spread, min(freedom, FREEDOM)


def _shares_of_turns(record: Record) -> list[float]:
    """Time of each turn over the mean of its launch; empty without turns."""
    made, turn = record.measurement, record.trial.turn
    if made is None or turn is None:
        return []
    starts = range(0, len(made.step_s) - turn.length + 1, turn.length)
    times_s = [fmean(made.step_s[start : start + turn.length]) for start in starts]
    return [time_s / fmean(times_s) for time_s in times_s]


def rounds_of(
    records: Sequence[Record], launches: Sequence[Record], objective: Objective, noise: Noise
) -> Rounds:
    """The rounds that these launches made; ``records`` and ``noise`` are of the search."""
    names = {measured_name(launch.trial.name) for launch in launches}
    ranked = ranking(records, objective)
    rounds = Rounds([r for r in ranked if r.trial.name in names], objective, noise)
    for launch in launches:
        if not launch.failure or launch.failure.kind is not FailureKind.PREEMPTED:
            for one in rounds.contenders:
                if one.name == measured_name(launch.trial.name):
                    one.rounds[launch.trial.attempt] = launch
    return rounds


def ranking(records: Sequence[Record], objective: Objective) -> tuple[Record, ...]:
    """Measured candidates once each, the best first; the earlier one if two are equal."""
    latest = {r.trial.name: (v, r) for r in records if (v := objective.of(r)) is not None}
    ranked = sorted(latest.values(), key=lambda pair: pair[0], reverse=objective.higher_is_better)
    return tuple(record for _, record in ranked)


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
        self._usable = {r.trial.name: r for r in ranked if r.trial.name not in failed}
        self._own = next((r for r in self._usable.values() if r.trial.number == 0), None)

    def versus(self, slower: Record, faster: Record) -> CostRatio:
        """Cost of ``slower`` over ``faster`` by the rounds of both, else by one trial of each."""
        ours, theirs = (self.rounds.contender(r.trial.name) for r in (slower, faster))
        before, after = slower.measurement, faster.measurement
        if ours and theirs:
            return self.rounds.compare(ours, theirs)
        if ours or theirs or before is None or after is None:
            return CostRatio()
        found = compare_trials(before, after, self.rounds.objective, self.rounds.noise)
        return found or CostRatio()

    def is_gain(self, record: Record) -> bool:
        """True if it was shown to be faster than the user's own, or if the user's own failed."""
        if self._own is None:
            return True
        found = self.versus(self._own, record)
        return found.differs and found.mean > 0.0

    @property
    def order(self) -> tuple[Record, ...]:
        """Usable configurations, the one to train with first, each with all its rounds' steps."""
        played, leader = list[Record](), self.rounds.leader
        if leader is not None and self.rounds.count():
            met = sorted(self.rounds.met, key=lambda one: self.rounds.compare(one, leader).mean)
            played = [self._usable[one.name] for one in met]
        every = list(self._usable.values())
        shown = [record for record in played or every if self.is_gain(record)]
        own = [self._own] if self._own else []
        first = self._smallest_change(shown)
        names = dict.fromkeys(r.trial.name for r in (*first, *shown, *own, *played, *every))
        contenders = {one.name: one for one in self.rounds.met}
        return tuple(
            contenders[name].playoff_record() if name in contenders else self._usable[name]
            for name in names
        )

    def _smallest_change(self, shown: Sequence[Record]) -> list[Record]:
        """The smallest change to the user's own among the fastest of these; none without it."""
        if not shown or self._own is None:
            return []
        own, fastest = self._own.trial.candidate, shown[0]
        equal = [record for record in shown if self._is_equal(record, fastest)]
        return [min(equal, key=lambda record: _change(own, record.trial.candidate))]

    def _is_equal(self, record: Record, fastest: Record) -> bool:
        found = self.versus(record, fastest)
        return record is fastest or (not found.differs and abs(found.mean) <= self._equal)

    def rivals(self, winner: Record) -> tuple[tuple[Record, CostRatio], ...]:
        """Configurations that noise does not separate from the winner, the fastest first.

        If the winner was in rounds, only others from these rounds count.
        """
        met = {one.name for one in self.rounds.met}
        others = met if winner.trial.name in met else self._usable.keys()
        found = [
            (record, self.versus(record, winner))
            for record in self._usable.values()
            if record.trial.name in others - {winner.trial.name}
            and not (record is self._own and self.is_gain(winner))
        ]
        alike = [pair for pair in found if not pair[1].differs]
        return tuple(sorted(alike, key=lambda pair: pair[1].mean))

    def verdict(self, winner: Record) -> TuneVerdict:
        """The verdict: the winner is shown to be best, tied, or neither is known."""
        widths = [found.width for _, found in self.rivals(winner)]
        if not widths or (self._own is not None and self.is_gain(winner)):
            return TuneVerdict.WINNER
        return TuneVerdict.TIE if max(widths) <= TIE_WIDTH else TuneVerdict.INCONCLUSIVE


def _change(before: Candidate, after: Candidate) -> tuple[float, int]:
    """Ratio of the global batches, as a logarithm, and the number of knobs that change."""
    batches = after.layout.global_batch / before.layout.global_batch
    names = before.layout.__slots__
    moved = sum(getattr(before.layout, n) != getattr(after.layout, n) for n in names)
    extras = {*before.extras} ^ {*after.extras}
    return abs(math.log(batches)), moved + len({name for name, _ in extras})
