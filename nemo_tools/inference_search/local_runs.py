"""The runs of an inference search on this machine, by the study and backends of a tune."""

from __future__ import annotations

import json
import os
import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.autotuner.space import (
    FailedTrial,
    Measurement,
    Objective,
    Outcome,
    Prediction,
    Record,
    Trial,
)
from autoconf_launch.core import (
    END_FILE,
    STEPS_FILE,
    ClusterSpec,
    Failure,
    FailureKind,
    Mode,
    RankTask,
    encode,
    result_file,
)
from autoconf_launch.launcher.engines import Backend, ForkServerEngine, Job, JobEnd, LocalEngine
from autoconf_launch.launcher.events import Listener
from autoconf_launch.launcher.launch import (
    STDERR_LOG,
    STDOUT_LOG,
    adopt,
    file_tail,
    how_it_died,
    plan_launch,
    printed_error,
    read_log_tail,
)
from autoconf_launch.launcher.machine import is_cpu, split_cores, usable_cores
from autoconf_launch.launcher.plan import LaunchPlan
from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.launcher.spelling import Rendered
from autoconf_launch.launcher.trackers import Feed
from autoconf_launch.launcher.tuning import (
    TrialLimits,
    emulated_limit_bytes,
    write_json,
)

from ..report import SearchPoint
from ..search import OpenRuns, RunLimits, Runner, opening_launches
from ..search import local_request as slots_request
from .engines import (
    FIRST_TOKEN_FILE,
    LATENCY_FILE,
    MODULE,
    TIMED_S,
    EngineRun,
    NativeEngine,
    SharingEngine,
)
from .points import LengthSearch, PreparedInference

_FIRST_TIMED, _MOST_GENERATIONS = 2, 11
"""The first generation warms up; this is the most that follow."""
_STALL_S = 120.0
_THREADS = "OMP_NUM_THREADS"
_METRICS, _FAILURE = "metrics.json", "failure.json"
_LOGGED_ERROR = re.compile(r".*\bERROR\b.*\] (\w+(?:Error|Exception): .+)")
_MOST_LINES = 1000


class _PointRunner(Runner[SearchPoint]):
    """Runs points on this machine: runner and ``TrialIO`` at once, for any engine.

    The cluster has one slot for each rank that a point may have; ``points`` are in order.
    """

    def __init__(
        self, prepared: PreparedInference, search: LengthSearch, points: tuple[SearchPoint, ...]
    ) -> None:
        self.points, self._paths, self._cluster = points, search.paths, prepared.cluster
        self._runs = {point.name: prepared.run_of(point, search) for point in points}
        self._request = ranks_request(prepared.cluster, self._runs[points[0].name])
        self._size_b, self._limit_s = prepared.question.size_b, prepared.settings.time_limit_s
        self.objective = per_gpu_objective(prepared.bound_s)

    @property
    def limits(self) -> RunLimits:
        """Limits of each point."""
        launch = TrialLimits(timeout_s=self._limit_s, stall_s=_STALL_S, timeout_by="time_limit")
        return RunLimits(steps=_MOST_GENERATIONS, steps_s=TIMED_S, launch=launch)

    def opening(self, listener: Listener, *, fresh: bool) -> AbstractContextManager[OpenRuns]:
        launch = self._request, self._cluster, Feed("inference", f"{self._size_b:.10g}b")
        return opening_launches(self._paths, launch, (self, self.backend), listener, fresh=fresh)

    def backend(self, listener: Listener) -> Backend:
        return ForkServerEngine()

    @abstractmethod
    def plan(self, trial: Trial, attempt: str) -> LaunchPlan: ...

    def adopt(self, trial: Trial, attempt: str) -> Outcome | None:
        return None  # an interrupted process starts again with what is not measured

    def predict(self, trial: Trial) -> Prediction | None:
        found = next(one for one in self.points if one.name == trial.name).predicted
        if found is None:
            return None
        return Prediction(
            peak_bytes=int(found.peak_bytes),
            step_s=found.latency_s,
            band=None,
            how="formulas of inference",
        )

    def complete(self, outcome: Outcome) -> Outcome:
        return outcome  # the engine has completed it

    def finish(self, record: Record) -> None:
        folder = self._runs[record.trial.name].folder
        if measured := record.measurement:
            figures = {
                "latencies": list(measured.step_s),
                **dict(measured.phases),
                "peak_bytes": measured.memory.peak_bytes if measured.memory else None,
            }
            write_json(folder / _METRICS, figures)
        elif record.failure:
            write_json(folder / _FAILURE, encode(record.failure))


