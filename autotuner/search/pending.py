"""Which trials were handed out and told of, and which get a second attempt. Not: the choice."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..space import Record, Trial, is_sure
from .pool import Pool

_ATTEMPTS = 2


class PendingTrials:
    """Takes rows out of the pool as trials are handed out or told of."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._told: set[tuple[str, int]] = set()
        self._running: dict[tuple[str, int], Trial] = {}
        self._again: dict[str, Trial] = {}

    @property
    def pending(self) -> tuple[Trial, ...]:
        """Trials that were handed out and not told yet."""
        return tuple(trial for trial in self._running.values() if not trial.again)

    @property
    def is_repeating(self) -> bool:
        """Whether something that was measured is being launched again."""
        return any(trial.again for trial in self._running.values())

    @property
    def second_attempts(self) -> tuple[Trial, ...]:
        """Due after an out-of-memory that was not sure."""
        return tuple(self._again.values())

    @property
    def is_waiting(self) -> bool:
        """Whether anything is still to come back."""
        return bool(self._running or self._again)

    def forget(self, trial: Trial) -> None:
        """Forget a trial that was ended for want of time, or never launched again for that."""
        self._running.pop((trial.name, trial.attempt), None)
        self._again.pop(trial.name, None)

    def is_open(self, name: str) -> bool:
        """Whether a trial of this name is still to come back."""
        return name in self._again or any(trial.name == name for trial in self.pending)

    def give(self, trials: Iterable[Trial]) -> None:
        """They run from now on."""
        for trial in trials:
            self._running[trial.name, trial.attempt] = trial
            self._mark(trial)

    def take(self, trial: Trial) -> bool:
        """Take a trial that came back; whether that was not told before."""
        key = trial.name, trial.attempt
        self._running.pop(key, None)
        if key in self._told:
            return False
        self._told.add(key)
        self._mark(trial)
        return True

    def learn_from_full_memory(self, record: Record) -> None:
        """Rule out what surely needs more, or try once again where it is not sure."""
        trial = record.trial
        if is_sure(record):
            self._pool.rule_out_larger(record)
        elif trial.attempt < _ATTEMPTS:
            self._again[trial.name] = replace(trial, attempt=trial.attempt + 1)
        self._again = {
            name: waiting
            for name, waiting in self._again.items()
            if not self._pool.is_closed(waiting.candidate)
        }

    def _mark(self, trial: Trial) -> None:
        if not trial.again:
            self._again.pop(trial.name, None)
            self._pool.take_out(trial.candidate)
