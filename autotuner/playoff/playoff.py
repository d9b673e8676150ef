"""Which trials are measured again at the end, round by round. Not: the search (Study).

The best of the search, equal within noise, and the baseline are launched in turn,
each once a round and in another order each round, until a test that may be looked at after every
round resolves them, finds that it will not, or the budget is spent.

A launch names the one that its round has next, so that a journal tells a round that was torn from
one that somebody had left, whatever the time and the budget were.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Protocol

from autoconf_launch.core import FailureKind

from ..measurement import (
    FINAL_SUFFIX,
    Effort,
    Noise,
    PairedEstimate,
    steps_apart,
    steps_of_turn,
    time_apart_s,
    turn_time_s,
    turns_of_round,
)
from ..search import MARGIN, StopKind, StopReason, start_bound_s
from ..space import Objective, Record, Trial, Turn
from .contender import ALPHA, Contender, PlayoffBudget, compare, fit_together, is_settled, leader
from .duration import round_times_s


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
    """Lengths of rounds of these configurations, of which a few must fit in ``time_s`` seconds."""
    return Lengths(
        turns=turns_of_round(records, noise, time_s),
        turn_s=turn_time_s(records),
        apart_s=time_apart_s(records, noise, time_s),
    )


def steps_s(contender: Contender, lengths: Lengths, *, together: bool) -> float:
    """Seconds of all steps of a launch of a round, those that do not count with them."""
    measured = contender.searched.measurement
    if measured is None:
        return 0.0
    in_turn = lengths.turns * steps_of_turn(contender.searched, lengths.turn_s)
    timed = in_turn if together else steps_apart(contender.searched, lengths.apart_s)
    return ((measured.first_step or 1) - 1 + timed) * measured.mean_step_s


def final_name(contender: Contender) -> str:
    """Name of an contender's launches in the rounds."""
    return f"{contender.name}{FINAL_SUFFIX}"


def in_turn(due: Sequence[Contender], number: int, steps: Lengths) -> tuple[Trial, ...]:
    """All at once: each hands the turn to the next, the last to the first, which begins."""
    after = [final_name(contender) for contender in (*due[1:], due[0])]
    each = [steps_of_turn(contender.searched, steps.turn_s) for contender in due]
    return tuple(
        replace(
            _final(contender, number, then),
            turn=Turn(
                next_name=then,
                is_first=contender is due[0],
                steps=steps.turns * length,
                length=length,
            ),
        )
        for contender, then, length in zip(due, after, each, strict=True)
    )


def alone(due: Sequence[Contender], number: int, steps: Lengths) -> tuple[Trial, ...]:
    """The first of them; the others follow it."""
    then = final_name(due[1]) if len(due) > 1 else ""
    timed = steps_apart(due[0].searched, steps.apart_s)
    return (replace(_final(due[0], number, then), timed_steps=timed),)


def says_over(launches: Sequence[Record]) -> bool | None:
    """Whether these are all of their round; None where one of before names nobody.

    A round of one is none. A failure may be the last of them.
    """
    if sum(launch.failure is None for launch in launches) < 2:
        return False
    named = {launch.trial.then for launch in launches}
    if named - {launch.trial.name for launch in launches} - {"", None}:
        return False
    return None if None in named else True


def _final(contender: Contender, number: int, then: str) -> Trial:
    name = final_name(contender)
    return replace(contender.searched.trial, name=name, attempt=number, final=True, then=then)


