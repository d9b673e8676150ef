"""Launches of an inference search's points on a cluster, as text.

A batch alone says how quick a point is, and decides the search. What its layout serves when
requests come beside each other is measured afterwards, for the recommended one, by engines that
have such a test.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from autoconf_launch.launcher.report import csv_text

from ..search import (
    SHEBANG,
    ClusterKind,
    GridKind,
    SlurmJob,
    cluster_options,
    container_flags,
    sbatch_text,
    search_mounts,
)
from .engines import (
    FIRST_TOKEN_FILE,
    LATENCY_FILE,
    PERCENTS,
    LoadFigures,
    LoadTest,
    LoadTestingEngine,
)
from .points import SearchPoint, nodes_necessary
from .prepared import LengthSearch, PreparedInference
from .results import digits_of

_RANK_VARIABLES = (
    "export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS "
    "MASTER_ADDR=$SLURM_LAUNCH_NODE_IPADDR MASTER_PORT=29500; exec "
)
"""Arguments of ranks that Slurm starts, from the variables that Slurm sets for each."""
_UNGIVEN = "???"
POINT_LOG = "log_job_"
"""Beginning of the names of a job's logs, before its number."""


def has_run(folder: Path) -> bool:
    """True if a job has left something in a point's folder."""
    names = (LATENCY_FILE, FIRST_TOKEN_FILE, f"{POINT_LOG}*", "slurm-*.out")
    return any(any(folder.glob(name)) for name in names)


def nodes_of(prepared: PreparedInference, point: SearchPoint) -> int:
    """Nodes of a run: by NVIDIA's rule in NVIDIA's grid, else as few as hold its ranks."""
    each = prepared.gpus_per_node
    if prepared.question.settings.grid is GridKind.NEMO:
        layout = point.layout
        return nodes_necessary(each, layout.tensor_parallel, layout.pipeline_parallel)
    return -(-point.gpus // each)


def why_no_job(prepared: PreparedInference, point: SearchPoint) -> str:
    """Why a job cannot run a point; empty where it can."""
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
    tasks = -(-ranks // nodes)
    settings = prepared.question.settings
    if settings.cluster.kind is ClusterKind.BCP:
        prefix = f"bcprun --nnodes {nodes} --npernode {tasks} --cmd"
        lines = "\n".join(f"{prefix} {shlex.quote(command)}" for command in commands)
        return f"{SHEBANG}\n{lines}\n"
    if ranks > 1:
        commands = tuple(f"{_RANK_VARIABLES}{command}" for command in commands)
    container = settings.inference.container or settings.paths.container or _UNGIVEN
    return sbatch_text(
        SlurmJob(
            name=f"{settings.cluster.job_name_prefix}{point.name}",
            command=commands[0],
            further=commands[1:],
            nodes=nodes,
            tasks_per_node=tasks,
            cluster=cluster_options(prepared.question),
            flags=container_flags(
                container,
                search_mounts(prepared.question),
                settings.cluster.srun_args,
                str(folder / f"{POINT_LOG}%j"),
            ),
            time=settings.inference.time_limit,
        )
    )


_SCRIPT, _TABLE = "submission_script.sh", "load.csv"
_HEADS = (
    *("Benchmark", "Requests at Once", "Requests/s", "Tokens/s", "Output Tokens/s"),
    "Tokens/s per GPU",
    *(f"TTFT p{percent} [ms]" for percent in PERCENTS),
    *(f"Time per Token p{percent} [ms]" for percent in PERCENTS),
    *(f"Latency p{percent} [ms]" for percent in PERCENTS),
    *("Reason", "Name"),
)


def load_script(prepared: PreparedInference, search: LengthSearch, point: SearchPoint) -> str:
    """The job of a point's test; empty where the engine has none."""
    test = _test(prepared, search, point)
    return command_job(prepared, point, _folder(search, point), test.commands) if test else ""


def load_files(
    prepared: PreparedInference, search: LengthSearch, point: SearchPoint
) -> dict[Path, str]:
    """The job of a point's test with what it reads, and ``load.csv`` once it has run."""
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
    """None where the engine has none, or no job runs it."""
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
