"""The verification run: one longer launch of the winner, as the training will be.

The script's own evaluation and checkpoint are moved into it if its arguments allow that; else its
data ends with the steps, as after an epoch. The report has only the events that were observed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autoconf_launch.core import Asides, Failure, FailureKind, MemoryUse

from ..measurement import NORMAL
from ..search import MARGIN, StopKind, StopReason
from ..space import CandidateTable, FailedTrial, Record, Trial, surely_needs_more

MOST_MEMORY = 0.98
"""Share of the device's memory; a training that needs more fails sooner or later."""
FEWEST_STEPS = 5
FEWEST_STEPS_OF_AN_EPOCH = 10
"""Steps of an epoch below which the report names their number."""
SOAK_SUFFIX = "_soak"
"""Suffix of a launch's name."""
_DOUBTFUL = (FailureKind.CRASHED, FailureKind.BAD_CONFIG, FailureKind.NO_STEPS)
"""Kinds of failure that a moved evaluation or checkpoint may cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LackOfTime:
    """A verification run that lacked time; ``left_s`` None: it was ended while it ran."""

    name: str
    left_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A configuration that did not pass: it failed, or used more memory than is safe."""

    name: str
    failure: Failure | None
    memory_share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FewSteps:
    """A global batch other than the user's that leaves few steps in an epoch."""

    global_batch: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakReport:
    """The launch that the winner passed, or that nothing passed.

    Attributes:
        steps: number of optimizer steps that it made.
        memory_share: peak memory as a share of the limit; None if there is no limit.
        refused: better configurations that did not pass.
        passed: True if the last run passed.
        phases: mean seconds of its steps' phases; only our own runtime measures them.
        step_s: mean seconds of the timed steps; 0 if there are none.
        asides: events of the script between its steps; None if they were not observed.
        as_trial: failure because of which the passed run omitted the moved parts; else None.
        few_steps: set if a batch other than the user's leaves few steps in an epoch.
        whatever: failure of the script in any configuration; None if that is not known.
    """

    steps: int
    memory_share: float | None
    refused: tuple[Refusal, ...]
    passed: bool
    phases: tuple[tuple[str, float], ...] = ()
    step_s: float = 0.0
    asides: Asides | None = None
    as_trial: Failure | None = None
    whatever: Failure | None = None
    few_steps: FewSteps | None = None


