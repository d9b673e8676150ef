"""From the search, the rounds after it and the soak to the summary. Not: how they are run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from autoconf_launch.core import Optimizer

from ..measurement import (
    EFFORTS,
    Noise,
    PairedEstimate,
    SpeedUp,
    checked,
    estimate_noise,
    interval,
)
from ..space import OBJECTIVES, AutotuningSettings, Objective, Record
from . import soak_report
from .arms import Arm, deviations
from .contenders import ALPHA, may_be_best, ranking
from .meaning import compare_losses
from .past_rounds import replayed
from .playoff import Finals
from .rank_order import arms_in_order, lead, least_change_first
from .resolution import Resolution, resolution, round_times_s
from .soak import Soak
from .summary import Summary, baseline_of, best_of, learning_rate_of

CAUSELESS = 0.12
"""Launches minutes apart were seen to differ by as much without cause (DESIGN, rule 11)."""


def settled(
    summary: Summary,
    records: Sequence[Record],
    finals: Sequence[Record],
    settings: AutotuningSettings,
    optimizer: Optimizer,
    soaks: Sequence[Record] = (),
) -> Summary:
    """The summary with the choice that rounds and soak lead to; rows of spaces stay as searched.

    ``records`` are without drift, as those of the summary.

    The speed-up is from the rounds alone where both were in them.
    """
    objective = OBJECTIVES[settings.metric]
    effort = EFFORTS[settings.effort]
    rounds = replayed(records, finals, objective, summary.noise, effort)
    order = safe_order(records, rounds, objective, summary.noise)
    winner = _chosen(order, soaks)
    baseline = baseline_of(records)
    last = replace(
        summary.rows[-1],
        best_metric_val=objective.of(winner) if winner else None,
        best_exp_name=winner.trial.name if winner else None,
    )
    repeats = [r for r in finals if r.trial.number == 0]
    near = _near(records, rounds, winner, objective, summary.noise)
    met = _arm(rounds, winner) is not None
    gain = _gain(records, rounds, winner, objective, summary.noise)
    return replace(
        _of_the_search(summary, winner),
        rows=(*summary.rows[:-1], last),
        winner=winner,
        speed_up=_speed_up(summary, winner, gain),
        paired=gain is not None,
        in_turn=_took_turns(rounds),
        ties=_ties(rounds, winner, gain) if met else near,
        near=near if met else (),
        resolution=_resolution(rounds, winner, gain),
        learning_rate=learning_rate_of(baseline, winner, optimizer),
        rounds=rounds.rounds,
        meaning=compare_losses(baseline, _searched(records, winner), repeats),
        soak=soak_report.report(soaks) if soaks else None,
    )


def safe_order(
    records: Sequence[Record], rounds: Finals, objective: Objective, noise: Noise | None = None
) -> tuple[Record, ...]:
    """What may be trained with, the best first: who was in the rounds, then as the search says.

    Among equals the user's own is first, else what changes least. Before the first round is over,
    all as the search says. ``noise`` where ``records`` do not tell it.
    """
    failed = {arm.name for arm in rounds.arms if arm.failed}
    arms = arms_in_order(rounds, objective, noise or estimate_noise(records))
    ahead = [arm.measured() or arm.searched for arm in arms if rounds.rounds]
    names = {record.trial.name for record in ahead} | failed
    others = (r for r in ranking(records, objective) if r.trial.name not in names)
    told = noise or estimate_noise(records)
    return least_change_first((*ahead, *others), rounds, objective, told)


def findings(
    records: Sequence[Record],
    finals: Sequence[Record],
    objective: Objective,
    soaks: Sequence[Record] = (),
    noise: Noise | None = None,
) -> tuple[str, ...]:
    """A sentence on each thing that launches after the search show and it did not."""
    rounds = replayed(records, finals, objective, noise)
    failures = tuple(
        f"{arm.name} failed in the playoff "
        f"({arm.failed.failure.kind.value}: {arm.failed.failure.detail}) and was eliminated."
        for arm in rounds.arms
        if arm.failed and arm.failed.failure
    )
    refused = soak_report.report(soaks).refused if soaks else ()
    surprise = _surprise(records, rounds, objective, noise or estimate_noise(records))
    return (*failures, *surprise, *refused, *_gaps(rounds, soaks))


def _chosen(order: Sequence[Record], soaks: Sequence[Record]) -> Record | None:
    """The one that passed the soak; the first that no soak has refused where none was run."""
    if not soaks:
        return order[0] if order else None
    if (passed := soak_report.passed(soaks)) is None:
        return _not_refused(order, soaks)
    name = soak_report.soaked_name(passed)
    return next((record for record in order if record.trial.name == name), None)


def _not_refused(order: Sequence[Record], soaks: Sequence[Record]) -> Record | None:
    """The best one where time was up before any could pass; None where all were refused."""
    soak = Soak(order, steps=0)
    for record in soaks:
        soak.tell(record)
    return soak.choice


def _of_the_search(summary: Summary, winner: Record | None) -> Summary:
    """The summary with the name of the best of the search, where rounds or soak passed over it."""
    best = summary.winner
    if best is None or winner is None or best.trial.name == winner.trial.name:
        return summary
    return replace(summary, passed_over=best.trial.name)


def _searched(records: Sequence[Record], winner: Record | None) -> Record | None:
    name = winner.trial.name if winner else None
    return next((r for r in records if r.trial.name == name and r.measurement), None)


def _arm(rounds: Finals, record: Record | None) -> Arm | None:
    """The record's arm in the rounds; launches of a torn round do not count."""
    name = record.trial.name if record and rounds.rounds else None
    return next((arm for arm in rounds.arms if arm.name == name and arm.rounds), None)


