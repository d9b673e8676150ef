"""Points as jobs of Slurm, or as processes that call ``bcprun``, for any front end.

A job is the script that the front end wrote for it, and its outcome is in the files of its folder.
Slurm only says whether there is still something to wait for.
"""

from __future__ import annotations

import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    FailedTrial,
    Measurement,
    Objective,
    Outcome,
    Prediction,
    Record,
    Trial,
)
from autoconf_launch.core import Failure, FailureKind
from autoconf_launch.launcher.engines import (
    JOB_ID,
    UNSAID_WAIT_S,
    Job,
    JobEnd,
    SlurmQueue,
    cancel_jobs,
    is_slurm_here,
    pending_text,
    submit_job,
    wait_text,
)
from autoconf_launch.launcher.events import Listener, Note
from autoconf_launch.launcher.machine import OUR_COMMAND
from autoconf_launch.launcher.plan import LaunchPlan
from autoconf_launch.launcher.results import Fingerprint, ResultsPaths

from ..report import JOB_LOG, is_not_started
from ..search_flags import SearchRequest
from .hp_search import (
    AnyPoint,
    Chosen,
    HpPoint,
    HpRuns,
    HpSearch,
    OpenRuns,
    Runner,
    opening_runs,
    trials_of,
)
from .settings import ClusterKind, ClusterSettings

JOBS_AT_ONCE = 8
"""Jobs that wait or run; running out of memory rules out larger ones among the others."""
SLURM_SPARE_S = 120.0
"""Slurm ends a job at its own limit first, late by up to half a minute."""
NEVER_S = 1e9
_LOOK_S = 0.5
_FILES_APPEAR_S = 10.0
"""Longest delay of an ended job's files if caches hide them, in seconds."""


JobPoint = TypeVar("JobPoint", bound=HpPoint, contravariant=True)


class JobFiles(Protocol[JobPoint]):
    """The files of a front end's jobs.

    Attributes:
        kind: the scheduler.
        paths: the results folder, in which each job has its own folder.
        is_kept: whether a job is not started whose folder holds a measurement already.
    """

    kind: ClusterKind
    paths: ResultsPaths
    is_kept: bool

    @property
    def fingerprint(self) -> Fingerprint:
        """The facts that all measurements of the search share."""

    def write(self, points: Sequence[JobPoint]) -> None:
        """Write all files that the jobs of these points need."""

    def script(self, name: str) -> Path:
        """The script of a job."""

    def folder(self, name: str) -> Path:
        """The folder that a job's outcome is read from."""

    def clear(self, name: str) -> None:
        """Remove an earlier job's files, which would count as this one's."""

    def read(self, name: str) -> Outcome:
        """The outcome of a job that has ended."""


class _ScriptJob:
    """A started script; it was measured before if its ``end`` is known from the start."""

    def __init__(
        self,
        plan: LaunchPlan,
        number: int = 0,
        process: subprocess.Popen[bytes] | None = None,
        end: JobEnd | None = None,
    ) -> None:
        self.plan, self.number, self.process, self.end = plan, number, process, end
        self.reason: Failure | None = None
        self.is_queued = process is None and end is None
        self.started_s = time.monotonic()
        self.over_s: float | None = None

    @property
    def handle(self) -> str:
        """The job's number, which a later controller continues to wait for."""
        return str(self.number or "")

    def why_queued(self) -> str:
        return pending_text(self.number)


