"""The runs of an inference search on this machine, by the study and backends of a tune."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from autoconf_launch.autotuner.search import ListedStudy, StopReason
from autoconf_launch.autotuner.space import (
    AutotuningSettings,
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
from autoconf_launch.launcher.backends import Backend, closing_backend, load_backend
from autoconf_launch.launcher.events import Listener, Note
from autoconf_launch.launcher.interrupts import stopping_on_signals
from autoconf_launch.launcher.launch import adopt, find_script_source, plan_launch
from autoconf_launch.launcher.machine import WHOLE, usable_cores
from autoconf_launch.launcher.plan import LaunchPlan
from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.launcher.results import (
    OpenFolder,
    ResultsPaths,
    fingerprint,
    open_folder,
    write_environment,
)
from autoconf_launch.launcher.spelling import Rendered
from autoconf_launch.launcher.trackers import Feed, track_events
from autoconf_launch.launcher.tuning import (
    Controller,
    TrialIO,
    TrialLimits,
    emulated_limit_bytes,
    write_json,
)

from ..search import local_request as slots_request
from .engines import TIMED_S, EngineRun
from .native import MODULE, NativeEngine
from .points import SearchPoint

FIRST_TIMED, MOST_GENERATIONS = 2, 11
"""The first generation warms up; of the others so many are made at most."""
_STALL_S = 120.0
_THREADS = "OMP_NUM_THREADS"
_METRICS, _FAILURE = "metrics.json", "failure.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSearch:
    """Settings that the runs of one search share.

    Attributes:
        runs: every point that is run, as its engine sees it, in the order of running.
        cluster: one slot for each rank that a point may have.
        request: of the ranks; its words are those that no point changes.
        time_limit_s: of one point, or of one process with all of its points.
        bound_s: latency above which a point is not the best; infinite without a bound.
    """

    points: tuple[SearchPoint, ...]
    runs: tuple[EngineRun, ...]
    cluster: ClusterSpec
    request: LaunchRequest
    paths: ResultsPaths
    time_limit_s: float
    bound_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneGenerations:
    """Finished runs; ``ruled_out`` names points that need more memory than a failed one."""

    records: tuple[Record, ...]
    ruled_out: tuple[tuple[str, Record], ...]
    stop: StopReason | None


Runners: TypeAlias = tuple[TrialIO, Backend]
"""The planner of points, and the backend that runs the plans."""


class PointTrials:
    """Predictions and files of points for any engine: part of a ``TrialIO``."""

    def __init__(self, search: LocalSearch) -> None:
        self._search = search
        names = (point.name for point in search.points)
        self._runs = dict(zip(names, search.runs, strict=True))
        self._predicted = {point.name: point.predicted for point in search.points}

    def predict(self, trial: Trial) -> Prediction | None:
        """Prediction for the point; a step is one generation."""
        found = self._predicted[trial.name]
        if found is None:
            return None
        return Prediction(
            peak_bytes=int(found.peak_bytes),
            step_s=found.latency_s,
            band=None,
            how="formulas of inference",
        )

    def complete(self, outcome: Outcome) -> Outcome:
        """The outcome as it is: the engine has already completed it."""
        return outcome

    def finish(self, record: Record) -> None:
        """Write the point's figures, or why there are none."""
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


class GenerationTrials(PointTrials):
    """The files and plans of the points: a ``TrialIO``."""

    def __init__(self, search: LocalSearch) -> None:
        super().__init__(search)
        self._engine = NativeEngine()

    def plan(self, trial: Trial, attempt: str) -> LaunchPlan:
        """The plan of a point; what its ranks read is written."""
        run, paths = self._runs[trial.name], self._search.paths
        paths.make_launch_folder(run.folder)
        ranks = trial.candidate.layout.world_size
        old = (STEPS_FILE, END_FILE, _METRICS, _FAILURE, *map(result_file, range(ranks)))
        for name in old:
            (run.folder / name).unlink(missing_ok=True)
        for path, text in self._engine.files(run).items():
            paths.write(path, text)
        rendered = Rendered(config=run.base, script_args=self._engine.arguments(run))
        return plan_launch(
            replace(self._search.request, processes=ranks),
            part_of(self._search.cluster, ranks),
            rendered,
            task=self._task(run, attempt),
            expected=trial.candidate,
        )

    def adopt(self, trial: Trial, attempt: str) -> Outcome | None:
        """See :class:`~.controller.TrialIO`."""
        ranks = trial.candidate.layout.world_size
        task = self._task(self._runs[trial.name], attempt)
        return adopt(task, world_size=ranks, expected=trial.candidate)

    def _task(self, run: EngineRun, attempt: str) -> RankTask:
        return RankTask(
            mode=Mode.MEASURE,
            folder=str(run.folder),
            attempt=attempt,
            start_step=FIRST_TIMED,
            end_step=MOST_GENERATIONS,
            most_steps=MOST_GENERATIONS,
            memory_limit_bytes=emulated_limit_bytes(self._search.cluster),
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


def fork_ranks(search: LocalSearch) -> Runners:
    """Ranks for each point, forked from one process."""
    return GenerationTrials(search), load_backend("fork_server")


def run_points(
    search: LocalSearch,
    runners: Callable[[LocalSearch], Runners],
    listener: Listener,
    *,
    fresh: bool,
    size: str = "",
) -> DoneGenerations:
    """Run every point once, in order; what an earlier search measured counts."""
    paths, request = search.paths, search.request
    source, settings = find_script_source(request), AutotuningSettings(enabled=True)
    print_ = fingerprint(request, search.cluster, source, settings)
    with stopping_on_signals(), open_folder(paths, print_, fresh=fresh) as opened:
        for text in opened.notes:
            listener(Note(text=text))
        write_environment(paths, request, search.cluster, settings)
        with track_events(
            request.tracking, Feed("inference", size), paths.tracking, listener
        ) as on:
            return _run(search, opened, runners(search), on)


def _run(
    search: LocalSearch, opened: OpenFolder, runners: Runners, listener: Listener
) -> DoneGenerations:
    trial_io, backend = runners
    trials = [
        Trial(number=number, name=one.name, candidate=one.candidate, space="inference")
        for number, one in enumerate(search.points)
    ]
    study = ListedStudy(
        trials,
        most_steps=MOST_GENERATIONS,
        most_s=TIMED_S,
        objective=per_gpu_objective(search.bound_s),
    )
    controller = Controller(
        study,
        backend,
        trial_io,
        journal=opened.journal,
        listener=listener,
        limits=TrialLimits(
            timeout_s=search.time_limit_s, stall_s=_STALL_S, timeout_by="time_limit"
        ),
    )
    known = {trial.name: trial.candidate for trial in trials}
    earlier = opened.contents.search
    ours = tuple(
        one for one in opened.contents.records if known.get(one.trial.name) == one.trial.candidate
    )
    controller.resume(replace(earlier, records=ours))
    with closing_backend(backend):
        stop = controller.run(WHOLE)
    return DoneGenerations(records=study.records, ruled_out=study.ruled_out, stop=stop)


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


def needs_more(record: Record) -> Failure:
    """Why a point was not started that surely needs more memory."""
    return Failure(
        kind=FailureKind.OUT_OF_MEMORY,
        detail=f"not started: needs more memory than {record.trial.name}, which ran out of it",
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
