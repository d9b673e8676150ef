"""Which configurations of a search take part in the playoff."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..measurement import FEWEST_TIMED, NORMAL, Effort, Noise, at_last_level, speed_up
from ..space import Objective, Record, is_better

MOST_BEHIND = 2.5
"""What took more than so many times as long as the best is not measured again to be sure."""


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


ALPHA = 0.05
"""Probability that any of the comparisons is ever wrong."""

TOGETHER = 0.8
"""Share of the free memory that configurations may use side by side."""


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
