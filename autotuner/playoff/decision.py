"""What search, playoff and verification runs lead to, as one value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from statistics import fmean

from autoconf_launch.core import FailureKind

from ..measurement import (
    EFFORTS,
    FINAL_SUFFIX,
    MAX_USEFUL_LOG_HALF_WIDTH,
    NORMAL,
    Effort,
    Noise,
    PairedEstimate,
    SpeedUp,
    correct_noise,
    interval,
    measured_name,
    speed_up,
)
from ..space import OBJECTIVES, AutotuningSettings, Objective, Record, is_better
from .contender import ALPHA, Contender, PlayoffBudget, deviations, log_cost, may_be_best, ranking
from .duration import Resolution, resolution, round_times_s
from .meaning import LossComparison, compare_losses
from .playoff import Playoff
from .rank_order import lead, order_contenders, smallest_change_first
from .soak import (
    Soak,
    SoakReport,
    SpeedGap,
    last_passed,
    report_soaks,
    soaked_name,
    speed_gap,
    with_step_s,
)

_LIKELY = 0.1
"""Chance to be as fast as the winner from which a configuration that met it nowhere is named."""
_MOST_NEAR = math.log(1.25)
"""What took longer by more than this is not named, however noisy the search was."""


class DecisionVerdict(str, Enum):
    """How the winner compares with everything else that was measured."""

    FASTER = "faster"
    TIED = "tied"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Overtaken:
    """The best of the search, which another one leads in the playoff.

    ``is_shown``: whether the interval of the two says so; else they are tied.
    """

    best: str
    leader: str
    is_shown: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What to train with, and how sure that is.

    Attributes:
        order: what may be trained with, the best first.
        winner: the best record; None where nothing was measured or passed.
        speed_up: of the winner over the baseline, where both were measured; None where the
            winner is the baseline.
        paired: whether that is from rounds in which both were launched, and met.
        rounds: how many there were.
        in_turn: whether launches of a round lived side by side and took their steps in turn.
        ties: names of other trials that noise does not distinguish from the winner; where the
            winner was in rounds, of those that were in them with it.
        near: where there were rounds, what was not in them but, by the search, was nearly as fast
            and has a fair chance to be as fast.
        behind: how much longer each of ``ties`` and ``near`` took than the winner, as a logarithm.
        gap: the playoff's speed and the verification run's, where these do not agree.
        played: what was in rounds with the winner, each at its one speed: the winner's as a
            training is expected to have it, the others' by what the rounds say of the two.
        resolution: the difference that the rounds resolve, where something is a tie after them.
        meaning: whether the winner's losses are the baseline's; None where it is the baseline.
        failed: the launches of the playoff that eliminated their configuration.
        overtaken: the best of the search, where it does not lead the playoff.
        soak: the winner's longer launch; None where there was none.
        passed_over: name of the best of the search, where another one won after it; else empty.
    """

    order: tuple[Record, ...] = ()
    winner: Record | None = None
    speed_up: SpeedUp | None = None
    paired: bool = False
    rounds: int = 0
    in_turn: bool = False
    ties: tuple[str, ...] = ()
    near: tuple[str, ...] = ()
    behind: tuple[tuple[str, float], ...] = ()
    gap: SpeedGap | None = None
    played: tuple[Record, ...] = ()
    resolution: Resolution | None = None
    meaning: LossComparison | None = None
    failed: tuple[Record, ...] = ()
    overtaken: Overtaken | None = None
    soak: SoakReport | None = None
    passed_over: str = ""

    @property
    def expected(self) -> Record | None:
        """The winner at the speed that a training with it is expected to have."""
        if self.winner is None or self.gap is None:
            return self.winner
        return with_step_s(self.winner, self.gap.verified_s)

    @property
    def compared(self) -> dict[str, Record]:
        """The winner and what met it by name, each at its configuration's one speed.

        Where it met none, it has the search's speed, as all others do.
        """
        last = self.expected if self.played else self.winner
        return {record.trial.name: record for record in (*([last] if last else ()), *self.played)}

    @property
    def verdict(self) -> DecisionVerdict:
        """Whether the winner was shown to be the fastest, or how surely others are as fast."""
        if not self.ties and not self.near:
            return DecisionVerdict.FASTER
        width = self.resolution.width if self.resolution else 0.0
        return (
            DecisionVerdict.TIED
            if width <= MAX_USEFUL_LOG_HALF_WIDTH
            else DecisionVerdict.INCONCLUSIVE
        )


