"""NeMo's runs of a search on a cluster, by the study and journal of runs on this machine.

Each run is the job script that was written for it; what it left is read from its folder. Slurm is
asked only whether there is still something to wait for.
"""

from __future__ import annotations

import hashlib
import shlex
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from autoconf_launch.autotuner.search import StopKind, StopReason
from autoconf_launch.autotuner.space import (
    FailedTrial,
    Measurement,
    Outcome,
    Prediction,
    Record,
    Trial,
)
from autoconf_launch.core import Candidate, ConfigError, Failure, FailureKind, MemoryUse
from autoconf_launch.launcher.engines import (
    JOB_ID,
    UNSAID_WAIT_S,
    Job,
    JobEnd,
    SlurmQueue,
    cancel_jobs,
    pending_text,
    submit_job,
    wait_text,
)
from autoconf_launch.launcher.events import Listener, Note
from autoconf_launch.launcher.machine import OUR_COMMAND
from autoconf_launch.launcher.plan import LaunchPlan
from autoconf_launch.launcher.results import Fingerprint
from autoconf_launch.launcher.tuning import TrialLimits

from ..report import JOB_LOG, is_not_started, read_run
from .candidate_file import SearchFolder
from .candidates import SearchCandidate
from .hp_search import HpRuns, HpSearch, opening_runs
from .jobs import JOBS_AT_ONCE
from .outcome import DoneRuns, run_limit_s, steps_limit_s
from .prepare import Prepared
from .settings import ClusterKind

_LOOK_S = 0.5
_GB = 10**9
_FILES_APPEAR_S = 10.0
"""Longest delay of an ended job's files if caches hide them, in seconds."""


class _NemoJob:
    """A run that was submitted: to Slurm, or as a process that calls ``bcprun``."""

    def __init__(self, plan: LaunchPlan, number: int, process: subprocess.Popen[bytes] | None):
        self.plan, self.number, self.process = plan, number, process
        self.reason: Failure | None = None
        self.end: JobEnd | None = None
        self.is_queued = process is None
        self.started_s = time.monotonic()
        self.over_s: float | None = None

    @property
    def handle(self) -> str:
        """The job's number, which a later controller goes on to wait for."""
        return "" if self.process else str(self.number)

    def why_queued(self) -> str:
        return pending_text(self.number)


