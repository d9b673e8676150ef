"""The runs of an inference search on this machine, by the study and backends of a tune."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.autotuner.inference import InferencePoint
from autoconf_launch.autotuner.search import ListedStudy, StopReason
from autoconf_launch.autotuner.space import (
    AutotuningSettings,
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
    RawConfig,
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
    TrialLimits,
    emulated_limit_bytes,
    write_json,
)

from .engines import EngineRun
from .native import MODULE, NativeEngine
from .points import SearchPoint

FIRST_TIMED, MOST_GENERATIONS = 2, 11
"""The first generation warms up; of the others so many are made at most."""
_TIMED_S = 15.0
"""Seconds of generations after which a point has enough of them."""
_STALL_S = 120.0
_THREADS = "OMP_NUM_THREADS"
_METRICS, _FAILURE = "metrics.json", "failure.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSearch:
    """What the runs of one search have in common.

    Attributes:
        runs: every point that is run, as its engine sees it, in the order of running.
        cluster: one slot for each rank that a point may have.
        request: of the ranks; its words are those that no point changes.
    """

    points: tuple[SearchPoint, ...]
    runs: tuple[EngineRun, ...]
    cluster: ClusterSpec
    request: LaunchRequest
    paths: ResultsPaths
    time_limit_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneGenerations:
    """What came back; ``ruled_out`` has names that need more memory than one that failed."""

    records: tuple[Record, ...]
    ruled_out: tuple[tuple[str, Record], ...]
    stop: StopReason | None


class GenerationTrials:
    """The files and plans of the points: a ``TrialIO``."""

    def __init__(self, search: LocalSearch) -> None:
        self._search = search
        names = (point.name for point in search.points)
        self._runs = dict(zip(names, search.runs, strict=True))
        self._predicted = {point.name: point.predicted for point in search.points}
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
            path.write_text(text, encoding="utf-8")
        rendered = Rendered(config=run.base, script_args=self._engine.arguments(run))
        return plan_launch(
            replace(self._search.request, processes=ranks),
            self._cluster(ranks),
            rendered,
            task=self._task(run, attempt),
            expected=trial.candidate,
        )

    def adopt(self, trial: Trial, attempt: str) -> Outcome | None:
        """See :class:`~.controller.TrialIO`."""
        ranks = trial.candidate.layout.world_size
        task = self._task(self._runs[trial.name], attempt)
        return adopt(task, world_size=ranks, expected=trial.candidate)

    def predict(self, trial: Trial) -> Prediction | None:
        """What was predicted of the point."""
        found = self._predicted[trial.name]
        return None if found is None else prediction_of(found)

    def complete(self, outcome: Outcome) -> Outcome:
        """The ranks know it all."""
        return outcome

    def finish(self, record: Record) -> None:
        """Write the point's figures, or why there are none."""
        folder = self._runs[record.trial.name].folder
        if record.measurement:
            measured = record.measurement
            write_json(
                folder / _METRICS,
                {
                    "latencies": list(measured.step_s),
                    **dict(measured.phases),
                    "peak_bytes": measured.memory.peak_bytes if measured.memory else None,
                },
            )
        elif record.failure:
            write_json(folder / _FAILURE, encode(record.failure))

    def _cluster(self, ranks: int) -> ClusterSpec:
        node = self._search.cluster.nodes[0]
        return replace(self._search.cluster, nodes=(replace(node, devices=node.devices[:ranks]),))

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


def prediction_of(point: InferencePoint) -> Prediction:
    """A point's prediction as journals keep it; a step is one generation."""
    return Prediction(
        peak_bytes=int(point.peak_bytes),
        step_s=point.latency_s,
        band=None,
        how="formulas of inference",
    )


def local_search(
    points: tuple[SearchPoint, ...],
    runs: tuple[EngineRun, ...],
    *,
    paths: ResultsPaths,
    cluster: ClusterSpec,
    request: LaunchRequest,
    time_limit_s: float,
) -> LocalSearch:
    """The search of these points; each slot has its share of the cores, however many run."""
    threads = max(1, usable_cores() // len(cluster.devices))
    given = {_THREADS} & {*os.environ, *dict(request.variables)}
    variables = request.variables if given else (*request.variables, (_THREADS, str(threads)))
    words = ("--family", runs[0].family, "--shape", _shape_words(runs[0].base))
    return LocalSearch(
        points=points,
        runs=runs,
        cluster=cluster,
        request=replace(
            request,
            script=MODULE,
            kind="module",
            script_args=words,
            local_rank_argument=False,
            variables=variables,
        ),
        paths=paths,
        time_limit_s=time_limit_s,
    )


def _shape_words(base: RawConfig) -> str:
    """The model as one word, so that another one's measurements are not taken for its own."""
    return json.dumps(base.get(("model",)), sort_keys=True)


def run_points(
    search: LocalSearch, listener: Listener, *, fresh: bool, size: str = ""
) -> DoneGenerations:
    """Run every point once, in order; what an earlier search measured counts."""
    paths, request = search.paths, search.request
    source, settings = find_script_source(request), AutotuningSettings(enabled=True)
    print_ = fingerprint(request, search.cluster, source, settings)
    with stopping_on_signals(), open_folder(paths, print_, fresh=fresh) as opened:
        for text in opened.notes:
            listener(Note(text=text))
        write_environment(paths, request, search.cluster, settings)
        with (
            track_events(
                request.tracking, Feed("inference", size), paths.tracking, listener
            ) as on,
            closing_backend(load_backend("fork_server")) as backend,
        ):
            return _run(search, opened, backend, on)


def _run(
    search: LocalSearch, opened: OpenFolder, backend: Backend, listener: Listener
) -> DoneGenerations:
    trials = [
        Trial(number=number, name=one.name, candidate=one.candidate, space="inference")
        for number, one in enumerate(search.points)
    ]
    study = ListedStudy(trials, most_steps=MOST_GENERATIONS, most_s=_TIMED_S)
    controller = Controller(
        study,
        backend,
        GenerationTrials(search),
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
    stop = controller.run(WHOLE)
    return DoneGenerations(records=study.records, ruled_out=study.ruled_out, stop=stop)


def needs_more(record: Record) -> Failure:
    """Why a point was not started that surely needs more memory."""
    return Failure(
        kind=FailureKind.OUT_OF_MEMORY,
        detail=f"not started: needs more memory than {record.trial.name}, which ran out of it",
    )


def folder_of(results: Path, lengths: str) -> Path:
    """Folder of one search's runs; ``lengths`` is empty where it is the only one."""
    return results / "inference" / lengths if lengths else results / "inference"