def decide(
    records: Sequence[Record],
    playoff: Sequence[Record],
    soaks: Sequence[Record],
    settings: AutotuningSettings,
    noise: Noise,
) -> Decision:
    """The choice that a search, its playoff and its verification runs lead to.

    Args:
        records: of the search, as they are compared.
        playoff: launches of its rounds, in order.
        soaks: verification runs, in order.
        settings: metric and effort.
        noise: of the search.
    """
    return _Choice(records, playoff, soaks, settings, noise).decision()


class _Choice:
    """The parts of a decision, each made from the same rounds."""

    def __init__(
        self,
        records: Sequence[Record],
        playoff: Sequence[Record],
        soaks: Sequence[Record],
        settings: AutotuningSettings,
        noise: Noise,
    ) -> None:
        self._records, self._playoff, self._soaks = records, playoff, soaks
        self._objective = OBJECTIVES[settings.metric]
        self._noise = noise
        effort = EFFORTS[settings.effort]
        self._rounds = replay_rounds(records, playoff, self._objective, noise, effort)
        self._order = rank(records, self._rounds, self._objective, noise)
        self._winner = _winner(self._order, soaks)
        self._baseline = baseline_of(records)
        self._gain = self._gain_in_rounds()

    def decision(self) -> Decision:
        winner, rounds = self._winner, self._rounds
        best = best_of(self._records, self._objective)
        met = self._contender(winner) is not None
        near = self._near(_LIKELY, _MOST_NEAR) if met else self._near(0.025)
        soak = report_soaks(self._soaks) if self._soaks else None
        gap = speed_gap(winner, soak, self._playoff, self._soaks)
        played = self._contenders_played(gap)
        is_other = best and winner and best.trial.name != winner.trial.name
        return Decision(
            order=self._order,
            winner=winner,
            speed_up=self._speed_up(best),
            paired=self._gain is not None,
            rounds=rounds.rounds,
            in_turn=self._took_turns(),
            ties=tuple(name for name, _ in (self._ties() if met else near)),
            near=tuple(name for name, _ in near) if met else (),
            behind=(*self._ties(), *near),
            gap=gap,
            played=played,
            resolution=self._resolution(),
            meaning=self._meaning(),
            failed=tuple(one.failed for one in rounds.contenders if one.failed),
            overtaken=self._overtaken(best),
            soak=soak,
            passed_over=best.trial.name if best and is_other else "",
        )

    def _contender(self, record: Record | None) -> Contender | None:
        """The record's contender; launches of a torn round do not count."""
        name = record.trial.name if record and self._rounds.rounds else None
        return next((c for c in self._rounds.contenders if c.name == name and c.rounds), None)

    def _gain_in_rounds(self) -> PairedEstimate | None:
        """How much longer the baseline takes than the winner; None where they did not meet."""
        before, after = self._contender(self._baseline), self._contender(self._winner)
        if before is None or after is None or before is after:
            return None
        rivals = len(ranking(self._records, self._objective)) - 1
        pair = before, after
        found = lead(pair, self._rounds, self._objective, self._noise, rivals)
        return found if found.count else None

    def _speed_up(self, best: Record | None) -> SpeedUp | None:
        """Speed-up of the winner over the baseline by the rounds, else by a search that agrees."""
        winner, baseline = self._winner, self._baseline
        if self._gain is not None:
            return interval(self._gain.mean, self._gain.width)
        if winner is None or best is None or baseline is None or winner.trial.number == 0:
            return None
        if best.trial.name != winner.trial.name:
            return None
        if baseline.measurement is None or best.measurement is None:
            return None
        return speed_up(baseline.measurement, best.measurement, self._objective, self._noise)

    def _others(self) -> list[tuple[Contender, PairedEstimate]]:
        """What the rounds say of everything that they do not distinguish from the winner."""
        first = self._contender(self._winner)
        if first is None:
            return []
        shown = self._gain is not None and self._gain.differs
        found = [
            (one, self._rounds.compare(one, first, alpha_of(one, self._rounds)))
            for one in self._rounds.contenders
            if one is not first and one.rounds and not one.failed
            if one.searched.trial.number or not shown
        ]
        alike = [(one, says) for one, says in found if says.count and not says.differs]
        return sorted(alike, key=lambda pair: pair[1].mean)

    def _ties(self) -> tuple[tuple[str, float], ...]:
        return tuple((one.name, found.mean) for one, found in self._others())

    def _near(self, chance: float, most: float = math.inf) -> tuple[tuple[str, float], ...]:
        """What was not in the rounds and has this chance to be as fast as the winner.

        ``most``: of what it may have taken longer, as a logarithm.

        Both as the search met them: what came later was in other minutes.
        """
        best = _search_record(self._records, self._winner)
        if best is None or best.measurement is None:
            return ()
        contenders = self._rounds.contenders
        noise = correct_noise(self._noise, deviations(contenders, self._objective))
        out = {best.trial.name, *(one.name for one in contenders if one.failed)}
        others = [
            record
            for record in ranking(self._records, self._objective)
            if record.trial.name not in out and self._contender(record) is None
        ]
        cost = log_cost(best.measurement, self._objective)
        found = [
            (record.trial.name, log_cost(record.measurement, self._objective) - cost)
            for record in others
            if record.measurement
            if may_be_best(record, best, self._objective, noise, chance=chance)
        ]
        return tuple((name, behind) for name, behind in found if behind <= most)

    def _contenders_played(self, gap: SpeedGap | None) -> tuple[Record, ...]:
        """Each contender beside the winner as the rounds that both were in say it.

        Rounds differ as the machine does, so that means over different rounds do not compare.
        """
        first, measured = self._contender(self._winner), self._winner and self._winner.measurement
        if first is None or not measured:
            return ()
        step_s = gap.verified_s if gap else measured.mean_step_s
        cost_s = self._objective.cost_s(step_s, measured.samples_per_step)
        met = [one for one in self._rounds.contenders if one.rounds and not one.failed]
        return tuple(
            with_step_s(one.searched, cost_s * math.exp(behind) / self._work_s(one.searched))
            for one in met
            if (behind := self._mean_behind(one, first)) is not None
        )

    def _mean_behind(self, one: Contender, first: Contender) -> float | None:
        """How much longer one takes than the winner; None where they did not meet."""
        if one is first:
            return 0.0
        if self._gain is not None and one.searched.trial.number == 0:
            return self._gain.mean
        found = self._rounds.compare(one, first, alpha_of(one, self._rounds))
        return found.mean if found.count else None

    def _work_s(self, record: Record) -> float:
        """Cost of a step of one second."""
        measured = record.measurement
        return self._objective.cost_s(1.0, measured.samples_per_step) if measured else 1.0

    def _resolution(self) -> Resolution | None:
        """Resolution of the pair that is known least."""
        alike = self._others()
        if not alike:
            return None
        contender, found = max(alike, key=lambda pair: pair[1].width)
        round_s = fmean(round_times_s(self._rounds.records))
        alpha, wanted = alpha_of(contender, self._rounds), self._rounds.effort.precision
        return resolution(found, alpha, round_s=round_s, wanted=wanted)

    def _meaning(self) -> LossComparison | None:
        winner = _search_record(self._records, self._winner)
        repeats = [record for record in self._playoff if record.trial.number == 0]
        return compare_losses(self._baseline, winner, repeats)

    def _overtaken(self, best: Record | None) -> Overtaken | None:
        rounds = self._rounds
        ahead = next(iter(order_contenders(rounds, self._objective, self._noise)), None)
        before = self._contender(best)
        if ahead is None or before is None or before is ahead or before.failed:
            return None
        shown = rounds.compare(before, ahead, alpha_of(before, rounds)).differs
        return Overtaken(best=before.name, leader=ahead.name, is_shown=shown)

    def _took_turns(self) -> bool:
        return any(record.trial.turn for record in self._rounds.records)