class PointRanks(_PointRunner):
    """Ranks for each point, forked from one process: the engine native."""

    def plan(self, trial: Trial, attempt: str) -> LaunchPlan:
        run, paths, engine = self._runs[trial.name], self._paths, NativeEngine()
        paths.make_launch_folder(run.folder)
        ranks = trial.candidate.layout.world_size
        old = (STEPS_FILE, END_FILE, _METRICS, _FAILURE, *map(result_file, range(ranks)))
        for name in old:
            (run.folder / name).unlink(missing_ok=True)
        for path, text in engine.files(run).items():
            paths.write(path, text)
        rendered = Rendered(config=run.base, script_args=engine.arguments(run))
        return plan_launch(
            replace(self._request, processes=ranks),
            part_of(self._cluster, ranks),
            rendered,
            task=self._task(run, attempt),
            expected=trial.candidate,
        )

    def adopt(self, trial: Trial, attempt: str) -> Outcome | None:
        ranks = trial.candidate.layout.world_size
        task = self._task(self._runs[trial.name], attempt)
        return adopt(task, world_size=ranks, expected=trial.candidate)

    def _task(self, run: EngineRun, attempt: str) -> RankTask:
        return RankTask(
            mode=Mode.MEASURE,
            folder=str(run.folder),
            attempt=attempt,
            start_step=_FIRST_TIMED,
            end_step=_MOST_GENERATIONS,
            most_steps=_MOST_GENERATIONS,
            memory_limit_bytes=emulated_limit_bytes(self._cluster),
        )


def part_of(cluster: ClusterSpec, ranks: int) -> ClusterSpec:
    """The first slots of this machine."""
    node = cluster.nodes[0]
    return replace(cluster, nodes=(replace(node, devices=node.devices[:ranks]),))


