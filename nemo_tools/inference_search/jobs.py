"""Launches of an inference search's points on a cluster, as text.

The time of one batch decides the search. The recommended layout's throughput with many concurrent
requests is measured afterwards, by engines with such a test.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from autoconf_launch.autotuner.space import FailedTrial, Measurement, Outcome
from autoconf_launch.launcher.launch import file_tail
from autoconf_launch.launcher.report import csv_text
from autoconf_launch.launcher.results import Fingerprint

from ..report import NOT_STARTED, SearchPoint, digits_of
from ..search import ClusterKind, GridKind, job_script, submit_all_text
from .engines import (
    FIRST_TOKEN_FILE,
    LATENCY_FILE,
    PERCENTS,
    LoadFigures,
    LoadTest,
    LoadTestingEngine,
)
from .points import LengthSearch, PreparedInference, nodes_necessary

_RANK_VARIABLES = (
    "export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS "
    "MASTER_ADDR=$SLURM_LAUNCH_NODE_IPADDR MASTER_PORT=29500; exec "
)
"""Arguments of ranks that Slurm starts, from the variables that Slurm sets for each."""
SUBMIT, _SCRIPT, _TABLE = "submit_all.sh", "submission_script.sh", "load.csv"
POINT_LOG = "log_job_"
"""Beginning of the names of a job's logs, before its number."""


class PointJobs:
    """Points of one search as jobs; see ``JobFiles`` of the search's job runner."""

    is_kept = True

    def __init__(self, prepared: PreparedInference, search: LengthSearch) -> None:
        self._prepared, self._search = prepared, search
        self.kind, self.paths = prepared.all_settings.cluster.kind, search.paths
        self._runs = {one.name: prepared.run_of(one, search) for one in search.points}

    @property
    def fingerprint(self) -> Fingerprint:
        prepared, run = self._prepared, self._runs[self._search.points[0].name]
        lengths = f"{run.task.input_len} tokens in", f"{run.task.output_len} out"
        return Fingerprint(
            script=prepared.engine_name,
            arguments=(*lengths, run.task.precision.value, f"{run.beam_width} beams"),
            config=hashlib.sha256(prepared.base.to_json().encode()).hexdigest(),
            hardware=(f"{prepared.gpus_per_node} per node",),
            versions=(),
        )

    def write(self, points: Sequence[SearchPoint]) -> None:
        """Write the files and the job of each point, and the script that starts them all."""
        scripts = [self.script(one.name) for one in points]
        files = {self._search.folder / SUBMIT: submit_all_text(self.kind, scripts)}
        for point in points:
            files |= self._prepared.engine.files(self._runs[point.name])
            files[self.script(point.name)] = inference_job(self._prepared, self._search, point)
        for path, text in files.items():
            self.paths.write(path, text)

    def script(self, name: str) -> Path:
        return self.folder(name) / _SCRIPT

    def folder(self, name: str) -> Path:
        return self._runs[name].folder

    def clear(self, name: str) -> None:
        for file in (LATENCY_FILE, FIRST_TOKEN_FILE):
            (self.folder(name) / file).unlink(missing_ok=True)

    def read(self, name: str) -> Outcome:
        """The figures of a job, or the last lines of its log."""
        folder, outcome = self.folder(name), self._prepared.engine.read(self._runs[name])
        if isinstance(outcome, Measurement):
            return outcome
        assert isinstance(outcome, FailedTrial)
        left = (LATENCY_FILE, FIRST_TOKEN_FILE, f"{POINT_LOG}*", "slurm-*.out")
        detail = f"{NOT_STARTED}: {self.script(name)} has left neither figures nor a log"
        if any(any(folder.glob(file)) for file in left):
            logs = sorted(
                folder.glob(f"{POINT_LOG}*.error"), key=lambda path: path.lstat().st_mtime
            )
            said = "".join(f": {line}" for line in file_tail(logs[-1], lines=1)) if logs else ""
            detail = f"{outcome.failure.detail.rstrip('.')}{said}"
        return FailedTrial(failure=replace(outcome.failure, detail=detail))


