"""Rounds from the records that they left, as they were. Not: what follows from them (decision).

How much time there was is not written down, nor what left for want of it; but what was launched
is, and what each launch named as the next of its round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from autoconf_launch.core import FailureKind

from ..measurement import FINAL_SUFFIX, NORMAL, Effort, Noise, measured_name
from ..space import Objective, Record
from .playoff import Playoff
from .selection import PlayoffBudget, ranking


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