def rank(
    records: Sequence[Record], rounds: Playoff, objective: Objective, noise: Noise
) -> tuple[Record, ...]:
    """Usable configurations, the best first: those of the rounds, then as the search says.

    Among equals the user's own is first, else what changes least. Before the first round is over,
    all as the search says.
    """
    failed = {contender.name for contender in rounds.contenders if contender.failed}
    contenders = order_contenders(rounds, objective, noise) if rounds.rounds else ()
    ahead = [contender.playoff_record() or contender.searched for contender in contenders]
    names = {record.trial.name for record in ahead} | failed
    others = (r for r in ranking(records, objective) if r.trial.name not in names)
    return smallest_change_first((*ahead, *others), rounds, objective, noise)


def best_of(records: Sequence[Record], objective: Objective) -> Record | None:
    """The best measured record; the earlier one where two are equal."""
    best: Record | None = None
    for record in records:
        best = record if is_better(record, best, objective) else best
    return best


def baseline_of(records: Sequence[Record]) -> Record | None:
    """The last outcome of trial 0, which may have had two attempts."""
    return next((record for record in reversed(records) if record.trial.number == 0), None)


def alpha_of(contender: Contender, rounds: Playoff) -> float:
    """The baseline as its speed-up's interval says, the others all at once."""
    return ALPHA if contender.searched.trial.number == 0 else rounds.level