class Playoff:
    """Asks for rounds of launches; told records of an earlier session, it goes on there.

    Where the configurations fit side by side, those of a round live together and take steps in
    turn. Otherwise they follow each other. A round that an interruption tore is begun anew, as
    launches minutes apart do not make a pair.
    """

    def __init__(
        self,
        chosen: Sequence[Record],
        objective: Objective,
        *,
        noise: Noise,
        budget: PlayoffBudget | None = None,
    ) -> None:
        """Before the first round.

        Args:
            chosen: records of the search that take part, the best first.
            objective: what is compared.
            noise: of the search.
            budget: when to end undecided.
        """
        self._objective = objective
        self._budget = budget or PlayoffBudget()
        self._noise = noise
        self._contenders = tuple(map(Contender, chosen))
        self._lengths = lengths(chosen, noise, self._budget.time_s)
        self._told: dict[tuple[str, int], Record] = {}
        self._round = 1
        self._whole: set[int] = set()
        self._order = self._active()
        self._pending: set[str] = set()
        self._start_s: float | None = None
        self._spent_s = 0.0
        self._is_spent = False
        self._leader = leader(self._contenders, objective)

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """Everything that takes part, the best of the search first."""
        return self._contenders

    @property
    def effort(self) -> Effort:
        """How small a difference is worth how much time."""
        return self._budget.effort

    @property
    def level(self) -> float:
        """Probability of a single comparison with the best to be ever wrong."""
        return ALPHA / max(1, len(self._contenders) - 1)

    @property
    def records(self) -> tuple[Record, ...]:
        """Everything that was told, in order."""
        return tuple(self._told.values())

    @property
    def best(self) -> Record | None:
        """The best so far, with the steps of all its rounds."""
        return self._leader.playoff_record() if self._leader else None

    @property
    def leader(self) -> Contender | None:
        """The best so far; the search's best before the first round."""
        return self._leader

    @property
    def rounds(self) -> int:
        """Rounds that are over."""
        return len(self._whole)

    @property
    def rounds_in_time(self) -> int:
        """Rounds that there is time for, if each takes as long as those so far."""
        if self.stop_reason() or not self.rounds or math.isinf(self._budget.time_s):
            return self.rounds
        round_s = fmean(round_times_s(self.records))
        in_time = math.ceil(self._budget.time_s / max(round_s, 1e-9) - 0.5)
        return max(self.rounds, min(in_time, self._budget.rounds))

    def compare(
        self, slower: Contender, faster: Contender, alpha: float = ALPHA
    ) -> PairedEstimate:
        """How much longer ``slower`` takes, over the rounds that both were in."""
        return compare(slower, faster, self._objective, noise=self._noise, alpha=alpha)

    def ask(self, free_slots: int, elapsed_s: float) -> tuple[Trial, ...]:
        """The next launches, when none is running; no new round once the time is up.

        One all the same where all before it were torn, and a second one where the first could not
        tell the baseline from the best.
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
        together = free_slots >= len(due) > 1 and fit_together(
            [contender.searched for contender in due]
        )
        trials = (in_turn if together else alone)(due, self._round, self._lengths)
        self._pending = {trial.name for trial in trials}
        return trials

    def tell(self, record: Record) -> None:
        """Take a launch of this session or an earlier one; one that was preempted never was."""
        self._pending.discard(record.trial.name)
        contender = self._contender(record.trial.name)
        key = record.trial.name, record.trial.attempt
        preempted = record.failure and record.failure.kind is FailureKind.PREEMPTED
        if contender is None or key in self._told or preempted:
            return
        self._told[key] = record
        if self._start_s is None:
            self._go_on_from(record.trial.attempt, contender)
        contender.rounds[record.trial.attempt] = record
        if record.failure is not None:
            self._drop(contender)
        if self._is_over():
            self._close_round()
        elif record.failure is not None:
            self._order = self._active()

    def end_step(self, trial: Trial, step_s: Sequence[float]) -> int | None:
        """Where a launch ends, as planned: every launch of a round has the same steps."""
        return None

    def stop_reason(self) -> StopReason | None:
        """Why the rounds are over."""
        if self._pending or self._due():
            return None
        return StopReason(kind=StopKind.EXPLORED)

    def _contender(self, name: str) -> Contender | None:
        return next((one for one in self._contenders if final_name(one) == name), None)

    def _active(self) -> tuple[Contender, ...]:
        """Contenders of this round in its order; none where there is nothing to compare."""
        left = [contender for contender in self._contenders if not contender.is_out]
        if len(left) < 2:
            return ()
        first = (self._round - 1) % len(left)
        return (*left[first:], *left[:first])

    def _standing(self) -> tuple[Contender, ...]:
        """Contenders that have not failed and are not known to be slower."""
        return tuple(
            contender
            for contender in self._contenders
            if not contender.failed and not contender.is_beaten
        )

    def _is_new_round(self) -> bool:
        return not any(self._round in contender.rounds for contender in self._order)

    def _is_late(self) -> bool:
        """Whether another round would end beyond the time by more than half of it."""
        round_s = self._spent_s / self.rounds if self.rounds else 0.0
        return self._spent_s + round_s / 2.0 >= self._budget.time_s

    def _has_time(self, elapsed_s: float, *, beside: bool) -> bool:
        """Whether what is due surely ends in the budget, if need be without some contenders."""
        left_s = self._budget.until_s - elapsed_s
        while (due := self._due()) and self._bound_s(due, beside=beside) > left_s:
            others = [
                contender
                for contender in due
                if contender is not self._leader and contender is not self._own()
            ]
            if not others or not self._is_new_round():
                return False
            others[-1].is_out = True
            self._order = self._active()
        return True

    def _bound_s(self, due: Sequence[Contender], *, beside: bool) -> float:
        """What these launches take at most."""
        together = beside and fit_together([contender.searched for contender in due])
        start_s = start_bound_s(
            [*(contender.searched for contender in self._contenders), *self._told.values()]
        )
        steps = sum(steps_s(contender, self._lengths, together=together) for contender in due)
        return len(due) * start_s + MARGIN * steps

    def _owes_a_round(self) -> bool:
        """Whether one more is due though time is up: a single pair rarely shows any gain."""
        own = self._own()
        told_apart = own is None or own.is_out or own.is_beaten or own is self._leader
        return not self.rounds or (self.rounds == 1 and not told_apart)

    def _own(self) -> Contender | None:
        return next((one for one in self._contenders if one.searched.trial.number == 0), None)

    def _go_on_from(self, number: int, contender: Contender) -> None:
        """Go on in a round of an earlier session; what was launched had not left."""
        contender.is_out = contender.failed is not None
        self._round = max(self._round, number)
        self._order = self._active()

    def _begin(self, elapsed_s: float) -> None:
        self._start_s = elapsed_s - self._whole_s()
        if not self._is_new_round():
            self._round += 1
            self._order = self._active()

    def _due(self) -> tuple[Contender, ...]:
        """Contenders to be launched now."""
        were_all = self.rounds >= self._budget.rounds
        return () if self._is_spent or were_all else self._missing_contenders()

    def _missing_contenders(self) -> tuple[Contender, ...]:
        """Contenders that this round still lacks, in its order."""
        return tuple(a for a in self._order if self._round not in a.rounds and not a.is_out)

    def _is_over(self) -> bool:
        """Whether this round is, by what its launches say, or else as nobody is lacking.

        An earlier session may have had another budget, and so others in its rounds.
        """
        said = says_over(
            [a.rounds[self._round] for a in self._contenders if self._round in a.rounds]
        )
        return not self._missing_contenders() if said is None else said

    def _whole_s(self) -> float:
        """Seconds of the rounds that are over."""
        whole = [record for record in self.records if record.trial.attempt in self._whole]
        return sum(round_times_s(whole))

    def _drop(self, contender: Contender) -> None:
        """One that failed: the others go on without it, if there are others."""
        contender.is_out = True
        if contender is self._leader:
            self._leader = leader(self._standing(), self._objective)

    def _close_round(self) -> None:
        for contender in self._missing_contenders():  # of an earlier session's round
            contender.is_out = bool(contender.rounds)
        self._whole.add(self._round)
        self._round += 1
        left = [
            contender
            for contender in self._contenders
            if not contender.is_out and not contender.is_beaten
        ]
        first = self._leader = leader(left, self._objective) or self._leader
        alpha = self.level
        for contender in (
            contender
            for contender in self._contenders
            if not contender.is_out and contender is not first
        ):
            if first is not None:
                found = self.compare(contender, first, alpha)
                contender.is_beaten = found.differs
                contender.is_out = is_settled(
                    found,
                    is_baseline=contender.searched.trial.number == 0,
                    rounds=self._last_round(),
                    alpha=alpha,
                    effort=self.effort,
                )
        self._order = self._active()

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
