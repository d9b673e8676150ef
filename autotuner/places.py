"""Who takes part in the rounds at the end, and who next where a place is free. Not: the rounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .arms import Arm, deviations
from .finalists import FINALISTS, choose, may_be_best
from .noise import Noise, checked
from .objective import Objective
from .trial import Record

MOST = FINALISTS + 2
"""Finalists that ever take part: each more makes every interval wider."""

ALPHA = 0.05
"""Probability that any of the comparisons is ever wrong."""


TOGETHER = 0.8
"""Of the memory that is free may be used by configurations that live side by side."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalsBudget:
    """When the rounds end undecided; ``time_s`` from the first one on.

    ``until_s``: time of the study by which each round that is begun must have ended.
    ``comparisons``: those that the probability to be wrong is shared by; None: as is planned.
    """

    rounds: int = 40
    time_s: float = math.inf
    until_s: float = math.inf
    comparisons: int | None = None


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
        near = choose(records, objective, MOST, noise) if wanted else ()
        self._waiting = [record for record in near if record.trial.name not in names]
        self._later: tuple[Record, ...] = ()
        self._wanted = _finalists(self.chosen)
        count = planned(records, objective, noise) if comparisons is None else comparisons
        self.level = ALPHA / max(1, len(self.chosen) - 1, count)
        """Of a single comparison with the best."""

    def next(self, arms: Sequence[Arm], leader: Arm | None) -> Record | None:
        """Who joins these arms, if a place is free and anybody may be better than the leader."""
        taken = _finalists([arm.searched for arm in arms if not arm.is_out])
        if leader is None or taken >= self._wanted or not self._waiting:
            return None
        noise = checked(self._noise, deviations(arms, self._objective))
        best = leader.searched
        may = (x for x in self._waiting if may_be_best(x, best, self._objective, noise))
        return self.take(next((record.trial.name for record in may), None))

    def admit(self, records: Sequence[Record]) -> None:
        """Who may come later for another reason than a free place."""
        self._later = tuple(records)

    def take(self, name: str | None) -> Record | None:
        """Who waits under this name, and waits no longer."""
        waiting = (*self._waiting, *self._later)
        found = next((record for record in waiting if record.trial.name == name), None)
        self._waiting = [record for record in self._waiting if record is not found]
        self._later = tuple(record for record in self._later if record is not found)
        return found


def planned(records: Sequence[Record], objective: Objective, noise: Noise) -> int:
    """Comparisons with the best that rounds after this search may come to."""
    return max(0, len(choose(records, objective, MOST, noise)) - 1)


def fit_together(records: Sequence[Record]) -> bool:
    """Whether their memory was seen to fit side by side, by the rank of each that used most."""
    seen = [record.outcome.memory for record in records]
    peaks = sum(memory.peak_bytes for memory in seen if memory)
    free = min((memory.free_before_bytes for memory in seen if memory), default=0)
    return all(seen) and peaks <= TOGETHER * free


def _finalists(records: Sequence[Record]) -> int:
    return sum(record.trial.number > 0 for record in records)
