"""Which trials are measured again at the end, round by round. Not: the search (Study).

The best of the search, equal within noise, and the baseline are launched in turn,
each once a round and in another order each round, until a test that may be looked at after every
round resolves them, finds that it will not, or the budget is spent. An eliminated contender is
replaced by the next plausible candidate, while there is time for some rounds more.

A launch names the one that its round has next, so that a journal tells a round that was torn from
one that somebody had left, whatever the time and the budget were.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Protocol, TypeGuard

from autoconf_launch.core import FailureKind

from ..measurement import (
    FINAL_SUFFIX,
    Effort,
    Noise,
    PairedEstimate,
    estimate_noise,
    steps_apart,
    steps_of_turn,
    time_apart_s,
    turn_time_s,
    turns_of_round,
)
from ..search import MARGIN, StopKind, StopReason, start_bound_s
from ..space import Objective, Record, Trial, Turn
from .arms import Arm, compare, is_settled, leader
from .contenders import ALPHA, FinalsBudget, Places, fit_together
from .resolution import round_times_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """How long the timed steps of each launch take: the same time for all, in all rounds.

    Attributes:
        turns: of each, where the launches of a round live side by side.
        turn_s: seconds of one turn.
        apart_s: of all timed steps, where launches follow each other.
    """

    turns: int
    turn_s: float
    apart_s: float


def lengths(records: Sequence[Record], noise: Noise, time_s: float) -> Lengths:
    """For rounds of these configurations, of which a few must fit in ``time_s`` seconds."""
    return Lengths(
        turns=turns_of_round(records, noise, time_s),
        turn_s=turn_time_s(records),
        apart_s=time_apart_s(records, noise, time_s),
    )


def steps_s(arm: Arm, lengths: Lengths, *, together: bool) -> float:
    """Seconds of all steps of a launch of a round, those that do not count with them."""
    measured = arm.searched.measurement
    if measured is None:
        return 0.0
    in_turn = lengths.turns * steps_of_turn(arm.searched, lengths.turn_s)
    timed = in_turn if together else steps_apart(arm.searched, lengths.apart_s)
    return ((measured.first_step or 1) - 1 + timed) * measured.mean_step_s


def final_name(arm: Arm) -> str:
    """Name of an arm's launches in the rounds."""
    return f"{arm.name}{FINAL_SUFFIX}"


def in_turn(due: Sequence[Arm], number: int, steps: Lengths) -> tuple[Trial, ...]:
    """All at once: each hands the turn to the next, the last to the first, which begins."""
    after = [final_name(arm) for arm in (*due[1:], due[0])]
    each = [steps_of_turn(arm.searched, steps.turn_s) for arm in due]
    return tuple(
        replace(
            _final(arm, number, then),
            turn=Turn(
                next_name=then, is_first=arm is due[0], steps=steps.turns * length, length=length
            ),
        )
        for arm, then, length in zip(due, after, each, strict=True)
    )


def alone(due: Sequence[Arm], number: int, steps: Lengths) -> tuple[Trial, ...]:
    """The first of them; the others follow it."""
    then = final_name(due[1]) if len(due) > 1 else ""
    timed = steps_apart(due[0].searched, steps.apart_s)
    return (replace(_final(due[0], number, then), timed_steps=timed),)


def says_over(launches: Sequence[Record]) -> bool | None:
    """Whether these are all of their round; None where one of before names nobody.

    A round of one is none. A failure may be the last of them: who comes in its place begins with
    the next round.
    """
    if sum(launch.failure is None for launch in launches) < 2:
        return False
    named = {launch.trial.then for launch in launches}
    if named - {launch.trial.name for launch in launches} - {"", None}:
        return False
    return None if None in named else True


def _final(arm: Arm, number: int, then: str) -> Trial:
    name = final_name(arm)
    return replace(arm.searched.trial, name=name, attempt=number, final=True, then=then)


_ROUNDS_TO_HAVE = 2
"""Left, for a place to be given away."""


