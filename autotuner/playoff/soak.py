"""The verification run: one longer launch of the winner, as the training will be.

The script's own evaluation and checkpoint are moved into it if its arguments allow that; else its
data ends with the steps, as after an epoch. The report has only the events that were observed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autoconf_launch.core import Asides, Failure, FailureKind

from ..measurement import NORMAL
from ..search import MARGIN, StopKind, StopReason
from ..space import CandidateTable, FailedTrial, Record, Trial, surely_needs_more

MOST_MEMORY = 0.98
"""Share of the device's memory; a training that needs more fails sooner or later."""
FEWEST_STEPS = 5
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


class Soak:
    """Asks for a run of the winner; if it does not pass, of the next safer configuration.

    After two failures alike, and not of memory, only the user's own configuration is left: if it
    fails in the same way, the script fails in any configuration.
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
        """The run that passed."""
        return self._passed

    @property
    def choice(self) -> Record | None:
        """The run that passed; if time ran out first, the best record that was not refused."""
        return self._passed or (self._left[0] if self._left else None)

    def ask(self, free_slots: int, elapsed_s: float) -> tuple[Trial, ...]:
        """The next run, unless one has passed."""
        if self._pending or free_slots < 1 or self.stop_reason():
            return ()
        again = bool(self._told) and _is_doubtful(self._told[-1])
        trial = self._told[-1].trial if again else self._left[0].trial
        steps = self._steps_until(elapsed_s)
        if steps < (trial.soak_steps if again else min(FEWEST_STEPS, self._steps)):
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
            self._left = self._left_after(record, tried)

    def end_step(self, trial: Trial, step_s: Sequence[float]) -> int | None:
        """None: the launch ends as planned."""
        return None

    def stop_reason(self) -> StopReason | None:
        """The reason why the runs are over: one passed, or none is left."""
        if self._pending or (self._left and not (self._passed or self.lacks_time)):
            return None
        kind = StopKind.EXPLORED if self._passed else StopKind.NOTHING_MEASURED
        return StopReason(kind=kind)

    def _steps_until(self, elapsed_s: float) -> int:
        """Steps that the next launch surely has time for, at most as many as wanted."""
        measured = self._left[0].measurement
        left_s = self._until_s - elapsed_s - self._start_s
        if measured is None or math.isinf(left_s):
            return self._steps
        return min(self._steps, int(max(0.0, left_s) / (MARGIN * measured.mean_step_s)))

    def _left_after(self, refused: Record, tried: Record) -> list[Record]:
        left = [record for record in self._left if record is not tried]
        if needs_less(refused):
            return _safer(left, tried)
        is_alike = len(failed_alike(self._told)) > 1
        return [record for record in left if not is_alike or record.trial.number == 0]


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

    def is_safer(record: Record) -> bool:
        seen = record.outcome.memory
        if own and seen and seen.peak_bytes < own.peak_bytes:
            return True
        pair = [record.trial.candidate, full.trial.candidate]
        table = CandidateTable.from_candidates(pair)
        is_larger, is_smaller = (
            surely_needs_more(table, pair[1])[0],
            surely_needs_more(table, pair[0])[1],
        )
        return bool(not is_larger and (own is None or is_smaller))

    return list(filter(is_safer, left))


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
        whatever=None if passed else _common_failure(records),
    )


def last_passed(records: Sequence[Record]) -> Record | None:
    """The last run that passed."""
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
    latest = {soaked_name(record.trial): record for record in records}.values()
    same = last.kind, last.detail
    return tuple(r for r in latest if r.failure and (r.failure.kind, r.failure.detail) == same)


def _common_failure(records: Sequence[Record]) -> Failure | None:
    """The failure of at least two configurations, the user's own included; None without one."""
    alike = failed_alike(records)
    is_common = len(alike) > 1 and any(record.trial.number == 0 for record in alike)
    return alike[-1].failure if is_common else None


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