class JobRunner(Runner[AnyPoint]):
    """Runs points as jobs; backend and ``TrialIO`` at once."""

    def __init__(
        self, jobs: JobFiles[AnyPoint], objective: Objective = OBJECTIVES["throughput"]
    ) -> None:
        self._jobs, self.objective = jobs, objective
        self.at_once = 1 if jobs.kind is ClusterKind.BCP else JOBS_AT_ONCE
        self._queue, self._left = SlurmQueue(), dict[str, str]()
        self._is_kept, self._has_informed = jobs.is_kept, False
        self._listener: Listener = lambda event: None

    @contextmanager
    def opening(self, listener: Listener, *, fresh: bool) -> Iterator[OpenRuns]:
        jobs = self._jobs
        self._is_kept = jobs.is_kept and not fresh
        with opening_runs(jobs.paths, jobs.fingerprint, listener, fresh=fresh) as opened:
            self._left = {one.name: one.handle or "" for one in opened.contents.search.orphans}
            self._listener = listener
            yield OpenRuns(opened=opened, files=self, backend=self, listener=listener)

    def choose(self, points: tuple[AnyPoint, ...], runs: OpenRuns) -> Chosen[AnyPoint]:
        self._jobs.write(points)
        return Chosen(points=points, runs=runs)

    def submit(self, plan: LaunchPlan) -> _ScriptJob:
        jobs, name = self._jobs, plan.name
        if self._is_kept and isinstance(outcome := jobs.read(name), Measurement):
            end = JobEnd(exit_code=0, outcome=outcome, wall_s=0.0)
            return _ScriptJob(plan, end=end)
        if not (left := self._left.pop(name, "")):
            jobs.clear(name)
        if jobs.kind is ClusterKind.BCP:
            with (jobs.folder(name) / f"{JOB_LOG}bcprun.log").open("ab") as log:
                command = ("bash", str(jobs.script(name)))
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            return _ScriptJob(plan, process=process)
        number = int(left) if JOB_ID.fullmatch(left) else _submit(jobs, name)
        self._queue.add(number)
        return _ScriptJob(plan, number)

    def poll(self, jobs: Sequence[Job]) -> tuple[JobEnd | None, ...]:
        runs = tuple(map(_own, jobs))
        ends = tuple(map(self._look, runs))
        now_s = time.monotonic()
        late = [run for run in runs if run.is_queued and now_s > run.started_s + UNSAID_WAIT_S]
        if late and not self._has_informed:
            self._has_informed = True
            self._listener(Note(text=wait_text(late)))
        return ends

    def wait(self, jobs: Sequence[Job], timeout_s: float) -> None:
        if all(_own(job).end is None for job in jobs):
            time.sleep(max(0.0, min(_LOOK_S, timeout_s)))  # jobs send no event

    def cancel(self, job: Job, reason: Failure) -> None:
        """End a job; its log up to then may still count."""
        own = _own(job)
        own.reason = own.reason or reason
        if own.process is not None:
            own.process.terminate()
        elif own.end is None:
            cancel_jobs(own.number)

    def send_signal(self, job: Job, number: int) -> None: ...

    def close(self) -> None: ...

    def end_orphan(self, handle: str, host: str) -> None:
        """Do nothing: this search waits for its job."""

    def plan(self, trial: Trial, attempt: str) -> LaunchPlan:
        return LaunchPlan(name=trial.name, ranks=(), working_directory=str(Path.cwd()))

    def adopt(self, trial: Trial, attempt: str) -> Outcome | None:
        found = self._jobs.read(trial.name)
        return found if isinstance(found, Measurement) else None

    def predict(self, trial: Trial) -> Prediction | None:
        return None

    def complete(self, outcome: Outcome) -> Outcome:
        return outcome

    def finish(self, record: Record) -> None: ...

    def _look(self, job: _ScriptJob) -> JobEnd | None:
        if job.end is None and (over := self._why_over(job)) is not None:
            job.over_s = job.over_s or time.monotonic()
            outcome = self._jobs.read(job.plan.name)
            is_late = time.monotonic() > job.over_s + _FILES_APPEAR_S
            if isinstance(outcome, Measurement) or is_late or job.reason:
                job.end = _end(job, outcome, over)
        return job.end

    def _why_over(self, job: _ScriptJob) -> Failure | None:
        """The end of a job, of the kind ``no_steps`` if it ended by itself."""
        if job.process is not None:
            code = job.process.poll()
            return None if code is None else _by_itself(f"bcprun ended with code {code}")
        job.is_queued = self._queue.is_waiting(job.number)
        if (over := self._queue.why_over(job.number)) is None:
            return None
        return _by_itself(over.detail) if over.kind is FailureKind.CRASHED else over


_BY_ITSELF = FailureKind.NO_STEPS


def _by_itself(detail: str) -> Failure:
    return Failure(kind=_BY_ITSELF, detail=detail)


def _end(job: _ScriptJob, outcome: Outcome, over: Failure) -> JobEnd:
    if isinstance(outcome, FailedTrial):
        own = outcome.failure
        if job.reason or over.kind is not _BY_ITSELF or is_not_started(own):
            own = job.reason or over
        elif own.kind is _BY_ITSELF:
            own = replace(own, detail=f"{own.detail.rstrip('.')}; {over.detail}")
        outcome = FailedTrial(failure=own)
    failed = isinstance(outcome, FailedTrial)
    wall_s = time.monotonic() - job.started_s
    return JobEnd(exit_code=int(failed), outcome=outcome, wall_s=wall_s)