def _speed_up(
    summary: Summary, winner: Record | None, gain: PairedEstimate | None
) -> SpeedUp | None:
    """Speed-up of the winner over the baseline, by the rounds; else by a search that agrees."""
    if gain is not None:
        return interval(gain.mean, gain.width)
    if winner is None or summary.winner is None or winner.trial.number == 0:
        return None
    return summary.speed_up if summary.winner.trial.name == winner.trial.name else None


def _gain(
    records: Sequence[Record],
    rounds: Finals,
    winner: Record | None,
    objective: Objective,
    noise: Noise,
) -> PairedEstimate | None:
    """How much longer the baseline takes than the winner; None where they did not meet."""
    before, after = _arm(rounds, baseline_of(records)), _arm(rounds, winner)
    if before is None or after is None or before is after:
        return None
    rivals = len(ranking(records, objective)) - 1
    found = lead((before, after), rounds, objective, noise, rivals)
    return found if found.count else None


def _alike(
    rounds: Finals, winner: Record | None, gain: PairedEstimate | None
) -> tuple[tuple[Arm, PairedEstimate], ...]:
    """What is not distinguished from the winner, the best first, and what the rounds say of it.

    ``gain``: of the winner over the baseline.
    """
    first = _arm(rounds, winner)
    if first is None:
        return ()
    others = [a for a in rounds.arms if a is not first and a.rounds and not a.failed]
    found = [(arm, rounds.compare(arm, first, alpha_of(arm, rounds))) for arm in others]
    if gain and gain.differs:
        found = [(arm, one) for arm, one in found if arm.searched.trial.number]
    alike = [(arm, one) for arm, one in found if one.count and not one.differs]
    return tuple(sorted(alike, key=lambda pair: pair[1].mean))


def _ties(rounds: Finals, winner: Record | None, gain: PairedEstimate | None) -> tuple[str, ...]:
    """Names of what is not told from the winner; who left as an equal before it came is last."""
    first = _arm(rounds, winner)
    others = [a for a in rounds.arms if a is not first and a.rounds]
    left = [a.name for a in others if not (a.failed or a.is_beaten)]
    unmet = [a.name for a in others if first and not rounds.compare(a, first).count]
    alike = (arm.name for arm, _ in _alike(rounds, winner, gain))
    return (*alike, *(name for name in left if name in unmet))


def alpha_of(arm: Arm, rounds: Finals) -> float:
    """The baseline as its speed-up's interval says, the others all at once."""
    return ALPHA if arm.searched.trial.number == 0 else rounds.level


def _near(
    records: Sequence[Record],
    rounds: Finals,
    winner: Record | None,
    objective: Objective,
    noise: Noise,
) -> tuple[str, ...]:
    """What was not in the rounds and what the noise of the search does not tell from the winner.

    Both as the search met them: what came later was in other minutes.
    """
    best = _searched(records, winner)
    if best is None:
        return ()
    noise = checked(noise, deviations(rounds.arms, objective))
    out = {best.trial.name, *(arm.name for arm in rounds.arms if arm.failed)}
    others = [
        record
        for record in ranking(records, objective)
        if record.trial.name not in out and _arm(rounds, record) is None
    ]
    return tuple(r.trial.name for r in others if may_be_best(r, best, objective, noise))


def _resolution(
    rounds: Finals, winner: Record | None, gain: PairedEstimate | None
) -> Resolution | None:
    """Resolution of the pair that is known least."""
    alike = _alike(rounds, winner, gain)
    if not alike:
        return None
    arm, found = max(alike, key=lambda pair: pair[1].width)
    round_s = fmean(round_times_s(rounds.records))
    return resolution(
        found, alpha_of(arm, rounds), round_s=round_s, wanted=rounds.effort.precision
    )


def _surprise(
    records: Sequence[Record], rounds: Finals, objective: Objective, noise: Noise
) -> tuple[str, ...]:
    first = best_of(records, objective)
    arm = next(iter(arms_in_order(rounds, objective, noise)), None)
    before = _arm(rounds, first)
    if arm is None or before is None or before is arm or before.failed:
        return ()
    how = f"Re-measured in {'turn' if _took_turns(rounds) else 'rounds'}, {arm.name}"
    best = f"{before.name}, which was best in the search"
    if rounds.compare(before, arm, alpha_of(before, rounds)).differs:
        return (f"{how} is better than {best}.",)
    return (f"{how} leads {best}; they are tied within noise.",)


def _took_turns(rounds: Finals) -> bool:
    return any(record.trial.turn for record in rounds.records)


def _gaps(rounds: Finals, soaks: Sequence[Record]) -> tuple[str, ...]:
    """What to say where the launch as the training's own measures something else."""
    last = soak_report.passed(soaks)
    arm = next((a for a in rounds.arms if last and a.name == soak_report.soaked_name(last)), None)
    before = (arm.measured() or arm.searched).measurement if arm else None
    after = last.measurement if last else None
    if before is None or after is None or last is None:
        return ()
    before_s, after_s = before.mean_step_s, after.mean_step_s
    if abs(after_s / before_s - 1.0) <= CAUSELESS:
        return ()
    return (
        f"Expect {1e3 * after_s:.4g} ms per step: {soak_report.soaked_name(last)} took "
        f"{1e3 * before_s:.4g} ms in its trials, but its verification run is as the training.",
    )
