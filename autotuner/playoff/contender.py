"""Configurations of a search that take part in the playoff, and their paired measurements.

The best of them, and the user's own, are launched in rounds; what is compared are two launches of
one round, so that what the machine did in that minute is in both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from ..measurement import (
    FEWEST_TIMED,
    NORMAL,
    PRIOR,
    Effort,
    Expected,
    Noise,
    PairedEstimate,
    at_last_level,
    estimate_difference,
    expect_apart,
    expect_in_turn,
    expected_width,
    speed_up,
    without_wake_ups,
)
from ..space import Measurement, Objective, Record, is_better

MOST_BEHIND = 2.5
"""What took more than so many times as long as the best is not measured again to be sure."""
ALPHA = 0.05
"""Probability that any of the comparisons is ever wrong."""
TOGETHER = 0.8
"""Share of the free memory that configurations may use side by side."""
_DIGITS = 9
"""Digits of a cost that count; beyond them contenders are equal, and the first one is the best."""
_Z_95 = 1.645


@dataclass(slots=True)
class Contender:
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
        """Name of its trial in the search."""
        return self.searched.trial.name

    @property
    def failed(self) -> Record | None:
        """The round that it failed in."""
        return next((record for record in self.rounds.values() if record.failure), None)

    def playoff_record(self) -> Record | None:
        """The record of the search with all steps of all rounds; None where there are none."""
        made = [*self._measurements().values()]
        if not made:
            return None
        steps = tuple(step_s for measurement in made for step_s in measurement.step_s)
        return replace(self.searched, outcome=replace(made[-1], step_s=steps))

    def costs(self, objective: Objective) -> dict[int, float]:
        """Logarithm of what each round took, less is better."""
        return {number: log_cost(made, objective) for number, made in self._measurements().items()}

    def _measurements(self) -> dict[int, Measurement]:
        """What each round measured, but for steps at which the launch woke up."""
        made = ((n, r.measurement, r.trial.turn) for n, r in self.rounds.items())
        return {n: replace(m, step_s=without_wake_ups(m.step_s, turn)) for n, m, turn in made if m}


def log_cost(measurement: Measurement, objective: Objective) -> float:
    """Logarithm of seconds to compare by.

    Of the mean, as a training takes them: a mean of logarithms would forgive a configuration its
    stalls.
    """
    return math.log(objective.cost_s(measurement.mean_step_s, measurement.samples_per_step))


def compare(
    slower: Contender,
    faster: Contender,
    objective: Objective,
    *,
    noise: Noise = PRIOR,
    alpha: float = 0.05,
) -> PairedEstimate:
    """How much longer ``slower`` takes, over the rounds that both were in.

    Below zero where they are the other way round. ``noise`` is of single steps, for launches that
    followed each other; ``alpha`` the probability that the interval is ever wrong.
    """
    ours, theirs = slower.costs(objective), faster.costs(objective)
    common = [number for number in sorted(ours) if number in theirs]
    pairs = [(slower.rounds[number], faster.rounds[number]) for number in common]
    differences = [ours[number] - theirs[number] for number in common]
    return estimate_difference(differences, _expected_spread(pairs, noise), alpha)


def _expected_spread(pairs: Sequence[tuple[Record, Record]], noise: Noise) -> Expected:
    """What the steps of all pairs let expect of the spread between rounds."""
    apart = expect_apart(noise.within**2, noise.within_freedom)
    squares, freedom, steps = 0.0, 0, math.inf
    for one, other in pairs:
        shares = _in_turn(one, other)
        if len(shares) < 2:
            return apart
        squares += sum(share**2 for share in shares)
        freedom += len(shares) - 1
        steps = min(steps, len(shares))
    return expect_in_turn(squares / freedom, freedom, int(steps)) if freedom else apart


def _in_turn(one: Record, other: Record) -> tuple[float, ...]:
    """What each pair of turns adds to the logarithm of the ratio of the means, times their number.

    Their sum is zero, their spread that of a single pair; none where launches took no turns.
    """
    if one.measurement is None or other.measurement is None:
        return ()
    if one.trial.turn is None or other.trial.turn is None:
        return ()
    ours, theirs = one.measurement.step_s, other.measurement.step_s
    lengths = one.trial.turn.length, other.trial.turn.length
    turns = min(len(ours) // lengths[0], len(theirs) // lengths[1])
    pairs = zip(_shares(ours, lengths[0], turns), _shares(theirs, lengths[1], turns), strict=True)
    return tuple(a - b for a, b in pairs)


def _shares(step_s: Sequence[float], length: int, turns: int) -> tuple[float, ...]:
    """What so many turns of ``length`` steps took, as shares of their mean."""
    firsts = range(0, turns * length, length)
    skipped = min(1, length - 1)  # at which it woke up
    means = [fmean(step_s[first + skipped : first + length]) for first in firsts]
    return tuple(mean / fmean(means) for mean in means) if means else ()


def leader(contenders: Sequence[Contender], objective: Objective) -> Contender | None:
    """The best over the rounds that all were in; by the search where there are none."""
    known = [contender for contender in contenders if not contender.failed]
    costs = {contender.name: contender.costs(objective) for contender in known}
    met = [contender for contender in known if costs[contender.name]]
    if not met:
        return known[0] if known else None
    common = set.intersection(*(set(costs[contender.name]) for contender in met))

    def mean_cost(contender: Contender) -> float:
        rounds = costs[contender.name]
        mean = fmean(rounds[number] for number in sorted(common or rounds))
        return round(mean, _DIGITS)

    return min(met, key=mean_cost)


def deviations(
    contenders: Sequence[Contender], objective: Objective
) -> tuple[tuple[float, int], ...]:
    """How far the search was off what the rounds say of each, and how many steps it had."""
    pairs = [
        (contender.searched.measurement, contender.costs(objective)) for contender in contenders
    ]
    return tuple(
        (log_cost(measurement, objective) - fmean(costs.values()), len(measurement.step_s))
        for measurement, costs in pairs
        if measurement and costs
    )


def is_settled(
    found: PairedEstimate,
    *,
    is_baseline: bool,
    rounds: int,
    alpha: float,
    effort: Effort = NORMAL,
) -> bool:
    """Whether more rounds of an contender beside the leader would change nothing.

    Args:
        found: what the rounds so far say of the two.
        is_baseline: the contender is the user's own, whose distance is to be known as well.
        rounds: that there will be at most.
        alpha: probability that the interval is ever wrong.
        effort: has the widths that are narrow enough.
    """
    if found.differs:
        return not is_baseline or found.width <= effort.distance
    if found.width > effort.precision:
        return False
    if abs(found.mean) + found.width <= effort.equal:
        return True
    likely = abs(found.mean) + _Z_95 * found.spread / math.sqrt(found.count)
    return likely < expected_width(found, rounds, alpha)


def choose_contenders(
    records: Sequence[Record],
    objective: Objective,
    wanted: int,
    noise: Noise | None,
    repeats: Sequence[Record] = (),
) -> tuple[Record, ...]:
    """The best one, what noise does not distinguish from it, the runner-up and the baseline.

    Where ``repeats`` show that the machine was faster or slower for a time, the best by what
    trials would take now, beside the best as measured.

    The runner-up, too, unless it was much slower: under a load that comes and goes anything may
    have looked slow, so a baseline that was the best still meets it. Without ``noise`` all count
    as near that are not much slower than the best.
    """
    if wanted < 1:
        return ()
    measured = {record.trial.name: record for record in records}
    now = _select_promising(at_last_level(records, repeats), objective, wanted, noise)
    chosen = {record.trial.name: measured[record.trial.name] for record in now}
    best = {record.trial.name: record for record in ranking(records, objective)[:1]}
    return tuple({**chosen, **best}.values())


def _select_promising(
    records: Sequence[Record], objective: Objective, wanted: int, noise: Noise | None
) -> tuple[Record, ...]:
    ranked = ranking(records, objective)
    near = [
        record
        for place, record in enumerate(ranked)
        if (noise is not None and may_be_best(record, ranked[0], objective, noise))
        or ((place < 2 or noise is None) and _is_near(record, ranked[0], objective))
    ]
    baseline = [record for record in ranked if record.trial.number == 0]
    if near == baseline:
        near = list(ranked[:2])
    return (*near[:wanted], *baseline)


def _is_near(record: Record, best: Record, objective: Objective) -> bool:
    value, most = objective.of(record), objective.of(best)
    if not value or not most:
        return False
    return (most / value if objective.higher_is_better else value / most) <= MOST_BEHIND


def may_be_best(
    record: Record, best: Record, objective: Objective, noise: Noise, *, chance: float = 0.025
) -> bool:
    """Whether noise could explain, with this chance, that a trial looked slower than the best one.

    It could not where the trial was ended at once because it was slower beyond all noise.
    """
    if record.measurement is None or best.measurement is None:
        return False
    if len(record.measurement.step_s) < min(FEWEST_TIMED, len(best.measurement.step_s)):
        return False
    behind = speed_up(record.measurement, best.measurement, objective, noise, tail=chance)
    return behind is not None and behind.low <= 1.0


def ranking(records: Sequence[Record], objective: Objective) -> tuple[Record, ...]:
    """Measured candidates once each, the best first; the earlier one where two are equal."""
    latest = {r.trial.name: r for r in records if objective.of(r) is not None}
    ranked: list[Record] = []
    for record in latest.values():
        place = next(
            (i for i, other in enumerate(ranked) if is_better(record, other, objective)),
            len(ranked),
        )
        ranked.insert(place, record)
    return tuple(ranked)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayoffBudget:
    """When the rounds end undecided; ``time_s`` from the first one on.

    ``until_s``: time of the study by which each round that is begun must have ended.
    """

    rounds: int = NORMAL.most_rounds
    time_s: float = math.inf
    until_s: float = math.inf
    effort: Effort = NORMAL


def fit_together(records: Sequence[Record]) -> bool:
    """Whether their memory was seen to fit side by side, by the rank of each that used most."""
    seen = [record.outcome.memory for record in records]
    peaks = sum(memory.peak_bytes for memory in seen if memory)
    free = min((memory.free_before_bytes for memory in seen if memory), default=0)
    return all(seen) and peaks <= TOGETHER * free