class Soak:
    """Asks for a run of the winner; if it does not pass, of the next safer configuration.

    If two fail alike, and not of memory, the user's own goes first: if it fails in the same way,
    the script fails in any configuration. If it passes, it still waits for its turn.
    """

    def __init__(
        self,
        ranked: Sequence[Record],
        *,
        steps: int,
        start_s: float = 0.0,
        until_s: float = math.inf,
    ) -> None:
        """``ranked`` is the best first; ``steps`` is for each run, fewer if time is short.

        A launch takes ``start_s`` besides its steps; all of them end by ``until_s`` of the study.

        The script's evaluation and checkpoint are moved into a first attempt, so that it may fail
        for that. Then a second attempt omits them, as trials do, if there is time for the same
        number of steps: a shorter run may end before it reaches the failure.
        """
        self._left = list(ranked)
        self._steps = steps
        self._told: list[Record] = []
        self._pending = False
        self._crash_stands = False
        self._passed: Record | None = None
        self._start_s, self._until_s = start_s, until_s
        self.lacks_time: LackOfTime | None = None
        """Set if time was up before any passed."""

    @property
    def records(self) -> tuple[Record, ...]:
        """All runs that counted, in order."""
        return tuple(self._told)

    @property
    def best(self) -> Record | None:
        """The run that passed, if the best that is left made it."""
        return self._passed if self._left and self._is_sound(self._left[0]) else None

    @property
    def choice(self) -> Record | None:
        """The run that passed; if time ran out first, the best record that was not refused."""
        return self.best or (self._left[0] if self._left else None)

    def ask(self, free_slots: int, elapsed_s: float) -> tuple[Trial, ...]:
        """The next run, unless one has passed."""
        if self._pending or free_slots < 1 or self.stop_reason():
            return ()
        again = bool(self._told) and _is_doubtful(self._told[-1])
        trial = self._told[-1].trial if again else self._next().trial
        steps = self._steps_until(elapsed_s)
        if again and steps < self._told[-1].trial.soak_steps:
            self._crash_stands = True
            return ()
        if steps < min(FEWEST_STEPS, self._steps):
            left_s = max(0.0, self._until_s - elapsed_s)
            self.lacks_time = LackOfTime(name=soaked_name(trial), left_s=left_s)
            return ()
        self._pending = True
        name = f"{soaked_name(trial)}{SOAK_SUFFIX}"
        attempt = 2 if again else 1
        return (trial.as_soak(name, attempt=attempt, steps=steps),)

    def tell(self, record: Record) -> None:
        """Take an outcome; configurations no safer than a refused one are not tried."""
        self._pending = False
        if record.failure and record.failure.kind is FailureKind.PREEMPTED:
            self.lacks_time = LackOfTime(name=soaked_name(record.trial))
            return
        name = soaked_name(record.trial)
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
        """None: the launch ends as planned."""
        return None

    def stop_reason(self) -> StopReason | None:
        """The reason why the runs are over: one passed, or none is left."""
        is_over = self.best or self.lacks_time or self._crash_stands
        if self._pending or (self._left and not is_over):
            return None
        kind = StopKind.EXPLORED if self.best else StopKind.NOTHING_MEASURED
        return StopReason(kind=kind)

    def _steps_until(self, elapsed_s: float) -> int:
        """Steps that the next launch surely has time for, at most as many as wanted."""
        measured = self._next().measurement
        left_s = self._until_s - elapsed_s - self._start_s
        if measured is None or math.isinf(left_s):
            return self._steps
        return min(self._steps, int(max(0.0, left_s) / (MARGIN * measured.mean_step_s)))

    def _is_sound(self, record: Record) -> bool:
        return self._passed is not None and soaked_name(self._passed.trial) == record.trial.name

    def _next(self) -> Record:
        """The user's own if only its run can tell whether any will pass; else the best."""
        own = (r for r in self._left if r.trial.number == 0 and not self._is_sound(r))
        first = self._left[0]
        return next(own, first) if len(failed_alike(self._told)) > 1 else first

    def _rule_out(self, record: Record, tried: Record) -> None:
        """Drop the records that this refusal rules out."""
        if needs_less(record):
            safer = _safer(self._left, tried)
            self._left = [r for r in self._left if r in safer or self._is_sound(r)]
        elif fails_whatever(self._told):
            self._left = []


def verification_steps(
    asked: int | None, *, step_s: float, time_s: float, most: int = NORMAL.verification_steps
) -> int:
    """Number of steps: ``asked``, else up to ``most``, as far as ``time_s`` has room for them."""
    if asked is not None:
        return asked
    return max(FEWEST_STEPS, min(most, int(time_s / step_s)))


def _is_doubtful(record: Record) -> bool:
    """True if a first attempt failed, but neither of memory nor inside a moved part."""
    if record.trial.attempt > 1 or not isinstance(record.outcome, FailedTrial):
        return False
    asides = record.outcome.asides
    return record.outcome.failure.kind in _DOUBTFUL and not (asides and asides.under_way)


def _safer(left: Sequence[Record], full: Record) -> list[Record]:
    """Records that need less memory than ``full``, as measured or by their layout.

    If the memory of ``full`` was not measured: those that do not surely need more.
    """
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
    """True if ``one`` surely needs less, whatever was measured: small models are noise."""
    ours, theirs = one.trial.candidate, other.trial.candidate
    table = CandidateTable.from_candidates([ours, theirs])
    return bool(surely_needs_more(table, ours)[1] and not surely_needs_more(table, theirs)[0])