class _NemoJobs:
    """Backend and ``TrialIO``: starts the script of a plan's name, and reads its folder.

    ``left`` are the jobs of a dead controller by the names of their runs; one is waited for, not
    submitted again.
    """

    def __init__(
        self,
        prepared: Prepared,
        folder: SearchFolder,
        left: dict[str, str],
        listener: Listener,
    ) -> None:
        self._prepared, self._folder, self._left = prepared, folder, left
        self._listener, self._queue = listener, SlurmQueue()
        self._has_informed = False

    def submit(self, plan: LaunchPlan) -> _NemoJob:
        script, run = self._folder.job(plan.name), self._folder.run(plan.name)
        if not (left := self._left.pop(plan.name, "")):
            _make_anew(self._folder, run)
        if self._prepared.settings.cluster.kind is ClusterKind.BCP:
            with (run / f"{JOB_LOG}bcprun.log").open("ab") as log:
                command = ("bash", str(script))
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                )
            return _NemoJob(plan, 0, process)
        number = int(left) if JOB_ID.fullmatch(left) else submit_run(self._folder, plan.name)
        self._queue.add(number)
        return _NemoJob(plan, number, None)

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
        time.sleep(max(0.0, min(_LOOK_S, timeout_s)))  # runs say nothing while they last

    def cancel(self, job: Job, reason: Failure) -> None:
        """End a run; what it logged by then may still count."""
        own = _own(job)
        own.reason = own.reason or reason
        if own.process is not None:
            own.process.terminate()
        elif own.end is None:
            cancel_jobs(own.number)

    def send_signal(self, job: Job, number: int) -> None: ...

    def end_orphan(self, handle: str, host: str) -> None:
        """Do nothing: its run is waited for."""

    def close(self) -> None: ...

    def plan(self, trial: Trial, attempt: str) -> LaunchPlan:
        return LaunchPlan(name=trial.name, ranks=(), working_directory=str(Path.cwd()))

    def adopt(self, trial: Trial, attempt: str) -> Outcome | None:
        found = self.outcome(trial.name)
        return found if isinstance(found, Measurement) else None

    def predict(self, trial: Trial) -> Prediction | None:
        return None

    def complete(self, outcome: Outcome) -> Outcome:
        return outcome

    def finish(self, record: Record) -> None: ...

    def _look(self, job: _NemoJob) -> JobEnd | None:
        if job.end is None and (over := self._why_over(job)) is not None:
            job.over_s = job.over_s or time.monotonic()
            outcome = self.outcome(job.plan.name)
            is_late = time.monotonic() > job.over_s + _FILES_APPEAR_S
            if isinstance(outcome, Measurement) or is_late or job.reason:
                job.end = self._end(job, outcome, over)
        return job.end

    def _end(self, job: _NemoJob, outcome: Outcome, over: Failure) -> JobEnd:
        if isinstance(outcome, FailedTrial):
            says_little = over.kind is _BY_ITSELF and not is_not_started(outcome.failure)
            if job.reason or not says_little:
                outcome = FailedTrial(failure=job.reason or over)
        failed = isinstance(outcome, FailedTrial)
        wall_s = time.monotonic() - job.started_s
        return JobEnd(exit_code=int(failed), outcome=outcome, wall_s=wall_s)

    def _why_over(self, job: _NemoJob) -> Failure | None:
        """Why a run is over, of the kind ``no_steps`` where it ended by itself."""
        if job.process is not None:
            code = job.process.poll()
            return None if code is None else _by_itself(f"bcprun ended with code {code}")
        job.is_queued = self._queue.is_waiting(job.number)
        if (over := self._queue.why_over(job.number)) is None:
            return None
        return _by_itself(over.detail) if over.kind is FailureKind.CRASHED else over

    def outcome(self, name: str) -> Outcome:
        found = read_run(self._folder.run(name), JOB_LOG)
        if isinstance(found, Failure):
            return FailedTrial(failure=found)
        question = self._prepared.question
        limit = int(question.settings.train.gpu_memory_gb * _GB)
        memory = found.peak_bytes and MemoryUse(
            free_before_bytes=limit, peak_bytes=found.peak_bytes, limit_bytes=limit
        )
        return Measurement(
            step_s=found.times_s,
            samples_per_step=question.global_batch,
            world_size=self._prepared.found.nodes * question.gpus_per_node,
            memory=memory or None,
            losses=() if found.loss is None else (found.loss,),
        )


_BY_ITSELF = FailureKind.NO_STEPS


def _by_itself(detail: str) -> Failure:
    return Failure(kind=_BY_ITSELF, detail=detail)


def _own(job: Job) -> _NemoJob:
    if not isinstance(job, _NemoJob):
        raise TypeError(f"job {job!r} was submitted to another backend.")
    return job


def _make_anew(folder: SearchFolder, run: Path) -> None:
    """A run's folder without what an earlier one logged, which would count as this one's."""
    folder.files.make_below(run)  # no link leads to what is removed
    shutil.rmtree(run, ignore_errors=True)
    folder.files.make_below(run)


def submit_run(folder: SearchFolder, name: str) -> int:
    """Queue the script of a run; the number of its job."""
    log = str(folder.run(name) / "slurm-%j.out")
    return submit_job((f"--output={log}", str(folder.job(name))), {})


def _trials(candidates: Sequence[SearchCandidate]) -> tuple[Trial, ...]:
    return tuple(
        Trial(
            number=number,
            name=one.name,
            candidate=Candidate(layout=one.layout),
            space=f"z{one.layout.zero_stage}",
        )
        for number, one in enumerate(candidates)
    )


