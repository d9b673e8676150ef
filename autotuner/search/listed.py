"""A study of candidates in a given order: each is tried once.

There is no baseline; a candidate that fails says nothing of the next one, but that one which ran
out of memory rules out what surely needs more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..space import (
    OBJECTIVES,
    CandidateTable,
    Objective,
    Record,
    Trial,
    is_better,
    is_out_of_memory,
    is_sure,
    surely_needs_more,
)
from . import stop
from .stop import StopReason

_ATTEMPTS = 2


class ListedStudy:
    """Ask it for trials, tell it what came back, until none is left; a ``Decider``."""

    def __init__(
        self,
        trials: Sequence[Trial],
        *,
        most_steps: int,
        most_s: float,
        objective: Objective = OBJECTIVES["throughput"],
    ) -> None:
        """Start without any record.

        Args:
            trials: in order, each with a name of its own.
            most_steps: that a trial makes.
            most_s: seconds of steps, after which a trial makes no more.
            objective: by which one is the best; samples of a second unless said.
        """
        self._waiting = list(trials)
        self._most_steps, self._most_s = most_steps, most_s
        self._objective = objective
        self._pending: dict[str, Trial] = {}
        self._told: dict[tuple[str, int], Record] = {}
        self._ruled_out: dict[str, Record] = {}
        self._best: Record | None = None

    @property
    def objective(self) -> Objective:
        """What is optimised."""
        return self._objective

    @property
    def best(self) -> Record | None:
        """The best measured record so far."""
        return self._best

    @property
    def records(self) -> tuple[Record, ...]:
        """Everything that was told, in order."""
        return tuple(self._told.values())

    @property
    def ruled_out(self) -> tuple[tuple[str, Record], ...]:
        """Names that were not tried, each with the failure that rules it out."""
        return tuple(self._ruled_out.items())

    def ask(self, free_slots: int, elapsed_s: float) -> tuple[Trial, ...]:
        """The next ones in order."""
        trials = tuple(self._waiting[:free_slots])
        self._waiting = self._waiting[len(trials) :]
        self._pending |= {trial.name: trial for trial in trials}
        return trials

    def tell(self, record: Record) -> None:
        """Take an outcome of this session or an earlier one; twice is once."""
        trial = record.trial
        self._pending.pop(trial.name, None)
        self._waiting = [one for one in self._waiting if one.name != trial.name]
        if (trial.name, trial.attempt) in self._told:
            return
        self._told[trial.name, trial.attempt] = record
        if is_better(record, self._best, self.objective):
            self._best = record
        if is_out_of_memory(record):
            self._learn(record)

    def end_step(self, trial: Trial, step_s: Sequence[float]) -> int:
        """The last step that its minutes allow, and ``most_steps`` at most."""
        spent_s = sum(step_s)
        if step_s and spent_s + spent_s / len(step_s) > self._most_s:
            return len(step_s)
        return self._most_steps

    def stop_reason(self) -> StopReason | None:
        """The stop once all were tried; an error unless one was measured."""
        if self._waiting or self._pending:
            return None
        return stop.exploration_end(self.records, None)

    def _learn(self, record: Record) -> None:
        """Skip what surely needs more, or try once again where it is not sure."""
        trial = record.trial
        if not is_sure(record):
            if trial.attempt < _ATTEMPTS:
                self._waiting.insert(0, replace(trial, attempt=trial.attempt + 1))
            return
        if not self._waiting:
            return
        table = CandidateTable.from_candidates([one.candidate for one in self._waiting])
        larger_C = surely_needs_more(table, trial.candidate)
        gone = [self._waiting[int(row)] for row in np.flatnonzero(larger_C)]
        self._ruled_out |= {one.name: record for one in gone}
        self._waiting = [one for one in self._waiting if one.name not in self._ruled_out]
