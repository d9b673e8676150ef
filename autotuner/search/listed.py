"""A study of candidates in a given order: each is tried once.

There is no baseline. A failed candidate does not affect the others, except that an out-of-memory
failure rules out candidates that surely need more.
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
    """Gives out trials and takes their records until none is left; a ``Decider``."""

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
            trials: trials in order, each with its own name.
            most_steps: largest number of steps of a trial.
            most_s: seconds of steps after which a trial ends.
            objective: metric by which the best is chosen; default: samples per second.
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
        """The metric to optimise."""
        return self._objective

    @property
    def best(self) -> Record | None:
        """The best measured record so far."""
        return self._best

    @property
    def records(self) -> tuple[Record, ...]:
        """All records so far, in order."""
        return tuple(self._told.values())

    @property
    def ruled_out(self) -> tuple[tuple[str, Record], ...]:
        """Names that were not tried, each with the failure that rules it out."""
        return tuple(self._ruled_out.items())

    def ask(self, free_slots: int, elapsed_s: float) -> tuple[Trial, ...]:
        """The next trials in order."""
        trials = tuple(self._waiting[:free_slots])
        self._waiting = self._waiting[len(trials) :]
        self._pending |= {trial.name: trial for trial in trials}
        return trials

    def tell(self, record: Record) -> None:
        """Take an outcome of this session or an earlier one; a second time has no effect."""
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
        """Skip candidates that surely need more; if the failure is not sure, try again once."""
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