def _is_below(one: MemoryUse | None, other: MemoryUse) -> bool:
    return one is not None and one.peak_bytes < other.peak_bytes


def report_soaks(records: Sequence[Record]) -> SoakReport:
    """The outcome of all verification runs of a study, in their order."""
    pairs = zip(records, (*records[1:], None), strict=True)
    counted = [record for record, then in pairs if not (then and then.trial.attempt > 1)]
    passed = last_passed(records)
    final = passed or (records[-1] if records else None)
    last = final.measurement if final else None
    return SoakReport(
        steps=last.first_step - 1 + len(last.step_s) if last and last.first_step else 0,
        memory_share=_memory_share(final) if final and last else None,
        refused=tuple(found for record in counted if (found := refusal(record))),
        passed=passed is not None,
        phases=last.phases if last else (),
        step_s=last.mean_step_s if last and last.step_s else 0.0,
        asides=last.asides if last else None,
        as_trial=_first_failure(records, passed) if passed else None,
        whatever=records[-1].failure if not passed and fails_whatever(records) else None,
        few_steps=_few_steps(passed) if passed else None,
    )


def _few_steps(record: Record) -> FewSteps | None:
    """Steps of an epoch, if they are few and the batch is not the user's own; else None."""
    asides = record.outcome.asides
    layout = record.trial.candidate.layout
    if record.trial.number == 0 or asides is None or not asides.epoch_batches:
        return None
    steps = -(-asides.epoch_batches // layout.accumulation)
    if steps >= FEWEST_STEPS_OF_AN_EPOCH:
        return None
    return FewSteps(global_batch=layout.global_batch, steps=steps)


def last_passed(records: Sequence[Record]) -> Record | None:
    """The last run that passed; the user's own may pass before others are refused."""
    return next((r for r in reversed(records) if refusal(r) is None), None)


def refusal(record: Record) -> Refusal | None:
    """The reason why a run did not pass; None if it passed."""
    name = soaked_name(record.trial)
    if record.failure:
        return Refusal(name=name, failure=record.failure)
    share = _memory_share(record) or 0.0
    return Refusal(name=name, failure=None, memory_share=share) if share > MOST_MEMORY else None


def _memory_share(record: Record) -> float | None:
    memory = record.outcome.memory
    return memory.peak_bytes / memory.limit_bytes if memory and memory.limit_bytes else None


def needs_less(record: Record) -> bool:
    """True if a run did not pass because of memory."""
    if record.failure:
        return record.failure.kind is FailureKind.OUT_OF_MEMORY
    return refusal(record) is not None


def failed_alike(records: Sequence[Record]) -> tuple[Record, ...]:
    """The launches that failed as the last one did, one per configuration; none if of memory."""
    last = records[-1].failure if records else None
    if last is None or needs_less(records[-1]):
        return ()
    latest = {soaked_name(record.trial): record for record in records}
    found = ((record, record.failure) for record in latest.values())
    same = last.kind, last.detail
    return tuple(r for r, failure in found if failure and (failure.kind, failure.detail) == same)


def fails_whatever(records: Sequence[Record]) -> bool:
    """True if at least two configurations, the user's own included, failed as the last did."""
    alike = failed_alike(records)
    return len(alike) > 1 and any(record.trial.number == 0 for record in alike)


def soaked_name(trial: Trial) -> str:
    """Name of the trial in the search."""
    return trial.name.removesuffix(SOAK_SUFFIX)


def _first_failure(records: Sequence[Record], passed: Record) -> Failure | None:
    """Failure of the first attempt at the run that passed, if there were two."""
    if passed.trial.attempt < 2:
        return None
    name = soaked_name(passed.trial)
    before = (r.failure for r in records if r is not passed and soaked_name(r.trial) == name)
    return next(before, None)
