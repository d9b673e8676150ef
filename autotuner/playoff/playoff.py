"""Choose the launches of the rounds after a search, and their end. Not: the verdict (rule).

The finalists and the user's own configuration are launched once a round, in another order each
round, as long as a finalist is expected to gain something over the leader, or the leader is not
shown to be faster than the user's own. If they fit in memory together, the launches of a round
live side by side and take their steps in turn; else they follow each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from autoconf_launch.core import FailureKind

from ..measurement import FEWEST_TIMED, FINAL_SUFFIX, NORMAL, Effort, Noise
from ..search import MARGIN, StopKind, StopReason, at_last_level, start_bound_s
from ..space import Objective, Record, Trial, Turn
from .rule import MOST_ROUNDS, Contender, Rounds, Ruling, ranking

TOGETHER = 0.8
"""Share of the free memory that launches may use side by side."""
TURN_S = 0.05
"""Shortest useful turn: a launch wakes up with cold caches."""
FEWEST_TURNS, MOST_TURNS, MOST_LENGTH = 3, 10, 10
"""Fewest and most timed turns of a launch, and most steps of a turn."""
MOST_STEPS = 6
"""Most timed steps of launches that follow each other."""
_ROUNDS_TO_HAVE = 2
"""Rounds for which the time is divided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayoffBudget:
    """Limits at which the rounds end undecided.

    Attributes:
        rounds: largest number of rounds.
        time_s: seconds from the first round on.
        until_s: time of the study by which every round must have ended.
        effort: precision to reach.
    """

    rounds: int = MOST_ROUNDS
    time_s: float = math.inf
    until_s: float = math.inf
    effort: Effort = NORMAL


def choose_contenders(
    records: Sequence[Record],
    objective: Objective,
    effort: Effort,
    noise: Noise,
    repeats: Sequence[Record] = (),
    *,
    side_by_side: bool = False,
) -> tuple[Record, ...]:
    """The configurations of the rounds, the best first; none if the search has decided.

    They are the best that changes something, others with an expected gain over it, and the user's
    own.

    Args:
        records: trials of the search.
        objective: the metric to compare by.
        effort: sets the number of finalists and the gain that is worth a launch.
        noise: noise of the search.
        repeats: repeats of trials; if the machine has changed, its present speed decides.
        side_by_side: trials shared the machine, so that all are doubtful and take part.
    """
    ranked = ranking(at_last_level(records, repeats), objective)
    rule = Ruling(ranked, Rounds((), objective, noise), effort)
    own = [record for record in ranked if not record.trial.number]
    changed = [record for record in ranked if record.trial.number][: effort.contenders]
    if not changed:
        return ()
    best, others = changed[0], changed[1:]
    rivals = [
        record
        for record in others
        if side_by_side or rule.versus(record, best).expected_gain >= effort.worth
    ]
    again = [record for record in repeats if not record.trial.number]
    is_shown = all(rule.versus(record, best).differs for record in (*own, *again))
    if is_shown and not rivals and not side_by_side:
        return ()
    names = {record.trial.name for record in (best, *own, *rivals)}
    return tuple(r for r in ranking(records, objective) if r.trial.name in names)


def fit_together(records: Sequence[Record]) -> bool:
    """True if their memory, as measured on the rank of each that used most, fits side by side."""
    seen = [record.outcome.memory for record in records]
    peaks = sum(memory.peak_bytes for memory in seen if memory)
    free = min((memory.free_before_bytes for memory in seen if memory), default=0)
    return all(seen) and peaks <= TOGETHER * free


def round_times_s(records: Iterable[Record]) -> tuple[float, ...]:
    """Wall time of each round of these launches, which were side by side or in sequence."""
    by_round: dict[int, list[Record]] = {}
    for record in records:
        by_round.setdefault(record.trial.attempt, []).append(record)
    return tuple(
        (max if all(one.trial.turn for one in launches) else sum)(one.wall_s for one in launches)
        for launches in by_round.values()
    )