class Finals:
    """Asks for rounds of launches; told records of an earlier session, it goes on there.

    Where the configurations fit side by side, those of a round live together and take steps in
    turn. Otherwise they follow each other. A round that an interruption tore is begun anew, as
    launches minutes apart do not make a pair.
    """

    def __init__(
        self,
        records: Sequence[Record],
        objective: Objective,
        *,
        wanted: int | None = None,
        budget: FinalsBudget | None = None,
        near_only: bool = True,
        noise: Noise | None = None,
    ) -> None:
        """Before the first round.

        Args:
            records: of the search.
            objective: what is compared.
            wanted: how many take part beside the baseline; None: as the budget's effort has it.
            budget: when to end undecided.
            near_only: skip what the noise of the search tells from the best.
            noise: of the search, where ``records`` are not all of it.
        """
        self._objective = objective
        self._budget = budget or FinalsBudget()
        self._noise = noise or estimate_noise(records)
        self._places = Places(
            records,
            objective,
            wanted=self.effort.contenders if wanted is None else wanted,
            noise=self._noise,
            near_only=near_only,
            comparisons=self._budget.comparisons,
        )
        self._arms = tuple(map(Arm, self._places.chosen))
        self._lengths = lengths(self._places.chosen, self._noise, self._budget.time_s)
        self._told: dict[tuple[str, int], Record] = {}
        self._round = 1
        self._whole: set[int] = set()
        self._order = self._active()
        self._pending: set[str] = set()
        self._start_s: float | None = None
        self._spent_s = 0.0
        self._is_spent = False
        self._leader = leader(self._arms, objective)

    @property
    def arms(self) -> tuple[Arm, ...]:
        """Everything that takes part, the best of the search first, then who came later."""
        return self._arms

    @property
    def effort(self) -> Effort:
        """How small a difference is worth how much time."""
        return self._budget.effort

    @property
    def level(self) -> float:
        """Probability of a single comparison with the best to be ever wrong."""
        return self._places.level

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
        return len(self._whole)

    def admit(self, records: Sequence[Record]) -> None:
        """Add contenders that did not begin, but come in when they are told of."""
        self._places.admit(records)

    def compare(self, slower: Arm, faster: Arm, alpha: float = ALPHA) -> PairedEstimate:
        """How much longer ``slower`` takes, over the rounds that both were in."""
        return compare(slower, faster, self._objective, noise=self._noise, alpha=alpha)

    def ask(self, free_slots: int, elapsed_s: float) -> tuple[Trial, ...]:
        """The next launches, when none is running; no new round once the time is up.

        One all the same where all before it were torn, a second one where the first could not tell
        the baseline from the best, and one in which the baseline meets a best that came later.
        """
        if self._start_s is None:
            self._begin(elapsed_s)
        if self._pending:
            return ()
        self._spent_s = elapsed_s - (self._start_s or 0.0)
        if self._is_new_round() and self._is_late() and not self._owes_a_round():
            self._is_spent = True
        self._is_spent |= not self._has_time(elapsed_s, beside=free_slots > 1)
        due = self._due()
        if not due or free_slots < 1:
            return ()
        together = free_slots >= len(due) > 1 and fit_together([arm.searched for arm in due])
        trials = (in_turn if together else alone)(due, self._round, self._lengths)
        self._pending = {trial.name for trial in trials}
        return trials

    def tell(self, record: Record) -> None:
        """Take a launch of this session or an earlier one; one that was preempted never was."""
        self._pending.discard(record.trial.name)
        arm = self._arm(record.trial.name)
        key = record.trial.name, record.trial.attempt
        preempted = record.failure and record.failure.kind is FailureKind.PREEMPTED
        if arm is None or key in self._told or preempted:
            return
        self._told[key] = record
        if self._start_s is None:
            self._go_on_from(record.trial.attempt, arm)
        arm.rounds[record.trial.attempt] = record
        if record.failure is not None:
            self._drop(arm)
        if self._is_over():
            self._close_round()
        elif record.failure is not None:
            self._fill()

    def end_step(self, trial: Trial, step_s: Sequence[float]) -> int | None:
        """As planned: every launch of a round has the same steps."""
        return None

    def stop_reason(self) -> StopReason | None:
        """Why the rounds are over."""
        if self._pending or self._due():
            return None
        return StopReason(kind=StopKind.EXPLORED)

    def _arm(self, name: str) -> Arm | None:
        """The one of this launch; who came later in an earlier session comes now."""
        self._join(self._places.take(name.removesuffix(FINAL_SUFFIX)))
        return next((arm for arm in self._arms if final_name(arm) == name), None)

    def _join(self, record: Record | None) -> None:
        """It leads where all before it have failed."""
        if record is not None:
            self._arms += (Arm(record),)
            self._leader = self._leader or self._arms[-1]

    def _fill(self) -> None:
        """Give free places away while there are rounds left to be won; who is in is in order."""
        times_s = round_times_s(self._told.values())
        round_s = fmean(times_s) if times_s else 0.0
        late = self._budget.time_s - sum(times_s) < _ROUNDS_TO_HAVE * round_s
        if not late and self.rounds + _ROUNDS_TO_HAVE <= self._budget.rounds:
            while (record := self._places.next(self._arms, self._leader)) is not None:
                self._join(record)
        self._order = self._active()

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

    def _is_late(self) -> bool:
        """Whether another round would end beyond the time by more than half of it."""
        round_s = self._spent_s / self.rounds if self.rounds else 0.0
        return self._spent_s + round_s / 2.0 >= self._budget.time_s

    def _has_time(self, elapsed_s: float, *, beside: bool) -> bool:
        """Whether what is due surely ends by the budget's end, if need be without some arms."""
        left_s = self._budget.until_s - elapsed_s
        while (due := self._due()) and self._bound_s(due, beside=beside) > left_s:
            others = [arm for arm in due if arm is not self._leader and arm is not self._own()]
            if not others or not self._is_new_round():
                return False
            others[-1].is_out = True
            self._order = self._active()
        return True

    def _bound_s(self, due: Sequence[Arm], *, beside: bool) -> float:
        """What these launches take at most."""
        together = beside and fit_together([arm.searched for arm in due])
        start_s = start_bound_s([*(arm.searched for arm in self._arms), *self._told.values()])
        steps = sum(steps_s(arm, self._lengths, together=together) for arm in due)
        return len(due) * start_s + MARGIN * steps

    def _owes_a_round(self) -> bool:
        """Whether one more is due though time is up: a single pair rarely shows any gain."""
        own = self._own()
        told_apart = own is None or own.is_out or own.is_beaten or own is self._leader
        return not self.rounds or (self.rounds == 1 and not told_apart) or self._is_unmet(own)

    def _own(self) -> Arm | None:
        return next((arm for arm in self._arms if arm.searched.trial.number == 0), None)

    def _is_unmet(self, own: Arm | None) -> TypeGuard[Arm]:
        """Whether the baseline has yet to meet who leads: without that there is no speed-up."""
        first = self._leader
        if own is None or own.failed or first is None or first is own or not first.rounds:
            return False
        return not self.compare(own, first).count

    def _go_on_from(self, number: int, arm: Arm) -> None:
        """In a round of an earlier session; whoever was launched had not left."""
        arm.is_out = arm.failed is not None
        self._round = max(self._round, number)
        self._order = self._active()

    def _begin(self, elapsed_s: float) -> None:
        self._start_s = elapsed_s - self._whole_s()
        if not self._is_new_round():
            self._round += 1
            self._order = self._active()

    def _due(self) -> tuple[Arm, ...]:
        """Arms to be launched now."""
        were_all = self.rounds >= self._budget.rounds and not self._is_unmet(self._own())
        return () if self._is_spent or were_all else self._lacking()

    def _lacking(self) -> tuple[Arm, ...]:
        """Arms that this round still lacks, in its order."""
        return tuple(a for a in self._order if self._round not in a.rounds and not a.is_out)

    def _is_over(self) -> bool:
        """Whether this round is, by what its launches say, or else as nobody is lacking.

        An earlier session may have had another budget, and so others in its rounds.
        """
        said = says_over([a.rounds[self._round] for a in self._arms if self._round in a.rounds])
        return not self._lacking() if said is None else said

    def _whole_s(self) -> float:
        """Seconds of the rounds that are over."""
        whole = [record for record in self.records if record.trial.attempt in self._whole]
        return sum(round_times_s(whole))

    def _drop(self, arm: Arm) -> None:
        """One that failed: the others go on without it, if there are others."""
        arm.is_out = True
        if arm is self._leader:
            self._leader = leader(self._standing(), self._objective)

    def _close_round(self) -> None:
        for arm in self._lacking():  # of an earlier session's round
            arm.is_out = bool(arm.rounds)
        self._whole.add(self._round)
        self._round += 1
        left = [arm for arm in self._arms if not arm.is_out and not arm.is_beaten]
        first = self._leader = leader(left, self._objective) or self._leader
        alpha = self._places.level
        for arm in (arm for arm in self._arms if not arm.is_out and arm is not first):
            if first is not None:
                found = self.compare(arm, first, alpha)
                arm.is_beaten = found.differs
                arm.is_out = is_settled(
                    found,
                    is_baseline=arm.searched.trial.number == 0,
                    rounds=self._last_round(),
                    alpha=alpha,
                    effort=self.effort,
                )
        if self._is_unmet(own := self._own()):
            own.is_out = False
        self._fill()

    def _last_round(self) -> int:
        """Number of the last round, by count or by time."""
        spent_s = self._whole_s()
        by_time = self._budget.time_s * self.rounds / spent_s if spent_s else math.inf
        return max(self.rounds, int(min(self._budget.rounds, by_time)))


class Decider(Protocol):
    """What a controller asks and tells; see :class:`~.study.Study`."""

    @property
    def best(self) -> Record | None:
        """The best measured record so far."""

    def ask(self, free_slots: int, elapsed_s: float) -> tuple[Trial, ...]:
        """Trials to start now; none may mean to wait for pending ones."""

    def tell(self, record: Record) -> None:
        """Take an outcome."""

    def end_step(self, trial: Trial, step_s: Sequence[float]) -> int | None:
        """Where a running trial is to end, after these steps; None: where it was to."""

    def stop_reason(self) -> StopReason | None:
        """Why nothing more will be asked."""