def _own(job: Job) -> _ScriptJob:
    if not isinstance(job, _ScriptJob):
        raise TypeError(f"job {job!r} was submitted to another backend.")
    return job


def are_run_here(kind: ClusterKind) -> bool:
    """True if the scheduler answers on this machine."""
    if kind is ClusterKind.BCM:
        return is_slurm_here()
    return kind is ClusterKind.LOCAL or shutil.which("bcprun") is not None


def run_jobs(
    search: HpSearch[AnyPoint],
    jobs: JobFiles[AnyPoint],
    request: SearchRequest,
    listener: Listener,
) -> HpRuns[AnyPoint] | None:
    """Write all jobs and, if their scheduler answers, run them; None if they are only written.

    ``--collect`` reads earlier jobs' files, whoever submitted them.
    """
    if request.collect:
        return collect_jobs(jobs, search.points)
    if are_run_here(jobs.kind) and not request.submit_only:
        return search.run(listener, fresh=request.fresh)
    jobs.write(search.points)
    return None


def collect_jobs(jobs: JobFiles[AnyPoint], points: tuple[AnyPoint, ...]) -> HpRuns[AnyPoint]:
    """Outcomes of all jobs, whoever submitted them."""
    records = tuple(
        Record(trial=trial, outcome=jobs.read(trial.name), wall_s=0.0)
        for trial in trials_of(points, lambda one: one.candidate)
    )
    return HpRuns(points=points, records=records)


class JobQueue:
    """Jobs of both halves that are only queued, and a last job that collects their results.

    Attributes:
        numbers: of the queued jobs.
        results: what the last job writes.
    """

    def __init__(self, words: Sequence[str], cluster: ClusterSettings, *, fresh: bool) -> None:
        self._words, self._cluster, self._fresh = words, cluster, fresh
        self.numbers: list[int] = []
        self.results: list[str] = []
        self._collection: tuple[ResultsPaths, Path] | None = None

    def add(
        self,
        jobs: JobFiles[AnyPoint],
        points: Sequence[AnyPoint],
        files: tuple[ResultsPaths, Path, Path],
    ) -> None:
        """Write and queue the jobs of points; a measurement that is kept needs none.

        ``files`` are the results folder, the script of a collection and its results.
        """
        jobs.write(points)
        self._collection = self._collection or files[:2]
        self.results.append(str(files[2]))
        is_kept = jobs.is_kept and not self._fresh
        for one in points:
            if not (is_kept and isinstance(jobs.read(one.name), Measurement)):
                jobs.clear(one.name)
                self.numbers.append(_submit(jobs, one.name))

    def collect(self) -> int:
        """Queue the last job, and return its number."""
        assert self._collection is not None
        paths, script = self._collection
        log, here = shlex.quote(str(paths.results / "collect.log")), shlex.quote(str(Path.cwd()))
        words = (word for word in self._words if word != "--submit-only")
        again = shlex.join((*OUR_COMMAND, "search", "--collect", *words))
        paths.write(script, f"#!/bin/sh\nexec >{log} 2>&1\ncd {here} || exit\nexec {again}\n")
        given = {
            "dependency": ":".join(("afterany", *map(str, self.numbers))) if self.numbers else "",
            "output": "/dev/null",
            "partition": self._cluster.partition,
            "account": self._cluster.account,
        }
        options = (f"--{name}={value}" for name, value in given.items() if value)
        return submit_job(("--nodes=1", "--ntasks=1", *options, str(script)), {})


@contextmanager
def open_queue(
    words: Sequence[str], cluster: ClusterSettings, *, fresh: bool
) -> Iterator[JobQueue]:
    """A queue whose jobs are cancelled if Slurm refuses any.

    Args:
        words: the command line of this search.
        cluster: partition and account of the last job.
        fresh: queue points, too, whose folder holds a measurement already.
    """
    queue = JobQueue(words, cluster, fresh=fresh)
    try:
        yield queue
    except BaseException:
        if queue.numbers:
            cancel_jobs(*queue.numbers)
        raise


def _submit(jobs: JobFiles[AnyPoint], name: str) -> int:
    log = str(jobs.folder(name) / "slurm-%j.out")
    return submit_job((f"--output={log}", str(jobs.script(name))), {})