class Playoff:
    """Asks for rounds of launches; given the records of an earlier session, it goes on there.

    An interrupted round is followed by a new one: launches minutes apart are not a pair.
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

        ``chosen``: records of the search that take part, the best first.
        """
        self.seen = Rounds(chosen, objective, noise)
        """The rounds so far."""
        self._budget = budget or PlayoffBudget()
        self._told: dict[tuple[str, int], Record] = {}
        self._pending: set[str] = set()
        self._start_s: float | None = None
        self._is_spent = False
        self._number = 1
        self._order = self._active()

    @property
    def records(self) -> tuple[Record, ...]:
        """All launches that have ended, in order."""
        return tuple(self._told.values())

    @property
    def best(self) -> Record | None:
        """The best so far, with the steps of all its rounds."""
        leader = self.seen.leader
        return leader.playoff_record() if leader and leader.rounds else None

    @property
    def rounds(self) -> int:
        """Number of rounds that are over."""
        return self.seen.count(before=self._number)

    def ask(self, free_slots: int, elapsed_s: float) -> tuple[Trial, ...]:
        """The next launches, when none is running; no new round once the time is up.

        Even then there is a first round, and a second if the first shows no gain.
        """
        if self._start_s is None:
            self._start_s = elapsed_s - sum(round_times_s(self.records))
            if not self._is_new_round():
                self._begin_round(self._number + 1)
        if self._pending:
            return ()
        self._is_spent |= self._is_late(elapsed_s - self._start_s)
        self._is_spent |= not self._has_time(elapsed_s, beside=free_slots > 1)
        due = self._due()
        if not due or free_slots < 1:
            return ()
        together = self._together(due, beside=free_slots >= len(due))
        trials = self._in_turn(due) if together else (self._alone(due[0]),)
        self._pending = {trial.name for trial in trials}
        return trials

    def tell(self, record: Record) -> None:
        """Take a launch of this session or an earlier one; a preempted launch has no effect."""
        self._pending.discard(record.trial.name)
        key, number = (record.trial.name, record.trial.attempt), record.trial.attempt
        contender = next(
            (c for c in self.seen.contenders if _final_name(c) == record.trial.name), None
        )
        preempted = record.failure and record.failure.kind is FailureKind.PREEMPTED
        if contender is None or key in self._told or preempted:
            return
        if number > self._number:  # the round before was torn, or smaller for want of time
            self._begin_round(number)
        self._told[key] = contender.rounds[number] = record
        contender.is_out = record.failure is not None
        self._order = self._active() if contender.is_out else self._order
        if not self._missing():
            for one in self._active():
                one.is_out = self.seen.is_settled(one, self._budget.effort)
            self._begin_round(number + 1)

    def end_step(self, trial: Trial, step_s: Sequence[float]) -> int | None:
        """The planned end: every launch of a round has the same steps."""
        return None

    def stop_reason(self) -> StopReason | None:
        """The reason why the rounds are over; None if they are not."""
        if self._pending or self._due():
            return None
        return StopReason(kind=StopKind.EXPLORED)

    def _begin_round(self, number: int) -> None:
        self._number = number
        self._order = self._active()

    def _active(self) -> tuple[Contender, ...]:
        """Contenders of this round in its order; none if there is nothing to compare."""
        left = [contender for contender in self.seen.contenders if not contender.is_out]
        if len(left) < 2:
            return ()
        first = (self._number - 1) % len(left)
        return (*left[first:], *left[:first])

    def _is_new_round(self) -> bool:
        return not any(self._number in contender.rounds for contender in self._order)

    def _missing(self) -> tuple[Contender, ...]:
        """Contenders that this round still lacks, in its order."""
        return tuple(c for c in self._order if self._number not in c.rounds and not c.is_out)

    def _due(self) -> tuple[Contender, ...]:
        is_over = self._is_spent or self.rounds >= self._budget.rounds
        return () if is_over else self._missing()

    def _is_late(self, spent_s: float) -> bool:
        """True if most of a new round would be beyond the time, and none is owed."""
        if not self.rounds or not self._is_new_round():
            return False
        own, leader = self.seen.own, self.seen.leader
        is_open = (
            own and leader and own is not leader and not self.seen.compare(own, leader).differs
        )
        return not (is_open and self.rounds == 1) and (
            spent_s * (1.0 + 0.5 / self.rounds) >= self._budget.time_s
        )

    def _has_time(self, elapsed_s: float, *, beside: bool) -> bool:
        """True if the due launches surely end in the budget; drops contenders to get there."""
        left_s = self._budget.until_s - elapsed_s
        while (due := self._due()) and self._bound_s(due, beside=beside) > left_s:
            others = [one for one in due if one is not self.seen.leader and not one.is_own]
            if not others or not self._is_new_round():
                return False
            others[-1].is_out = True
            self._order = self._active()
        return True

    def _bound_s(self, due: Sequence[Contender], *, beside: bool) -> float:
        start_s = start_bound_s([*(one.searched for one in self.seen.contenders), *self.records])
        together = self._together(due, beside=beside)
        launches = self._in_turn(due) if together else map(self._alone, due)
        steps_s = sum(
            ((one.searched.measurement.first_step or 1) - 1 + _timed_steps(trial))
            * _step_s(one.searched)
            for one, trial in zip(due, launches, strict=True)
            if one.searched.measurement
        )
        return len(due) * start_s + MARGIN * steps_s

    def _together(self, due: Sequence[Contender], *, beside: bool) -> bool:
        return beside and len(due) > 1 and fit_together([one.searched for one in due])

    def _final(self, contender: Contender) -> Trial:
        name = _final_name(contender)
        return replace(contender.searched.trial, name=name, attempt=self._number, final=True)

    def _in_turn(self, due: Sequence[Contender]) -> tuple[Trial, ...]:
        """Launches side by side: each passes the turn to the next, the last to the first."""
        turns = max(FEWEST_TURNS, self._in_time(MOST_TURNS))
        lengths = [_turn_length(contender.searched) for contender in due]
        return tuple(
            replace(
                self._final(contender),
                turn=Turn(
                    next_name=_final_name(after),
                    is_first=contender is due[0],
                    steps=turns * length,
                    length=length,
                ),
            )
            for contender, after, length in zip(due, (*due[1:], due[0]), lengths, strict=True)
        )

    def _alone(self, contender: Contender) -> Trial:
        steps = max(FEWEST_TIMED, self._in_time(MOST_STEPS))
        return replace(self._final(contender), timed_steps=steps)

    def _in_time(self, most: int) -> int:
        """Steps of each launch, fewer than ``most`` if time is short."""
        round_s = sum(_step_s(contender.searched) for contender in self.seen.contenders)
        in_time = self._budget.time_s / (_ROUNDS_TO_HAVE * round_s) if round_s else math.inf
        return most if in_time >= most else int(in_time)


def _final_name(contender: Contender) -> str:
    """Name of a contender's launches in the rounds."""
    return f"{contender.name}{FINAL_SUFFIX}"


def _step_s(record: Record) -> float:
    return record.measurement.mean_step_s if record.measurement else 0.0


def _turn_length(record: Record) -> int:
    """Steps in a row that fill a turn."""
    return min(MOST_LENGTH, math.ceil(TURN_S / (_step_s(record) or TURN_S)))


def _timed_steps(trial: Trial) -> int:
    return trial.turn.steps if trial.turn else trial.timed_steps


class Decider(Protocol):
    """The part of a study that a controller uses; see :class:`~..search.Study`."""

    @property
    def best(self) -> Record | None:
        """The best measured record so far."""

    def ask(self, free_slots: int, elapsed_s: float) -> tuple[Trial, ...]:
        """Trials to start now; none may mean to wait for pending ones."""

    def tell(self, record: Record) -> None:
        """Take an outcome."""

    def end_step(self, trial: Trial, step_s: Sequence[float]) -> int | None:
        """The step at which a running trial must end, after these steps; None: as planned."""

    def stop_reason(self) -> StopReason | None:
        """The reason why no more trials will start."""
