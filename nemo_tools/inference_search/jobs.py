"""Launches of an inference search's points on a cluster, as text."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

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
from .engines import FIRST_TOKEN_FILE, LATENCY_FILE
from .points import SearchPoint, nodes_necessary
from .prepared import LengthSearch, PreparedInference

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
