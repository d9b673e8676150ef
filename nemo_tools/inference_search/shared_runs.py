"""Points whose engine measures all batches of a layout in one process of this machine.

The first point of a layout starts the process, with the others to follow; what it has left of
them needs no launch.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.autotuner.space import (
    FailedTrial,
    Measurement,
    Outcome,
    Trial,
)
from autoconf_launch.core import ClusterSpec, Failure, FailureKind
from autoconf_launch.launcher.backends import Backend, Job, JobEnd, load_backend
from autoconf_launch.launcher.launch import (
    STDERR_LOG,
    STDOUT_LOG,
    file_tail,
    how_it_died,
    plan_launch,
    printed_error,
    read_log_tail,
)
from autoconf_launch.launcher.machine import is_cpu, split_cores
from autoconf_launch.launcher.plan import LaunchPlan
from autoconf_launch.launcher.spelling import Rendered

from .engines import FIRST_TOKEN_FILE, LATENCY_FILE, EngineRun, SharingEngine
from .local_runs import (
    LocalSearch,
    PointTrials,
    Runners,
    model_words,
    part_of,
)


def shared_search(search: LocalSearch, engine: SharingEngine) -> LocalSearch:
    """The search with points of one layout together; a process has time for all of its own."""
    points, runs = search.points, search.runs
    degrees = [_degrees(run) for run in runs]
    order = sorted(range(len(runs)), key=lambda row: degrees.index(degrees[row]))
    process = engine.shared_process(runs[:1], _cores_of_slots(search.cluster))
    return replace(
        search,
        points=tuple(points[row] for row in order),
        runs=tuple(runs[row] for row in order),
        request=replace(
            search.request,
            script=str(process.program),
            kind="script",
            python=process.python,
            script_args=(*model_words(runs[0]), "--engine", process.version),
            alone=True,
        ),
        time_limit_s=search.time_limit_s * max(map(degrees.count, degrees)),
    )


def share_processes(search: LocalSearch, engine: SharingEngine) -> Runners:
    """All points of a layout in one process."""
    trials = SharedTrials(search, engine)
    return trials, SharedBackend(load_backend("local"), trials.read_figures_of)


def _cores_of_slots(cluster: ClusterSpec) -> tuple[tuple[int, ...], ...]:
    """Cores of each slot, all of them where there are fewer than slots; empty with GPUs."""
    if not is_cpu(cluster):
        return ()
    usable, slots = tuple(sorted(os.sched_getaffinity(0))), len(cluster.devices)
    return split_cores(usable, slots) if len(usable) >= slots else (usable,) * slots


_LOGGED_ERROR = re.compile(r".*\bERROR\b.*\] (\w+(?:Error|Exception): .+)")
_MOST_LINES = 1000


def _first_error(folder: Path) -> str:
    """The first error that an engine's process logged, or else the last traceback."""
    logs = (folder / STDOUT_LOG, folder / STDERR_LOG)
    lines = (line for path in logs for line in file_tail(path, lines=_MOST_LINES))
    found = filter(None, map(_LOGGED_ERROR.fullmatch, lines))
    return next((match[1] for match in found), "") or "".join(printed_error(folder)[-1:])


