"""Which trials are measured again at the end, round by round. Not: the search (Study).

The best of the search that noise does not tell apart, and the baseline, are launched in turn,
each once a round and in another order each round, until a test that may be looked at after every
round tells them apart, finds that it will not, or the budget is spent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoconf_launch.core import FailureKind

from .arms import Arm, compare, leader
from .noise import FINAL_SUFFIX, Noise, estimate_noise, speed_up
from .objective import Objective
from .sequential import PairedEstimate, expected_width
from .stage import is_better
from .stop import StopKind, StopReason
from .trial import Record, Trial, Turn

FINALISTS = 3
"""Of the search, the baseline not counted."""

ALPHA = 0.05
"""Probability that any of the comparisons is ever wrong."""

EQUAL = 0.02
"""Configurations that surely differ by less are equal."""

TOGETHER = 0.8
"""Of the memory that is free may be used by configurations that live side by side."""

_Z_95 = 1.645
_FEW_ROUNDS = 3
"""Before so many rounds nothing is given up as undecidable."""
_WIDE = 0.1
_ENOUGH_ROUNDS = 4
"""A baseline that is surely slower stays until its interval is narrow, or for so many rounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinalsBudget:
    """When the rounds end undecided; ``time_s`` from the first one on."""

    rounds: int = 40
    time_s: float = math.inf


class Finals:
    """Asks for rounds of launches; told records of an earlier session, it goes on there.

    Where the configurations fit side by side, those of a round live together and take steps in
    turn. Otherwise they follow each other. A round that an interruption tore is begun anew, as
    what is minutes apart is no pair.
    """

    def __init__(
        self,
        records: Sequence[Record],
        objective: Objective,
        *,
        wanted: int = FINALISTS,
        budget: FinalsBudget | None = None,
        near_only: bool = True,
    ) -> None:
        self._objective = objective
        self._budget = budget or FinalsBudget()
        self._arms = _arms(records, objective, wanted, near_only=near_only)
        self._told: dict[tuple[str, int], Record] = {}
        self._round, self._over = 1, 0
        self._order = self._active()
        self._pending: set[str] = set()
        self._start_s: float | None = None
        self._earlier_s = 0.0
        self._is_spent = False
        self._leader = leader(self._arms, objective)

    @property
    def arms(self) -> tuple[Arm, ...]:
        """Everything that takes part, the best of the search first."""
        return self._arms

    @property
    def records(self) -> tuple[Record, ...]:
        """Everything that was told, in order."""
        return tuple(self._told.values())

    @property
    def best(self) -> Record | None:
        """The best so far, with the steps of all its rounds."""
        return self._leader.measured() if self._leader else None

    @property
    def leader(self) -> Arm | None:
        """The best so far; the search's best before the first round."""
        return self._leader

    @property
    def rounds(self) -> int:
        """Rounds that are over."""
        return self._over

    def ask(self, free_slots: int, elapsed_s: float) -> tuple[Trial, ...]:
        """The next launches, when none is running; no new round once the time is up.

        A second one all the same where the first could not tell the baseline from the best.
        """
        if self._start_s is None:
            self._begin(elapsed_s)
        if self._pending:
            return ()
        late = elapsed_s - (self._start_s or 0.0) >= self._budget.time_s
        if late and self._is_new_round() and not self._owes_a_round():
            self._is_spent = True
        due = self._due()
        if not due or free_slots < 1:
            return ()
        together = free_slots >= len(due) > 1 and fit_together([arm.searched for arm in due])
        trials = self._in_turn(due) if together else (self._final(due[0]),)
        self._pending = {trial.name for trial in trials}
        return trials

    def tell(self, record: Record) -> None:
        """Take a launch of this session or an earlier one; one that was preempted never was."""
        self._pending.discard(record.trial.name)
        arm = next((arm for arm in self._arms if _final_name(arm) == record.trial.name), None)
        key = record.trial.name, record.trial.attempt
        preempted = record.failure and record.failure.kind is FailureKind.PREEMPTED
        if arm is None or key in self._told or preempted:
            return
        self._told[key] = record
        if self._start_s is None:
            self._earlier_s += record.wall_s
            self._round = max(self._round, record.trial.attempt)
        arm.rounds[record.trial.attempt] = record
        if record.failure is not None:
            self._drop(arm)
        if self._order and not self._lacking():
            self._close_round()

    def end_step(self, trial: Trial, step_s: Sequence[float]) -> int | None:
        """As planned: every launch of a round has the same steps."""
        return None

    def stop_reason(self) -> StopReason | None:
        """That the rounds are over."""
        if self._pending or self._due():
            return None
        sentence = f"The best were measured again in {self.rounds} rounds."
        return StopReason(kind=StopKind.EXPLORED, sentence=sentence)

    def _active(self) -> tuple[Arm, ...]:
        """Arms of this round in its order; nobody where there is nobody to compare with."""
        left = [arm for arm in self._arms if not arm.is_out]
        if len(left) < 2:
            return ()
        first = (self._round - 1) % len(left)
        return (*left[first:], *left[:first])

    def _standing(self) -> tuple[Arm, ...]:
        """Arms that have not failed and are not known to be slower."""
        return tuple(arm for arm in self._arms if not arm.failed and not arm.is_beaten)

    def _is_new_round(self) -> bool:
        return not any(self._round in arm.rounds for arm in self._order)

    def _owes_a_round(self) -> bool:
        """Whether one more is due though time is up: a single pair rarely shows any gain."""
        own = next((arm for arm in self._arms if arm.searched.trial.number == 0), None)
        told_apart = own is None or own.is_out or own.is_beaten or own is self._leader
        return self._over == 1 and not told_apart

    def _begin(self, elapsed_s: float) -> None:
        self._start_s = elapsed_s - self._earlier_s
        if not self._is_new_round():
            self._round += 1
            self._order = self._active()

    def _due(self) -> tuple[Arm, ...]:
        """Arms to be launched now."""
        is_over = self._is_spent or self._over >= self._budget.rounds
        return () if is_over else self._lacking()

    def _lacking(self) -> tuple[Arm, ...]:
        """Arms that this round still lacks, in its order."""
        return tuple(a for a in self._order if self._round not in a.rounds and not a.is_out)

    def _final(self, arm: Arm) -> Trial:
        return replace(arm.searched.trial, name=_final_name(arm), attempt=self._round, final=True)

    def _in_turn(self, due: Sequence[Arm]) -> tuple[Trial, ...]:
        """Each hands the turn to the one after it, the last to the first, which begins."""
        trials = [self._final(arm) for arm in due]
        after = [trial.name for trial in (*trials[1:], trials[0])]
        turns = [Turn(next_name=name, is_first=i == 0) for i, name in enumerate(after)]
        return tuple(replace(t, turn=turn) for t, turn in zip(trials, turns, strict=True))

    def _drop(self, arm: Arm) -> None:
        """One that failed: the others go on without it, if there are others."""
        arm.is_out = True
        if arm is self._leader:
            self._leader = leader(self._standing(), self._objective)
        self._order = self._active()

    def _close_round(self) -> None:
        self._round += 1
        self._over += 1
        left = [arm for arm in self._arms if not arm.is_out and not arm.is_beaten]
        first = self._leader = leader(left, self._objective) or self._leader
        alpha = level(self._arms)
        for arm in (arm for arm in self._arms if not arm.is_out and arm is not first):
            if first is not None:
                found = compare(arm, first, self._objective, alpha)
                arm.is_beaten = found.differs
                arm.is_out = self._is_settled(arm, found, alpha)
        self._order = self._active()

    def _is_settled(self, arm: Arm, found: PairedEstimate, alpha: float) -> bool:
        """Whether more rounds would say nothing new of an arm beside the leader."""
        if found.differs:
            is_known = found.width <= _WIDE or found.count >= _ENOUGH_ROUNDS
            return is_known or arm.searched.trial.number > 0
        if abs(found.mean) + found.width <= EQUAL:
            return True
        last = max(self._budget.rounds, found.count)
        likely = abs(found.mean) + _Z_95 * found.spread / math.sqrt(found.count)
        return found.count >= _FEW_ROUNDS and likely < expected_width(found, last, alpha)


