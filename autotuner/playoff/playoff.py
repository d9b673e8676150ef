"""Choose the launches of the rounds after a search, and their end. Not: the verdict (rule).

The finalists and the baseline are launched once a round, in another order each round, until the
rule is settled for all of them or the budget is spent. If they fit in memory together, the
launches of a round live side by side and take their steps in turn; else they follow each other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Protocol

from autoconf_launch.core import FailureKind

from ..measurement import FEWEST_TIMED, FINAL_SUFFIX, NORMAL, PRIOR, Effort, Noise
from ..search import MARGIN, StopKind, StopReason, at_last_level, start_bound_s
from ..space import Objective, Record, Trial, Turn
from .rule import Contender, PairedEstimate, Rounds, Ruling, ranking

MOST_BEHIND = 2.5
"""Times as long as the best that a finalist may have taken in the search."""
TOGETHER = 0.8
"""Share of the free memory that launches may use side by side."""
TURN_S = 0.05
"""Shortest useful turn: a launch wakes up with cold caches."""
TURNS, STEPS = 10, 6
"""Timed turns of launches side by side; timed steps of launches that follow each other."""
FEWEST_TURNS, MOST_LENGTH, MOST_STEPS = 4, 10, 40
"""Fewest turns of a launch, most steps of a turn, most timed steps of a launch in sequence."""
_ROUNDS_TO_HAVE = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayoffBudget:
    """Limits at which the rounds end undecided.

    Attributes:
        rounds: largest number of rounds.
        time_s: seconds from the first round on.
        until_s: time of the study by which every round must have ended.
        effort: precision to reach.
    """

    rounds: int = NORMAL.most_rounds
    time_s: float = math.inf
    until_s: float = math.inf
    effort: Effort = NORMAL


def choose_contenders(
    records: Sequence[Record],
    objective: Objective,
    wanted: int,
    noise: Noise | None,
    repeats: Sequence[Record] = (),
) -> tuple[Record, ...]:
    """The best two, others that noise does not separate from the best, and the user's own.

    Args:
        records: trials of the search.
        objective: the metric to compare by.
        wanted: largest number of finalists, the user's own not counted.
        noise: noise of the search; None if trials shared the machine, so that all are doubtful.
        repeats: launches that show a change of the machine; its present speed decides.
    """
    ranked = ranking(at_last_level(records, repeats), objective)
    if wanted < 1 or not ranked:
        return ()
    rule, best = Ruling(ranked, Rounds((), objective, noise or PRIOR)), ranked[0]

    def is_finalist(place: int, record: Record) -> bool:
        value, most = objective.of(record), objective.of(best)
        if not value or not most:
            return False
        behind = most / value if objective.higher_is_better else value / most
        is_near = behind <= MOST_BEHIND and (place < 2 or noise is None)
        return is_near or (noise is not None and _may_be_best(record, best, rule))

    others = [record for record in ranked if record.trial.number]
    near = [record for place, record in enumerate(ranked) if is_finalist(place, record)]
    chosen = [record for record in others if record in near][:wanted] or others[:1]
    measured = ranking(records, objective)
    names = {record.trial.name for record in (*measured[:1], *chosen)}
    return tuple(r for r in measured if r.trial.number == 0 or r.trial.name in names)


def _may_be_best(record: Record, best: Record, rule: Ruling) -> bool:
    """True if noise explains that it was slower; false if the trial was ended for it."""
    counts = [len(r.measurement.step_s) for r in (record, best) if r.measurement]
    return counts[0] >= min(FEWEST_TIMED, counts[1]) and not rule.versus(record, best).differs


def fit_together(records: Sequence[Record]) -> bool:
    """True if their memory, as measured on the rank of each that used most, fits side by side."""
    seen = [record.outcome.memory for record in records]
    peaks = sum(memory.peak_bytes for memory in seen if memory)
    free = min((memory.free_before_bytes for memory in seen if memory), default=0)
    return all(seen) and peaks <= TOGETHER * free


def final_name(contender: Contender) -> str:
    """Name of a contender's launches in the rounds."""
    return f"{contender.name}{FINAL_SUFFIX}"


def round_times_s(records: Iterable[Record]) -> tuple[float, ...]:
    """Wall time of each round of these launches, which were side by side or in sequence."""
    by_round: dict[int, list[Record]] = {}
    for record in records:
        by_round.setdefault(record.trial.attempt, []).append(record)
    return tuple(
        (max if all(one.trial.turn for one in launches) else sum)(one.wall_s for one in launches)
        for launches in by_round.values()
    )


