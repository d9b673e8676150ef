"""From a request and its edits to the exact processes of a launch. Not: starting them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from autoconf_launch.autotuner.cluster import ClusterSpec
from autoconf_launch.core import ConfigError, Layout, RankTask
from autoconf_launch.core.rank import TASK_VARIABLE

from .plan import LaunchPlan, RankPlan
from .ports import free_port
from .request import LaunchRequest


def plan_launch(
    request: LaunchRequest,
    cluster: ClusterSpec,
    script_args: tuple[str, ...],
    *,
    task: RankTask | None = None,
    expected: Layout | None = None,
) -> LaunchPlan:
    """Every rank's argv and variables; ``task`` makes it a trial with a folder of its own.

    Raises:
        ConfigError: the script does not exist.
    """
    require_script(request)
    world_size = len(cluster.devices)
    port = request.master_port or free_port()
    ranks = tuple(
        RankPlan(
            rank=rank,
            local_rank=rank,
            argv=_argv(request, script_args, rank),
            environment=_environment(request, world_size, rank, port, task),
        )
        for rank in range(world_size)
    )
    return LaunchPlan(
        name=Path(task.folder).name if task else Path(request.script).name,
        ranks=ranks,
        working_directory=str(Path.cwd()),
        folder=task.folder if task else None,
        task=task,
        expected=expected,
    )


def require_script(request: LaunchRequest) -> None:
    """See that there is something to launch.

    Raises:
        ConfigError: the script does not exist.
    """
    if request.kind == "script" and not Path(request.script).is_file():
        raise ConfigError(
            f"Script {request.script} does not exist in {Path.cwd()}; give its path after the "
            "launcher's flags."
        )


def _argv(request: LaunchRequest, script_args: tuple[str, ...], rank: int) -> tuple[str, ...]:
    local_rank = (f"--local_rank={rank}",) if request.local_rank_argument else ()
    python = () if request.kind == "program" else (sys.executable, "-u")
    module = ("-m",) if request.kind == "module" else ()
    return (*python, *module, request.script, *local_rank, *script_args)


def _environment(
    request: LaunchRequest, world_size: int, rank: int, port: int, task: RankTask | None
) -> tuple[tuple[str, str], ...]:
    variables = {
        "RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": world_size,
        "LOCAL_WORLD_SIZE": world_size,
        "LOCAL_SIZE": world_size,
        "CROSS_RANK": 0,
        "CROSS_SIZE": 1,
        "MASTER_ADDR": request.master_addr,
        "MASTER_PORT": port,
    }
    if "OMP_NUM_THREADS" not in os.environ:
        variables["OMP_NUM_THREADS"] = max(1, usable_cores() // world_size)
    texts = {name: str(value) for name, value in variables.items()}
    if task:
        texts[TASK_VARIABLE] = task.to_variable()
    return tuple(texts.items())


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))