def ranks_request(cluster: ClusterSpec, run: EngineRun) -> LaunchRequest:
    """The launch of ranks; each slot has its share of the cores, however many of them run."""
    request = slots_request(len(cluster.devices))
    threads = max(1, usable_cores() // len(cluster.devices))
    given = {_THREADS} & {*os.environ, *dict(request.variables)}
    variables = request.variables if given else (*request.variables, (_THREADS, str(threads)))
    return replace(
        request,
        script=MODULE,
        kind="module",
        script_args=model_words(run),
        local_rank_flag="",
        variables=variables,
    )


def model_words(run: EngineRun) -> tuple[str, ...]:
    """The model in words, so that another one's measurements are not taken for its own."""
    shape = json.dumps(run.base.get(("model",)), sort_keys=True)
    return "--family", run.family, "--shape", shape


def per_gpu_objective(bound_s: float) -> Objective:
    """Samples of a second and GPU; none of a batch that takes longer than the bound."""

    def value(measured: Measurement) -> float | None:
        is_late = measured.mean_step_s > bound_s
        return None if is_late else measured.throughput_per_s / measured.world_size

    return Objective(
        name="throughput",
        unit="samples/s/GPU",
        value=value,
        rank=value,
        higher_is_better=True,
        per_sample=True,
    )


def busy_note(records: Sequence[Record], ranks: int) -> str:
    """Advice if other work used this machine's cores; empty if none did."""
    loads = [record.conditions.load_before for record in records if record.conditions]
    own, cores = ranks + 1, usable_cores()  # what stays of the previous run, and this process
    busy = [load for load in loads if load is not None and load > cores + own]
    if not busy:
        return ""
    return (
        f"Other work ran beside {len(busy)} of {len(records)} points (load up to {max(busy):.0f} "
        f"on {cores} cores), which makes them slower, those of several ranks most; search again "
        "with --fresh once the machine is idle."
    )


def _cores_of_slots(cluster: ClusterSpec) -> tuple[tuple[int, ...], ...]:
    """Cores of each slot, all of them if there are fewer than slots; empty with GPUs."""
    if not is_cpu(cluster):
        return ()
    usable, slots = tuple(sorted(os.sched_getaffinity(0))), len(cluster.devices)
    return split_cores(usable, slots) if len(usable) >= slots else (usable,) * slots


def _first_error(folder: Path) -> str:
    logs = (folder / STDOUT_LOG, folder / STDERR_LOG)
    lines = (line for path in logs for line in file_tail(path, lines=_MOST_LINES))
    found = filter(None, map(_LOGGED_ERROR.fullmatch, lines))
    return next((match[1] for match in found), "") or "".join(printed_error(folder)[-1:])


class SharedProcesses(_PointRunner):
    """All points of a layout in one process of an engine that shares it."""

    def __init__(
        self,
        prepared: PreparedInference,
        search: LengthSearch,
        points: tuple[SearchPoint, ...],
        engine: SharingEngine,
    ) -> None:
        degrees = [_degrees(point) for point in points]
        order = sorted(range(len(points)), key=lambda row: degrees.index(degrees[row]))
        super().__init__(prepared, search, tuple(points[row] for row in order))
        first = self._runs[self.points[0].name]
        self._engine, self._cores = engine, _cores_of_slots(self._cluster)
        process = engine.shared_process((first,), self._cores)
        self._request = replace(
            self._request,
            script=str(process.program),
            kind="script",
            python=process.python,
            script_args=(*model_words(first), "--engine", process.version),
            alone=True,
        )
        self._limit_s *= max(map(degrees.count, degrees))  # a process has time for all of its own
        self._requested: set[str] = set()
        """Points that a process of this session was started for."""

    def backend(self, listener: Listener) -> Backend:
        return _SharedBackend(LocalEngine(), self.read_figures_of)

    def plan(self, trial: Trial, attempt: str) -> LaunchPlan:
        # The process of a point and of those after it that have its layout and no figures.
        names = [point.name for point in self.points]
        place = names.index(trial.name)
        layout = _degrees(self.points[place])
        shared = [
            point.name
            for point in self.points[place:]
            if _degrees(point) == layout and not self.read_figures_of(point.name)
        ]
        runs = [self._runs[name] for name in shared] or [self._runs[trial.name]]
        process = self._engine.shared_process(runs, self._cores)
        for run in runs if shared else ():
            self._paths.make_launch_folder(run.folder)
            for name in (LATENCY_FILE, FIRST_TOKEN_FILE):
                (run.folder / name).unlink(missing_ok=True)
        for path, text in process.files.items() if shared else ():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self._requested.update(shared)
        plan = plan_launch(
            self._request,
            part_of(self._cluster, trial.candidate.layout.world_size),
            Rendered(
                config=runs[0].base, script_args=process.arguments, environment=process.variables
            ),
        )
        return replace(plan, name=trial.name, folder=str(self._runs[trial.name].folder))

    def read_figures_of(self, name: str) -> Outcome | None:
        """Complete figures of a point by a process of this session."""
        outcome = self._engine.read(self._runs[name]) if name in self._requested else None
        return outcome if isinstance(outcome, Measurement) else None


def _degrees(point: SearchPoint) -> tuple[int, int]:
    return point.layout.tensor_parallel, point.layout.pipeline_parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """A point that an earlier point's process has measured, as a job that has ended."""

    plan: LaunchPlan
    outcome: Outcome
    handle: str = ""
    is_queued: bool = False


class _SharedBackend:
    """Another backend, which is not asked for points that are measured already."""

    def __init__(self, inner: Backend, read: Callable[[str], Outcome | None]) -> None:
        self._inner, self._read = inner, read
        self._cancelled: dict[str, Failure] = {}

    def submit(self, plan: LaunchPlan) -> Job:
        outcome = self._read(plan.name)
        return _Measured(plan=plan, outcome=outcome) if outcome else self._inner.submit(plan)

    def poll(self, jobs: Sequence[Job]) -> tuple[JobEnd | None, ...]:
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
        if not any(isinstance(job, _Measured) for job in jobs):
            self._inner.wait(jobs, timeout_s)

    def cancel(self, job: Job, reason: Failure) -> None:
        if not isinstance(job, _Measured):
            self._cancelled[job.plan.name] = reason
            self._inner.cancel(job, reason)

    def send_signal(self, job: Job, number: int) -> None:
        if not isinstance(job, _Measured):
            self._inner.send_signal(job, number)

    def end_orphan(self, handle: str, host: str) -> None:
        self._inner.end_orphan(handle, host)

    def close(self) -> None:
        self._inner.close()
