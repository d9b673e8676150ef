"""The result of a search, its playoff and its verification runs, as one value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..measurement import EFFORTS, Noise, SpeedUp
from ..space import OBJECTIVES, AutotuningSettings, Objective, Record
from .meaning import LossComparison, compare_losses
from .rule import TIE_WIDTH, Rounds, Ruling, TuneVerdict, ranking, rounds_of
from .soak import Soak, SoakReport, last_passed, report_soaks, soaked_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The configuration to train with, and how sure that is.

    Attributes:
        order: usable configurations, the best first.
        winner: the best record; None if nothing was measured or passed.
        verdict: result of the rule: shown to be the best, tied, or unknown.
        speed_up: speed-up of the winner over the baseline; None if it is the baseline or one was
            not measured.
        paired: True if ``speed_up`` is from rounds that both were in.
        rounds: number of rounds.
        ties: configurations that are shown to be about as fast as the winner, each with the
            logarithm of its time over the winner's.
        undecided: others that noise does not separate from the winner, in the same form.
        width: half-width of the widest of all their intervals, as a logarithm.
        played: configurations that were in rounds, the winner too, each at its one speed: the
            winner's is its verification run's, the others' follow from their ratio to it.
        meaning: comparison of the winner's losses with the baseline's; None if it is the baseline.
        failed: the playoff's launches that eliminated their configuration.
        soak: the verification runs; None if there were none.
    """

    order: tuple[Record, ...] = ()
    winner: Record | None = None
    verdict: TuneVerdict = TuneVerdict.INCONCLUSIVE
    speed_up: SpeedUp | None = None
    paired: bool = False
    rounds: int = 0
    ties: tuple[tuple[str, float], ...] = ()
    undecided: tuple[tuple[str, float], ...] = ()
    width: float = 0.0
    played: tuple[Record, ...] = ()
    meaning: LossComparison | None = None
    failed: tuple[Record, ...] = ()
    soak: SoakReport | None = None

    @property
    def is_verified(self) -> bool:
        """True if the winner's speed is its verification run's."""
        return bool(self.played and self.soak and self.soak.passed and self.soak.step_s)

    @property
    def computed(self) -> frozenset[str]:
        """Names of those whose speed is the winner's, changed by their ratio in the rounds."""
        own = {self.winner.trial.name} if self.winner else set()
        return frozenset(record.trial.name for record in self.played) - own

    @property
    def compared(self) -> dict[str, Record]:
        """The winner and all that were in its rounds by name, each at its one speed."""
        known = {self.winner.trial.name: self.winner} if self.winner else {}
        return known | {record.trial.name: record for record in self.played}


def decide(
    records: Sequence[Record],
    playoff: Sequence[Record],
    soaks: Sequence[Record],
    settings: AutotuningSettings,
    noise: Noise,
) -> Decision:
    """The choice that a search, its playoff and its verification runs lead to.

    Args:
        records: records of the search, as they are compared.
        playoff: launches of the rounds, in order.
        soaks: verification runs, in order.
        settings: metric and effort.
        noise: noise of the search.
    """
    objective = OBJECTIVES[settings.metric]
    rounds = rounds_of(records, playoff, objective, noise)
    rule = Ruling(records, rounds, EFFORTS[settings.effort])
    order = rule.order
    failed = tuple(one.failed for one in rounds.contenders if one.failed)
    soak = report_soaks(soaks) if soaks else None
    winner, baseline = _winner(order, soaks), baseline_of(records)
    if winner is None:
        return Decision(order=order, failed=failed, rounds=rounds.count(), soak=soak)
    rivals = rule.rivals(winner)
    searched = next(r for r in records if r.trial.name == winner.trial.name and r.measurement)
    repeats = [record for record in playoff if record.trial.number == 0]
    return Decision(
        order=order,
        winner=winner,
        verdict=rule.verdict(winner),
        speed_up=_speed_up(rule, baseline, winner),
        paired=_in_rounds(rounds, baseline) and _in_rounds(rounds, winner),
        rounds=rounds.count(),
        ties=tuple((r.trial.name, found.mean) for r, found in rivals if found.width <= TIE_WIDTH),
        undecided=tuple(
            (r.trial.name, found.mean) for r, found in rivals if found.width > TIE_WIDTH
        ),
        width=max((found.width for _, found in rivals), default=0.0),
        played=_at_verified_speed(rule, winner, soak),
        meaning=compare_losses(baseline, searched, repeats),
        failed=failed,
        soak=soak,
    )


def best_of(records: Sequence[Record], objective: Objective) -> Record | None:
    """The best measured record; the earlier one if two are equal."""
    return next(iter(ranking(records, objective)), None)


def baseline_of(records: Sequence[Record]) -> Record | None:
    """The last outcome of trial 0, which may have had two attempts."""
    return next((record for record in reversed(records) if record.trial.number == 0), None)


def _winner(order: Sequence[Record], soaks: Sequence[Record]) -> Record | None:
    """The record that passed its verification run, else the first that was not refused."""
    if (passed := last_passed(soaks)) is not None:
        name = soaked_name(passed.trial)
        return next((record for record in order if record.trial.name == name), None)
    soak = Soak(order, steps=0)
    for record in soaks:
        soak.tell(record)
    return soak.choice


def _in_rounds(rounds: Rounds, record: Record | None) -> bool:
    return record is not None and rounds.contender(record.trial.name) is not None


def _speed_up(rule: Ruling, baseline: Record | None, winner: Record) -> SpeedUp | None:
    if baseline is None or winner.trial.number == 0 or baseline.measurement is None:
        return None
    found = rule.versus(baseline, winner)
    return None if math.isinf(found.width) else found.speed_up


def _at_verified_speed(
    rule: Ruling, winner: Record, soak: SoakReport | None
) -> tuple[Record, ...]:
    """The winner at its verification run's speed, and the others by their ratio to it.

    The machine varies between rounds, so means over different rounds cannot be compared.
    """
    objective = rule.rounds.objective
    first = rule.rounds.contender(winner.trial.name)
    if first is None or winner.measurement is None:
        return ()
    step_s = soak.step_s if soak and soak.passed and soak.step_s else None
    cost_s = objective.cost_s(
        step_s or winner.measurement.mean_step_s, winner.measurement.samples_per_step
    )
    played = []
    for one in rule.rounds.contenders:
        found, made = rule.rounds.compare(one, first), one.searched.measurement
        if made and not one.failed and (one is first or found.rounds):
            of_a_second = objective.cost_s(1.0, made.samples_per_step)
            behind = 0.0 if one is first else found.mean
            seconds = cost_s * math.exp(behind) / of_a_second
            played.append(replace(one.searched, outcome=replace(made, step_s=(seconds,))))
    return tuple(played)