def _step_s(record: Record) -> float:
    return record.measurement.mean_step_s if record.measurement else 0.0


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
        self._number = 1
        self._order = self._active()
        self._pending: set[str] = set()
        self._start_s: float | None = None
        self._spent_s = 0.0
        self._is_spent = False

    @property
    def contenders(self) -> tuple[Contender, ...]:
        """All contenders, the best of the search first."""
        return self.seen.contenders

    @property
    def records(self) -> tuple[Record, ...]:
        """All launches that have ended, in order."""
        return tuple(self._told.values())

    @property
    def leader(self) -> Contender | None:
        """The best so far; the search's best before the first round."""
        return self.seen.leader

    @property
    def best(self) -> Record | None:
        """The best so far, with the steps of all its rounds."""
        return self.leader.playoff_record() if self.leader and self.leader.rounds else None

    @property
    def rounds(self) -> int:
        """Number of rounds that are over."""
        return self.seen.count(before=self._number)

    def compare(self, slower: Contender, faster: Contender) -> PairedEstimate:
        """Cost of ``slower`` over ``faster``, as a logarithm, from the rounds of both."""
        return self.seen.compare(slower, faster)

    def ask(self, free_slots: int, elapsed_s: float) -> tuple[Trial, ...]:
        """The next launches, when none is running; no new round once the time is up.

        Even then there is a first round, and a second if the first could not separate the
        baseline from the best.
        """
        if self._start_s is None:
            self._start_s = elapsed_s - sum(round_times_s(self.records))
            if not self._is_new_round():
                self._begin_round(self._number + 1)
        if self._pending:
            return ()
        self._spent_s = elapsed_s - self._start_s
        round_s = self._spent_s / self.rounds if self.rounds else 0.0
        is_late = self._spent_s + round_s / 2.0 >= self._budget.time_s
        if self._is_new_round() and is_late and not self._owes_a_round():
            self._is_spent = True
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
        contender = next((c for c in self.contenders if final_name(c) == record.trial.name), None)
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
        left = [contender for contender in self.contenders if not contender.is_out]
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

    def _owes_a_round(self) -> bool:
        """True if a round is due though time is up: a single pair rarely shows any gain."""
        own, leader = self.seen.own, self.leader
        if not self.rounds or own is None or leader is None:
            return not self.rounds
        is_open = own is not leader and not self.seen.compare(own, leader).differs
        return self.rounds == 1 and not own.is_out and is_open

    def _has_time(self, elapsed_s: float, *, beside: bool) -> bool:
        """True if the due launches surely end in the budget; drops contenders to get there."""
        left_s = self._budget.until_s - elapsed_s
        while (due := self._due()) and self._bound_s(due, beside=beside) > left_s:
            others = [one for one in due if one is not self.leader and not one.is_own]
            if not others or not self._is_new_round():
                return False
            others[-1].is_out = True
            self._order = self._active()
        return True

    def _bound_s(self, due: Sequence[Contender], *, beside: bool) -> float:
        """Upper bound of the duration of these launches."""
        start_s = start_bound_s([*(one.searched for one in self.contenders), *self.records])
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
        name = final_name(contender)
        return replace(contender.searched.trial, name=name, attempt=self._number, final=True)

    def _in_turn(self, due: Sequence[Contender]) -> tuple[Trial, ...]:
        """Launches side by side: each passes the turn to the next, the last to the first."""
        round_s = sum(_step_s(contender.searched) for contender in due)
        turns = max(FEWEST_TURNS, self._steps(round_s, TURNS))
        lengths = [_turn_length(contender.searched) for contender in due]
        return tuple(
            replace(
                self._final(contender),
                turn=Turn(
                    next_name=final_name(after),
                    is_first=contender is due[0],
                    steps=turns * length,
                    length=length,
                ),
            )
            for contender, after, length in zip(due, (*due[1:], due[0]), lengths, strict=True)
        )

    def _alone(self, contender: Contender) -> Trial:
        """A launch whose timed steps take as long as the others' steps."""
        steps_s = [_step_s(one.searched) for one in self.contenders]
        time_s = self._steps(sum(steps_s), STEPS) * fmean(steps_s)
        steps = round(time_s / (_step_s(contender.searched) or math.inf))
        steps = max(FEWEST_TIMED, min(steps, MOST_STEPS))
        return replace(self._final(contender), timed_steps=steps)

    def _steps(self, round_s: float, most: int) -> int:
        """Steps of each launch, one round of which takes ``round_s``: fewer if time is short."""
        in_time = self._budget.time_s / (_ROUNDS_TO_HAVE * round_s) if round_s else math.inf
        return most if in_time >= most else max(FEWEST_TIMED, int(in_time))


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
