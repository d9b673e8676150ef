"""The verification run: one longer launch of the winner, as the training will be.

The script's own evaluation and checkpoint are moved into it where its words allow that; else its
data ends with the steps, as after an epoch. What of them happened is seen, not assumed.
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
"""Fewer are named."""
SOAK_SUFFIX = "_soak"
"""Suffix of a launch's name."""
_DOUBTFUL = (FailureKind.CRASHED, FailureKind.BAD_CONFIG, FailureKind.NO_STEPS)
"""What a script may fail with because its evaluation or its checkpoint was moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LackOfTime:
    """A verification run that time was too short for; ``left_s`` None: it was ended within it."""

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
    """A global batch other than the user's, of which an epoch has few steps."""

    global_batch: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakReport:
    """The launch that the winner passed, or that nothing passed.

    Attributes:
        steps: optimizer steps that it made.
        memory_share: of the limit at its peak; None where there is no limit.
        refused: the better ones that did not pass.
        passed: whether the last one did.
        phases: mean seconds of its steps' phases; our own runtime takes them apart.
        step_s: mean seconds of those steps; 0 where there are none.
        asides: what the script did beside its steps; None: nobody looked.
        as_trial: why the last one had to skip what trials do not; None where it did not.
        few_steps: where another batch than the user's leaves few steps of an epoch.
        whatever: what the script fails with in any configuration; None where that is not known.
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
        for that. Then a second one omits what trials do, if there is time for as many steps: a
        shorter one may end before it reaches what failed.
        """
        self._left = list(ranked)
        self._steps = steps
        self._told: list[Record] = []
        self._pending = False
        self._crash_stands = False
        self._passed: Record | None = None
        self._start_s, self._until_s = start_s, until_s
        self.lacks_time: LackOfTime | None = None
        """Set where time was up before any passed."""

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
        """Take an outcome; what is not safer than a refused one is not tried."""
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
        """Where the launch ends, as planned."""
        return None

    def stop_reason(self) -> StopReason | None:
        """Why the runs are over: one passed, or none is left."""
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


def verification_steps(
    asked: int | None, *, step_s: float, time_s: float, most: int = NORMAL.verification_steps
) -> int:
    """How many: as asked, else ``most`` or what ``time_s`` has room for."""
    if asked is not None:
        return asked
    return max(FEWEST_STEPS, min(most, int(time_s / step_s)))


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
    """Where the user's own batch is another one, and an epoch has few steps of this one."""
    asides = record.outcome.asides
    layout = record.trial.candidate.layout
    if record.trial.number == 0 or asides is None or not asides.epoch_batches:
        return None
    steps = -(-asides.epoch_batches // layout.accumulation)
    if steps >= FEWEST_STEPS_OF_AN_EPOCH:
        return None
    return FewSteps(global_batch=layout.global_batch, steps=steps)


def last_passed(records: Sequence[Record]) -> Record | None:
    """The last one that passed; the user's own may have before others were refused."""
    return next((r for r in reversed(records) if refusal(r) is None), None)


def refusal(record: Record) -> Refusal | None:
    """Why a soak was not passed; None where it was."""
    name = soaked_name(record.trial)
    if record.failure:
        return Refusal(name=name, failure=record.failure)
    share = _memory_share(record) or 0.0
    return Refusal(name=name, failure=None, memory_share=share) if share > MOST_MEMORY else None


def _memory_share(record: Record) -> float | None:
    memory = record.outcome.memory
    return memory.peak_bytes / memory.limit_bytes if memory and memory.limit_bytes else None


def needs_less(record: Record) -> bool:
    """Whether it was memory that a soak failed for."""
    if record.failure:
        return record.failure.kind is FailureKind.OUT_OF_MEMORY
    return refusal(record) is not None


def failed_alike(records: Sequence[Record]) -> tuple[Record, ...]:
    """One launch of each configuration that failed as the last one did; none if of memory."""
    last = records[-1].failure if records else None
    if last is None or needs_less(records[-1]):
        return ()
    latest = {soaked_name(record.trial): record for record in records}
    found = ((record, record.failure) for record in latest.values())
    same = last.kind, last.detail
    return tuple(r for r, failure in found if failure and (failure.kind, failure.detail) == same)


def fails_whatever(records: Sequence[Record]) -> bool:
    """Whether two failed alike at last, one of them as the user gave it."""
    alike = failed_alike(records)
    return len(alike) > 1 and any(record.trial.number == 0 for record in alike)


def soaked_name(trial: Trial) -> str:
    """Name of the trial in the search."""
    return trial.name.removesuffix(SOAK_SUFFIX)


def _first_failure(records: Sequence[Record], passed: Record) -> Failure | None:
    """What a first attempt of it failed with, if there were two."""
    if passed.trial.attempt < 2:
        return None
    name = soaked_name(passed.trial)
    before = (r.failure for r in records if r is not passed and soaked_name(r.trial) == name)
    return next(before, None)
