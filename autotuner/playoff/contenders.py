"""Contenders in the final rounds, and who is next where a place is free. Not: the rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..measurement import FEWEST_TIMED, NORMAL, Effort, Noise, checked, speed_up
from ..space import Objective, Record, is_better
from .arms import Arm, deviations

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


MOST_CONTENDERS = NORMAL.contenders + 2
"""Finalists that ever take part: each more makes every interval wider."""

ALPHA = 0.05
"""Probability that any of the comparisons is ever wrong."""


TOGETHER = 0.8
"""Share of the free memory that configurations may use side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalsBudget:
    """When the rounds end undecided; ``time_s`` from the first one on.

    ``until_s``: time of the study by which each round that is begun must have ended.
    ``comparisons``: those that the probability to be wrong is shared by; None: as is planned.
    """

    rounds: int = NORMAL.most_rounds
    time_s: float = math.inf
    until_s: float = math.inf
    comparisons: int | None = None
    effort: Effort = NORMAL


class Places:
    """Chosen before the first round; what noise does not tell from the best waits for a place.

    The probability to be wrong is shared by all that may ever take part, from the first round on,
    so that intervals hold whoever comes later.
    """

    def __init__(
        self,
        records: Sequence[Record],
        objective: Objective,
        *,
        wanted: int,
        noise: Noise,
        near_only: bool,
        comparisons: int | None,
    ) -> None:
        """See :class:`~.finals.Finals`; ``comparisons``: that there may be, where it is known."""
        self._objective, self._noise = objective, noise
        self.chosen = choose(records, objective, wanted, noise if near_only else None)
        """They begin, the best of the search first."""
        names = {record.trial.name for record in self.chosen}
        near = choose(records, objective, MOST_CONTENDERS, noise) if wanted else ()
        self._waiting = [record for record in near if record.trial.name not in names]
        self._later: tuple[Record, ...] = ()
        self._wanted = _finalists(self.chosen)
        count = planned(records, objective, noise) if comparisons is None else comparisons
        self.level = ALPHA / max(1, len(self.chosen) - 1, count)
        """Error level of a single comparison with the best."""

    def next(self, arms: Sequence[Arm], leader: Arm | None) -> Record | None:
        """The next contender, if a place is free and one may be better than the leader."""
        taken = _finalists([arm.searched for arm in arms if not arm.is_out])
        if leader is None or taken >= self._wanted or not self._waiting:
            return None
        noise = checked(self._noise, deviations(arms, self._objective))
        best = leader.searched
        may = (x for x in self._waiting if may_be_best(x, best, self._objective, noise))
        return self.take(next((record.trial.name for record in may), None))

    def admit(self, records: Sequence[Record]) -> None:
        """Add contenders that may come later for another reason than a free place."""
        self._later = tuple(records)

    def take(self, name: str | None) -> Record | None:
        """The waiting contender of this name, removed from those that wait."""
        waiting = (*self._waiting, *self._later)
        found = next((record for record in waiting if record.trial.name == name), None)
        self._waiting = [record for record in self._waiting if record is not found]
        self._later = tuple(record for record in self._later if record is not found)
        return found


def planned(records: Sequence[Record], objective: Objective, noise: Noise) -> int:
    """Comparisons with the best that rounds after this search may come to."""
    return max(0, len(choose(records, objective, MOST_CONTENDERS, noise)) - 1)


def fit_together(records: Sequence[Record]) -> bool:
    """Whether their memory was seen to fit side by side, by the rank of each that used most."""
    seen = [record.outcome.memory for record in records]
    peaks = sum(memory.peak_bytes for memory in seen if memory)
    free = min((memory.free_before_bytes for memory in seen if memory), default=0)
    return all(seen) and peaks <= TOGETHER * free


def _finalists(records: Sequence[Record]) -> int:
    return sum(record.trial.number > 0 for record in records)