def _winner(order: Sequence[Record], soaks: Sequence[Record]) -> Record | None:
    """The one that passed the soak; the first that no soak has refused where none passed."""
    if (passed := last_passed(soaks)) is not None:
        name = soaked_name(passed.trial)
        return next((record for record in order if record.trial.name == name), None)
    soak = Soak(order, steps=0)
    for record in soaks:
        soak.tell(record)
    return soak.choice


def _search_record(records: Sequence[Record], winner: Record | None) -> Record | None:
    name = winner.trial.name if winner else None
    return next((r for r in records if r.trial.name == name and r.measurement), None)


def replay_rounds(
    records: Sequence[Record],
    launches: Sequence[Record],
    objective: Objective,
    noise: Noise,
    effort: Effort = NORMAL,
) -> Playoff:
    """The playoff as its launches had it; ``records`` and ``noise`` are of the search."""
    ranked = ranking(records, objective)
    own = [record.trial.name for record in ranked if not record.trial.number]
    told = tuple(_link(launches, own))
    names = {measured_name(launch.trial.name) for launch in told}
    chosen = [record for record in ranked if record.trial.name in {*names, *own}] if told else []
    rounds = Playoff(chosen, objective, noise=noise, budget=PlayoffBudget(effort=effort))
    for launch in told:
        rounds.tell(launch)
    return rounds


def _link(launches: Sequence[Record], baseline: Sequence[str]) -> Iterator[Record]:
    """Each with the name of the next of its round, as far as those that came back tell it.

    Journals of before have none. There, what was in an earlier round and in a later one was in
    those between; and the baseline takes part in every first round, so that one without it was
    torn.
    """
    came = [
        r for r in launches if r.failure is None or r.failure.kind is not FailureKind.PREEMPTED
    ]
    span: dict[str, tuple[int, float]] = {
        f"{name}{FINAL_SUFFIX}": (0, math.inf) for name in baseline
    }
    span |= _spans(came)
    for number, group in groupby(came, key=lambda record: record.trial.attempt):
        of_round = tuple(group)
        names = [launch.trial.name for launch in of_round]
        lacking = [n for n, (a, b) in span.items() if a <= number <= b and n not in names]
        for place, launch in enumerate(of_round, 1):
            then = (*names[place:], *lacking, "")[0]
            is_linked = launch.trial.then is not None
            yield launch if is_linked else replace(launch, trial=replace(launch.trial, then=then))


def _spans(came: Sequence[Record]) -> dict[str, tuple[int, float]]:
    """The first and the last round that each was launched in."""
    spans: dict[str, tuple[int, float]] = {}
    for record in came:
        name, number = record.trial.name, record.trial.attempt
        spans[name] = spans.get(name, (number, number))[0], number
    return spans