def run_on_cluster(
    prepared: Prepared, folder: SearchFolder, listener: Listener, *, fresh: bool
) -> DoneRuns:
    """Run every candidate, several at a time on Slurm, one after the other on Base Command.

    Raises:
        ConfigError: Slurm refuses a job.
        ResultsFolderError: another controller holds the folder, or it cannot be written.
    """
    train, is_bcp = prepared.settings.train, prepared.settings.cluster.kind is ClusterKind.BCP
    limits = TrialLimits(
        timeout_s=run_limit_s(train.max_minutes) + (0.0 if is_bcp else _SLURM_SPARE_S),
        stall_s=_NEVER_S,
        timeout_by="max_minutes_per_run",
    )
    with opening_runs(folder.runs, _fingerprint(prepared), listener, fresh=fresh) as opened:
        left = {one.name: one.handle or "" for one in opened.contents.search.orphans}
        jobs = _NemoJobs(prepared, folder, left, listener)
        search = HpSearch(
            opened=opened,
            runner=jobs,
            backend=jobs,
            listener=listener,
            limits=limits,
        )
        runs = search.run(
            _trials(prepared.found.candidates),
            most=(train.max_steps, steps_limit_s(train.max_minutes)),
            at_once=1 if is_bcp else JOBS_AT_ONCE,
        )
    return DoneRuns(candidates=prepared.found.candidates, runs=runs)


_SLURM_SPARE_S = 120.0
"""Slurm ends a job at its own limit first, late by up to half a minute."""
_NEVER_S = 1e9


def collect_runs(prepared: Prepared, folder: SearchFolder) -> DoneRuns:
    """Outcomes of all runs, whoever submitted them."""
    jobs = _NemoJobs(prepared, folder, {}, lambda event: None)
    records = tuple(
        Record(trial=trial, outcome=jobs.outcome(trial.name), wall_s=0.0)
        for trial in _trials(prepared.found.candidates)
    )
    runs = HpRuns(records=records, stop=StopReason(kind=StopKind.EXPLORED))
    return DoneRuns(candidates=prepared.found.candidates, runs=runs)


def _fingerprint(prepared: Prepared) -> Fingerprint:
    settings, found = prepared.settings, prepared.found
    paths = settings.paths
    return Fingerprint(
        script="nemo",
        arguments=tuple(str(part) for part in (paths.container, paths.data, *paths.mounts)),
        config=hashlib.sha256(prepared.question.base.to_json().encode()).hexdigest(),
        hardware=(f"{found.nodes} x {prepared.question.gpus_per_node}",),
        versions=(),
    )


def submit_runs(prepared: Prepared, folder: SearchFolder, words: Sequence[str]) -> tuple[int, ...]:
    """Queue every run, and a last job that writes the results after them; all their numbers.

    ``words`` are the command line of this search.
    """
    cluster = prepared.settings.cluster
    numbers: list[int] = []
    try:
        for one in prepared.found.candidates:
            _make_anew(folder, folder.run(one.name))
            numbers.append(submit_run(folder, one.name))
        script = folder.job("collect")
        others = tuple(word for word in words if word != "--submit-only")
        log = shlex.quote(str(folder.logs / "collect.log"))
        text = (
            f"#!/bin/sh\nexec >{log} 2>&1\ncd {shlex.quote(str(Path.cwd()))} || exit\n"
            f"exec {shlex.join((*OUR_COMMAND, 'search', '--collect', *others))}\n"
        )
        folder.files.write(script, text)
        options = [f"--dependency=afterany:{':'.join(map(str, numbers))}", "--output=/dev/null"]
        options += [f"--partition={cluster.partition}"] if cluster.partition else []
        options += [f"--account={cluster.account}"] if cluster.account else []
        numbers.append(submit_job(("--nodes=1", "--ntasks=1", *options, str(script)), {}))
    except ConfigError:
        if numbers:
            cancel_jobs(*numbers)
        raise
    return tuple(numbers)