def level(arms: Sequence[Arm]) -> float:
    """Of a single comparison with the best."""
    return ALPHA / max(1, len(arms) - 1)


def fit_together(records: Sequence[Record]) -> bool:
    """Whether their memory was seen to fit side by side, by the rank of each that used most."""
    seen = [record.outcome.memory for record in records]
    peaks = sum(memory.peak_bytes for memory in seen if memory)
    free = min((memory.free_before_bytes for memory in seen if memory), default=0)
    return all(seen) and peaks <= TOGETHER * free


def _arms(
    records: Sequence[Record], objective: Objective, wanted: int, *, near_only: bool
) -> tuple[Arm, ...]:
    """The best one, what noise does not tell from it, the runner-up and the baseline.

    The runner-up anyhow: under a load that comes and goes anything may have looked slow.
    """
    if wanted < 1:
        return ()
    ranked = ranking(records, objective)
    noise = estimate_noise(records)
    near = [
        record
        for place, record in enumerate(ranked)
        if place < 2 or not near_only or may_be_best(record, ranked[0], objective, noise)
    ]
    baseline = [record for record in ranked if record.trial.number == 0]
    chosen = {record.trial.name: record for record in (*near[:wanted], *baseline)}
    return tuple(Arm(record) for record in chosen.values())


def may_be_best(record: Record, best: Record, objective: Objective, noise: Noise) -> bool:
    """Whether noise could explain that a trial looked slower than the best one."""
    if record.measurement is None or best.measurement is None:
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


def _final_name(arm: Arm) -> str:
    return f"{arm.name}{FINAL_SUFFIX}"
