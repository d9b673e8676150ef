"""Answers from records of earlier trials, in microseconds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from autoconf_launch.autotuner.space import FailedTrial, Outcome, Record
from autoconf_launch.core import Failure, FailureKind
from autoconf_launch.launcher.engines import Job, JobEnd
from autoconf_launch.launcher.plan import LaunchPlan


class ReplayJob:
    """A plan whose answer is known; it ends when it is first looked at."""

    def __init__(self, plan: LaunchPlan, record: Record | None) -> None:
        self.plan = plan
        self.record = record
        self.reason: Failure | None = None
        self.end: JobEnd | None = None

    @property
    def handle(self) -> str:
        """Nothing, as nothing runs."""
        return ""

    @property
    def is_queued(self) -> bool:
        """It waits for nothing."""
        return False


class ReplayBackend:
    """Each submission of a name gets the next of its attempts, in their order.

    A name without a record left fails as crashed and says so: what never ran has no answer.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._left: dict[str, deque[Record]] = {}
        for record in sorted(records, key=lambda record: record.trial.attempt):
            self._left.setdefault(record.trial.name, deque()).append(record)

    def submit(self, plan: LaunchPlan) -> ReplayJob:
        """Look the plan up by its name."""
        left = self._left.get(plan.name)
        return ReplayJob(plan, left.popleft() if left else None)

    def poll(self, jobs: Sequence[Job]) -> tuple[JobEnd | None, ...]:
        """The end of every job."""
        return tuple(_look(_own(job)) for job in jobs)

    def wait(self, jobs: Sequence[Job], timeout_s: float) -> None:
        """Return at once: nothing takes time here."""

    def cancel(self, job: Job, reason: Failure) -> None:
        """Fail the job with ``reason`` unless its end has been seen."""
        own = _own(job)
        own.reason = own.reason or reason

    def send_signal(self, job: Job, number: int) -> None:
        """Do nothing: there is no process."""

    def end_orphan(self, handle: str, host: str) -> None:
        """Do nothing: there is no process."""

    def close(self) -> None:
        """Do nothing: nothing is kept."""


def _own(job: Job) -> ReplayJob:
    if not isinstance(job, ReplayJob):
        raise TypeError(f"job {job!r} was submitted to another backend.")
    return job


def _look(job: ReplayJob) -> JobEnd:
    if job.end is None:
        outcome = None if job.plan.task is None else _answer(job)
        wall_s = job.record.wall_s if job.record is not None else 0.0
        failed = isinstance(outcome, FailedTrial) or job.reason is not None
        job.end = JobEnd(exit_code=int(failed), outcome=outcome, wall_s=wall_s)
    return job.end


def _answer(job: ReplayJob) -> Outcome:
    if job.reason is not None:
        return FailedTrial(failure=job.reason)
    if job.record is not None:
        return job.record.outcome
    detail = f"the journal holds no further record of {job.plan.name}, so it cannot be replayed"
    return FailedTrial(failure=Failure(kind=FailureKind.CRASHED, detail=detail))
