"""Which trials of a search are worth measuring again. Not: the rounds of that (finals)."""

from __future__ import annotations

from collections.abc import Sequence

from .noise import Noise, speed_up
from .objective import Objective
from .stage import is_better
from .stop_rule import FEWEST_TIMED
from .trial import Record

FINALISTS = 3
"""Of the search, the baseline not counted."""

CONTENDER = 2.5
"""What took more than so many times as long as the best is not measured again to be sure."""


def choose(
    records: Sequence[Record], objective: Objective, wanted: int, noise: Noise | None
) -> tuple[Record, ...]:
    """The best one, what noise does not tell from it, the runner-up and the baseline.

    The runner-up, too, unless it was much slower: under a load that comes and goes anything may
    have looked slow, so a baseline that was the best still meets it. Without ``noise`` all count
    as near that are not much slower than the best.
    """
    if wanted < 1:
        return ()
    ranked = ranking(records, objective)
    near = [
        record
        for place, record in enumerate(ranked)
        if (noise is not None and may_be_best(record, ranked[0], objective, noise))
        or ((place < 2 or noise is None) and _is_contender(record, ranked[0], objective))
    ]
    baseline = [record for record in ranked if record.trial.number == 0]
    if near == baseline:
        near = list(ranked[:2])
    chosen = {record.trial.name: record for record in (*near[:wanted], *baseline)}
    return tuple(chosen.values())


def _is_contender(record: Record, best: Record, objective: Objective) -> bool:
    value, most = objective.of(record), objective.of(best)
    if not value or not most:
        return False
    return (most / value if objective.higher_is_better else value / most) <= CONTENDER


def may_be_best(record: Record, best: Record, objective: Objective, noise: Noise) -> bool:
    """Whether noise could explain that a trial looked slower than the best one.

    It could not where the trial was ended at once because it was slower beyond all noise.
    """
    if record.measurement is None or best.measurement is None:
        return False
    if len(record.measurement.step_s) < min(FEWEST_TIMED, len(best.measurement.step_s)):
        return False
    behind = speed_up(record.measurement, best.measurement, objective, noise)
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