def nodes_of(prepared: PreparedInference, point: SearchPoint) -> int:
    """Nodes of a run: by NVIDIA's rule in NVIDIA's grid, else as few as hold its ranks."""
    each = prepared.gpus_per_node
    if prepared.question.scope.grid is GridKind.NEMO:
        layout = point.layout
        return nodes_necessary(each, layout.tensor_parallel, layout.pipeline_parallel)
    return -(-point.gpus // each)


def why_no_job(prepared: PreparedInference, point: SearchPoint) -> str:
    """The reason why a job cannot run a point; empty if it can."""
    nodes = nodes_of(prepared, point)
    starts_all = prepared.engine.tasks_per_run(prepared.run_of(point, prepared.searches[0])) == 1
    if nodes > 1 and starts_all:
        return (
            f"engine {prepared.engine_name} over {nodes} nodes needs a Ray cluster, which no job "
            "starts; take engine=native."
        )
    return ""


def inference_job(prepared: PreparedInference, search: LengthSearch, point: SearchPoint) -> str:
    """The batch script of a point, or its commands on Base Command."""
    run = prepared.run_of(point, search)
    return command_job(prepared, point, run.folder, prepared.engine.commands(run))


def command_job(
    prepared: PreparedInference,
    point: SearchPoint,
    folder: Path,
    words: Sequence[tuple[str, ...]],
) -> str:
    """A job that runs commands of the engine with the point's ranks; its logs are in a folder."""
    run = prepared.run_of(point, prepared.searches[0])
    ranks, nodes = prepared.engine.tasks_per_run(run), nodes_of(prepared, point)
    commands = tuple(map(shlex.join, words))
    is_slurm = prepared.all_settings.cluster.kind is not ClusterKind.BCP
    if ranks > 1 and is_slurm:
        commands = tuple(f"{_RANK_VARIABLES}{command}" for command in commands)
    return job_script(
        prepared.all_settings,
        point.name,
        commands,
        size=(nodes, -(-ranks // nodes)),
        log=folder / f"{POINT_LOG}%j",
        is_inference=True,
    )


_HEADS = (
    *("Benchmark", "Requests at Once", "Requests/s", "Tokens/s", "Output Tokens/s"),
    "Tokens/s per GPU",
    *(f"TTFT p{percent} [ms]" for percent in PERCENTS),
    *(f"Time per Token p{percent} [ms]" for percent in PERCENTS),
    *(f"Latency p{percent} [ms]" for percent in PERCENTS),
    *("Reason", "Name"),
)


def load_script(prepared: PreparedInference, search: LengthSearch, point: SearchPoint) -> str:
    """The job of a point's test; empty if the engine has none."""
    test = _test(prepared, search, point)
    return command_job(prepared, point, _folder(search, point), test.commands) if test else ""


def load_files(
    prepared: PreparedInference, search: LengthSearch, point: SearchPoint
) -> dict[Path, str]:
    """The job of a point's test with its input files, and ``load.csv`` once it has run."""
    test, folder = _test(prepared, search, point), _folder(search, point)
    if test is None:
        return {}
    table = _table(prepared, search, point)
    files = {**test.files, folder / _SCRIPT: load_script(prepared, search, point)}
    return files | ({search.summary / _TABLE: table} if table else {})


def load_lines(
    prepared: PreparedInference, search: LengthSearch, point: SearchPoint
) -> Iterator[str]:
    """Lines on the recommended point's load test; none if the engine has no test."""
    if _table(prepared, search, point):
        yield f"Under load: {search.summary / _TABLE}"
    elif _test(prepared, search, point):
        script = shlex.quote(str(_folder(search, point) / _SCRIPT))
        yield f"To measure it under load, submit {script}; the same search then writes {_TABLE}."


def _test(
    prepared: PreparedInference, search: LengthSearch, point: SearchPoint
) -> LoadTest | None:
    """None if the engine has no test, or no job runs it."""
    engine = prepared.engine
    if prepared.is_local or not isinstance(engine, LoadTestingEngine):
        return None
    return engine.load_test(prepared.run_of(point, search), _folder(search, point))


def _table(prepared: PreparedInference, search: LengthSearch, point: SearchPoint) -> str:
    engine = prepared.engine
    if not isinstance(engine, LoadTestingEngine):
        return ""
    figures = tuple(engine.read_load(_folder(search, point)))
    return csv_text([_HEADS, *(tuple(_cells(one, point)) for one in figures)]) if figures else ""


def _folder(search: LengthSearch, point: SearchPoint) -> Path:
    return search.folder / point.name / "load_test"


def _cells(figures: LoadFigures, point: SearchPoint) -> Iterator[object]:
    tokens = figures.tokens_per_s
    yield figures.benchmark
    yield "" if figures.max_concurrency is None else figures.max_concurrency
    for value in (figures.requests_per_s, tokens, figures.output_tokens_per_s):
        yield "" if value is None else digits_of(value)
    yield "" if tokens is None else digits_of(tokens / point.gpus)
    for times_s in (figures.ttft_s, figures.token_s, figures.latency_s):
        yield from (digits_of(1e3 * time_s) for time_s in times_s or ())
        yield from [""] * (0 if times_s else len(PERCENTS))
    yield from (figures.reason, point.name)
