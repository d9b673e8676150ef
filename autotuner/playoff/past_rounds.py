"""Rounds from the records that they left, as they were. Not: what follows from them (settle).

How much time there was is not written down, nor who left for want of it; but who was launched is,
and whom each launch named as the next of its round.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from autoconf_launch.core import FailureKind

from ..measurement import FINAL_SUFFIX, NORMAL, Effort, Noise, estimate_noise
from ..space import Objective, Record
from .contenders import FinalsBudget, planned, ranking
from .playoff import Finals, says_over


def replayed(
    records: Sequence[Record],
    finals: Sequence[Record],
    objective: Objective,
    noise: Noise | None = None,
    effort: Effort = NORMAL,
) -> Finals:
    """The rounds as these records had them; ``noise`` where ``records`` do not tell it."""
    ranked = ranking(records, objective)
    told = tuple(_linked(finals, [r.trial.name for r in ranked if not r.trial.number]))
    first = {_searched_name(one): one.trial.attempt for one in reversed(told)}
    begun = _first_whole(told)
    began = [
        r for r in ranked if not r.trial.number or first.get(r.trial.name, begun + 1) <= begun
    ]
    noise = noise or estimate_noise(records)
    rounds = Finals(
        began if told else records,
        objective,
        wanted=len(first) or None,
        budget=FinalsBudget(comparisons=planned(records, objective, noise), effort=effort),
        near_only=not told,
        noise=noise,
    )
    rounds.admit([r for r in ranked if r.trial.number and first.get(r.trial.name, 0) > begun])
    for record in told:
        rounds.tell(record)
    return rounds


def _linked(finals: Sequence[Record], baseline: Sequence[str]) -> Iterator[Record]:
    """Each with the name of the next of its round, as far as those that came back tell it.

    Journals of before have none. There, who was in an earlier round and in a later one was in
    those between; and the baseline takes part in every first round, so that one without it was
    torn.
    """
    came = [r for r in finals if r.failure is None or r.failure.kind is not FailureKind.PREEMPTED]
    span: dict[str, tuple[int, float]] = {
        f"{name}{FINAL_SUFFIX}": (0, math.inf) for name in baseline
    }
    span |= _spans(came)
    for number, group in groupby(came, key=lambda record: record.trial.attempt):
        launches = tuple(group)
        names = [launch.trial.name for launch in launches]
        lacking = [n for n, (a, b) in span.items() if a <= number <= b and n not in names]
        for place, launch in enumerate(launches, 1):
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


def _first_whole(told: Sequence[Record]) -> int:
    """Number of the first round that was not torn; of the last one where all were."""
    rounds = groupby(told, key=lambda record: record.trial.attempt)
    whole = (number for number, group in rounds if says_over(tuple(group)))
    return next(whole, told[-1].trial.attempt if told else 0)


def _searched_name(record: Record) -> str:
    return record.trial.name.removesuffix(FINAL_SUFFIX)