class SharedTrials(PointTrials):
    """The files and plans of the points: a ``TrialIO``."""

    def __init__(self, search: LocalSearch, engine: SharingEngine) -> None:
        super().__init__(search)
        self._engine, self._cores = engine, _cores_of_slots(search.cluster)
        self._asked: set[str] = set()
        """Points that a process of this session was asked for."""

    def plan(self, trial: Trial, attempt: str) -> LaunchPlan:
        """The process of a point and of those after it that have its layout and no figures."""
        names = list(self._runs)
        later = names[names.index(trial.name) :]
        shared = [n for n in later if self._has_layout(n, trial) and not self.read_figures_of(n)]
        runs = [self._runs[name] for name in shared] or [self._runs[trial.name]]
        process = self._engine.shared_process(runs, self._cores)
        for run in runs if shared else ():
            self._search.paths.make_launch_folder(run.folder)
            for name in (LATENCY_FILE, FIRST_TOKEN_FILE):
                (run.folder / name).unlink(missing_ok=True)
        for path, text in process.files.items() if shared else ():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self._asked.update(shared)
        plan = plan_launch(
            self._search.request,
            part_of(self._search.cluster, trial.candidate.layout.world_size),
            Rendered(
                config=runs[0].base, script_args=process.arguments, environment=process.variables
            ),
        )
        return replace(plan, name=trial.name, folder=str(self._runs[trial.name].folder))

    def read_figures_of(self, name: str) -> Outcome | None:
        """A point's measurement by a process of this session; None if it is not complete."""
        outcome = self._engine.read(self._runs[name]) if name in self._asked else None
        return outcome if isinstance(outcome, Measurement) else None

    def adopt(self, trial: Trial, attempt: str) -> Outcome | None:
        """None: an interrupted process starts again with what is not measured."""
        return None

    def _has_layout(self, name: str, trial: Trial) -> bool:
        return _degrees(self._runs[name]) == _degrees(self._runs[trial.name])


def _degrees(run: EngineRun) -> tuple[int, int]:
    """Degrees that the points of one process share."""
    return run.task.layout.tensor_parallel, run.task.layout.pipeline_parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """A point that an earlier point's process has measured, as a job that has ended."""

    plan: LaunchPlan
    outcome: Outcome
    handle: str = ""


class SharedBackend:
    """Another backend, which is not asked for points that are measured already."""

    def __init__(self, inner: Backend, read: Callable[[str], Outcome | None]) -> None:
        """Wrap it.

        Args:
            inner: starts the processes.
            read: what is known of a point, by the name of its plan.
        """
        self._inner, self._read = inner, read
        self._cancelled: dict[str, Failure] = {}

    def submit(self, plan: LaunchPlan) -> Job:
        """Start the process, unless the point is measured."""
        outcome = self._read(plan.name)
        return _Measured(plan=plan, outcome=outcome) if outcome else self._inner.submit(plan)

    def poll(self, jobs: Sequence[Job]) -> tuple[JobEnd | None, ...]:
        """The end of each job; a point counts also where a later one ended the process."""
        return tuple(map(self._end, jobs))

    def _end(self, job: Job) -> JobEnd | None:
        if isinstance(job, _Measured):
            return JobEnd(exit_code=0, outcome=job.outcome, wall_s=0.0)
        (end,) = self._inner.poll((job,))
        if end is None:
            return None
        name = job.plan.name
        return replace(end, outcome=self._read(name) or self._failure(job.plan, end.exit_code))

    def _failure(self, plan: LaunchPlan, code: int) -> FailedTrial:
        folder = Path(plan.folder or "")
        why = self._cancelled.get(plan.name)
        if why is None and code:
            said = how_it_died(code if code <= 128 else 128 - code, _first_error(folder))
            why = Failure(kind=FailureKind.CRASHED, detail=said)
        why = why or Failure(kind=FailureKind.NO_STEPS, detail="ended without figures")
        return FailedTrial(failure=replace(why, log_tail=read_log_tail(folder)))

    def wait(self, jobs: Sequence[Job], timeout_s: float) -> None:
        """Return when a job has ended, a signal came, or the time is up."""
        if not any(isinstance(job, _Measured) for job in jobs):
            self._inner.wait(jobs, timeout_s)

    def cancel(self, job: Job, reason: Failure) -> None:
        """End the job's processes; what was measured before stays."""
        if not isinstance(job, _Measured):
            self._cancelled[job.plan.name] = reason
            self._inner.cancel(job, reason)

    def send_signal(self, job: Job, number: int) -> None:
        """Pass a signal on to the process."""
        if not isinstance(job, _Measured):
            self._inner.send_signal(job, number)

    def end_orphan(self, handle: str, host: str) -> None:
        """See the wrapped backend's."""
        self._inner.end_orphan(handle, host)
