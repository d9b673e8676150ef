"""Whether the winner holds out: one longer launch, as the training will be. Not: its speed.

The script's own evaluation and checkpoint are moved into it where its words allow that; else its
data ends with the steps, as after an epoch. What of them happened is seen, not assumed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from autoconf_launch.core import FailureKind, MemoryUse

from ..measurement import NORMAL
from ..search import MARGIN, StopKind, StopReason
from ..space import CandidateTable, FailedTrial, Record, Trial, surely_needs_more
from .soak_report import (
    SUFFIX,
    failed_alike,
    fails_whatever,
    needs_less,
    refusal,
    report,
    soaked_name,
    soaked_name_of,
)

FEWEST_STEPS = 5

_DOUBTFUL = (FailureKind.CRASHED, FailureKind.BAD_CONFIG, FailureKind.NO_STEPS)
"""What a script may fail with because its evaluation or its checkpoint was moved."""


class Soak:
    """Asks for the winner; for the next safer one where it does not pass.

    Where two fail alike, and not of memory, the user's own goes first: if it fails so too, it is
    the script that fails, whatever the configuration. If it passes, it still waits for its turn.
    """

    def __init__(
        self,
        ranked: Sequence[Record],
        *,
        steps: int,
        start_s: float = 0.0,
        until_s: float = math.inf,
    ) -> None:
        """``ranked`` is the best first; ``steps`` are of each, fewer where time is short.

        A launch takes ``start_s`` beside its steps; all of them end by ``until_s`` of the study.

        The script's evaluation and checkpoint are moved into a first attempt, so that it may fail
        for that. Then a second one omits what trials do.
        """
        self._left = list(ranked)
        self._steps = steps
        self._told: list[Record] = []
        self._pending = False
        self._passed: Record | None = None
        self._start_s, self._until_s = start_s, until_s
        self.lacks_time = ""
        """Where time was up before any passed, a sentence on that."""

    @property
    def records(self) -> tuple[Record, ...]:
        """Everything that was told, in order."""
        return tuple(self._told)

    @property
    def best(self) -> Record | None:
        """The one that passed in its turn."""
        return self._passed if self._left and self._is_sound(self._left[0]) else None

    @property
    def choice(self) -> Record | None:
        """What passed; where nobody did before time was up, the best that was not refused."""
        return self.best or (self._left[0] if self._left else None)

    def ask(self, free_slots: int, elapsed_s: float) -> tuple[Trial, ...]:
        """The next one, unless one has passed."""
        if self._pending or free_slots < 1 or self.stop_reason():
            return ()
        again = bool(self._told) and _is_doubtful(self._told[-1])
        trial = self._told[-1].trial if again else self._next().trial
        steps = self._steps_until(elapsed_s)
        if steps < min(FEWEST_STEPS, self._steps):
            left_s = max(0.0, self._until_s - elapsed_s)
            self.lacks_time = _no_time(trial, f"{left_s:.0f} s remain")
            return ()
        self._pending = True
        name = f"{soaked_name_of(trial)}{SUFFIX}"
        attempt = 2 if again else 1
        return (replace(trial, name=name, attempt=attempt, final=False, soak_steps=steps),)

    def tell(self, record: Record) -> None:
        """Take an outcome; what is not safer than a refused one is not tried."""
        self._pending = False
        if record.failure and record.failure.kind is FailureKind.PREEMPTED:
            self.lacks_time = _no_time(record.trial, "it was ended within its steps")
            return
        name = soaked_name(record)
        tried = next((r for r in self._left if r.trial.name == name), None)
        if tried is None:
            return
        self._told.append(record)
        if refusal(record) is None:
            self._passed = record
        elif not _is_doubtful(record):
            self._left.remove(tried)
            self._rule_out(record, tried)

    def end_step(self, trial: Trial, step_s: Sequence[float]) -> int | None:
        """As planned."""
        return None

    def stop_reason(self) -> StopReason | None:
        """Why the runs are over: one passed, or none is left."""
        if self._pending or (self._left and not self.best and not self.lacks_time):
            return None
        kind = StopKind.EXPLORED if self.best else StopKind.NOTHING_MEASURED
        return StopReason(kind=kind, error=self.lacks_time or report(self.records).error)

    def _steps_until(self, elapsed_s: float) -> int:
        """Those that the next launch surely has time for, at most as many as wanted."""
        measured = self._next().measurement
        left_s = self._until_s - elapsed_s - self._start_s
        if measured is None or math.isinf(left_s):
            return self._steps
        return min(self._steps, int(max(0.0, left_s) / (MARGIN * measured.mean_step_s)))

    def _is_sound(self, record: Record) -> bool:
        return self._passed is not None and soaked_name(self._passed) == record.trial.name

    def _next(self) -> Record:
        """The user's own where only that can tell whether any will pass; else the best."""
        own = (r for r in self._left if r.trial.number == 0 and not self._is_sound(r))
        first = self._left[0]
        return next(own, first) if len(failed_alike(self._told)) > 1 else first

    def _rule_out(self, record: Record, tried: Record) -> None:
        """What this refusal says of others."""
        if needs_less(record):
            safer = _safer(self._left, tried)
            self._left = [r for r in self._left if r in safer or self._is_sound(r)]
        elif fails_whatever(self._told):
            self._left = []


def soak_steps(
    asked: int | None, *, step_s: float, time_s: float, most: int = NORMAL.verification_steps
) -> int:
    """How many: as asked, else ``most`` or what ``time_s`` has room for."""
    if asked is not None:
        return asked
    return max(FEWEST_STEPS, min(most, int(time_s / step_s)))


def _no_time(trial: Trial, why: str) -> str:
    """For people."""
    name = soaked_name_of(trial)
    return f"The budget had no room for a verification run of {name}: {why}."


def _is_doubtful(record: Record) -> bool:
    """Whether a first attempt failed, and neither of memory nor in what was moved."""
    if record.trial.attempt > 1 or not isinstance(record.outcome, FailedTrial):
        return False
    asides = record.outcome.asides
    return record.outcome.failure.kind in _DOUBTFUL and not (asides and asides.under_way)


def _safer(left: Sequence[Record], full: Record) -> list[Record]:
    """What was seen or surely is to need less; where nobody saw, what surely needs no more."""
    own = full.outcome.memory
    if own is not None:
        return [
            record
            for record in left
            if _is_below(record.outcome.memory, own) or _is_smaller(record, full)
        ]
    table = CandidateTable.from_candidates([record.trial.candidate for record in left])
    more = surely_needs_more(table, full.trial.candidate)
    return [record for record, known in zip(left, more, strict=True) if not known]


def _is_smaller(one: Record, other: Record) -> bool:
    """Whether it needs less whatever was seen: figures of small models are noise."""
    ours, theirs = one.trial.candidate, other.trial.candidate
    table = CandidateTable.from_candidates([ours, theirs])
    return bool(surely_needs_more(table, ours)[1] and not surely_needs_more(table, theirs)[0])


def _is_below(one: MemoryUse | None, other: MemoryUse) -> bool:
    return one is not None and one.peak_bytes < other.peak_bytes
