"""From a request and its edits to the exact processes of a launch. Not: starting them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from autoconf_launch.core import (
    TASK_VARIABLE,
    Candidate,
    ClusterSpec,
    ConfigError,
    Device,
    RankTask,
    ResultsFolderError,
)

from ..machine import (
    LOCAL,
    VISIBLE,
    cores_of_ranks,
    free_port,
    read_environment_files,
    usable_cores,
)
from ..plan import LaunchPlan, RankPlan
from ..request import LaunchRequest


def rank_log_paths(folder: str, ranks: Iterable[int]) -> tuple[str, ...]:
    """Absolute paths ``<now>_rank<R>.log`` in the folder, which is made where it is missing.

    Raises:
        ResultsFolderError: the folder cannot be made.
    """
    path = Path(folder).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsFolderError(
            f"Folder {folder} for the ranks' logs cannot be made: {error.strerror}; "
            "give another one with --enable_each_rank_log."
        ) from error
    now = time.strftime("%Y%m%d%H%M%S")
    return tuple(str(path / f"{now}_rank{rank}.log") for rank in ranks)


DEFAULT_PORT = 29500
"""DeepSpeed's and torch's; hosts that are started by hand cannot agree on a free one."""
_LOCAL_ADDRESS = "127.0.0.1"


def plan_launch(
    request: LaunchRequest,
    cluster: ClusterSpec,
    script_args: tuple[str, ...],
    *,
    task: RankTask | None = None,
    expected: Candidate | None = None,
) -> LaunchPlan:
    """Argv and variables of this machine's ranks.

    ``task`` makes it a trial with a folder of its own, whose ranks get no further logs.

    Raises:
        ConfigError: the script does not exist, or the ranks cannot be bound to cores.
        ResultsFolderError: the folder for the ranks' logs cannot be made.
    """
    require_script(request)
    node = request.hosts.node_rank or 0
    devices = cluster.nodes[node].devices
    first = sum(len(other.devices) for other in cluster.nodes[:node])
    logs = request.rank_log_folder if task is None else None
    paths = rank_log_paths(logs, range(first, first + len(devices))) if logs else None
    cores = cores_of_ranks(request.binding, len(devices)) if request.binding else None
    threads = len(cores[0]) if cores else None
    shared = _shared_variables(request, cluster, task, threads)
    ranks = tuple(
        RankPlan(
            rank=first + local,
            local_rank=local,
            argv=_argv(request, script_args, local),
            environment=(*shared, *_numbers(request, first, local)),
            cores=cores[local] if cores else None,
            log=paths[local] if paths else None,
        )
        for local in range(1 if request.alone else len(devices))
    )
    if request.alone and cores:
        ranks = (replace(ranks[0], cores=tuple(core for own in cores for core in own)),)
    return LaunchPlan(
        name=Path(task.folder).name if task else Path(request.script).name,
        ranks=ranks,
        working_directory=str(Path.cwd()),
        folder=task.folder if task else None,
        task=task,
        expected=expected,
        alone=request.alone,
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
    told = request.local_rank_argument and not request.alone
    local_rank = (f"--local_rank={rank}",) if told else ()
    python = () if request.kind == "program" else (request.python or sys.executable, "-u")
    module = ("-m",) if request.kind == "module" else ()
    return (*python, *module, request.script, *local_rank, *script_args)


def _shared_variables(
    request: LaunchRequest, cluster: ClusterSpec, task: RankTask | None, threads: int | None
) -> tuple[tuple[str, str], ...]:
    """Variables that all ranks of this machine get alike; ours win over those of a file.

    ``threads`` of each rank; None: those that the user has set, or else a fair share.
    """
    node = request.hosts.node_rank or 0
    devices = cluster.nodes[node].devices
    several = len(cluster.nodes) > 1 or request.hosts.force_multi
    variables = dict(read_environment_files()) if several else {}
    variables |= dict(request.variables)
    variables |= _device_variables(devices)
    if threads or "OMP_NUM_THREADS" not in {**os.environ, **variables}:
        share = max(1, usable_cores() // len(devices))
        variables["OMP_NUM_THREADS"] = str(threads or share)
    if not request.alone:
        variables |= _rendezvous_variables(request, cluster)
        variables |= _sizes(cluster, node)
    if task:
        variables[TASK_VARIABLE] = task.to_variable()
    return tuple(variables.items())


def _sizes(cluster: ClusterSpec, node: int) -> dict[str, str]:
    local = len(cluster.nodes[node].devices)
    numbers = {
        "WORLD_SIZE": len(cluster.devices),
        "LOCAL_WORLD_SIZE": local,
        "LOCAL_SIZE": local,
        "GROUP_RANK": node,
        "CROSS_RANK": node,
        "CROSS_SIZE": len(cluster.nodes),
    }
    return {name: str(value) for name, value in numbers.items()}


def _numbers(request: LaunchRequest, first: int, local: int) -> tuple[tuple[str, str], ...]:
    if request.alone:
        return ()
    return (("RANK", str(first + local)), ("LOCAL_RANK", str(local)))


def _rendezvous_variables(request: LaunchRequest, cluster: ClusterSpec) -> dict[str, str]:
    rendezvous, alone = request.rendezvous, len(cluster.nodes) == 1
    host = cluster.nodes[0].host
    first = _LOCAL_ADDRESS if alone or host == LOCAL else host
    variables = {
        "MASTER_ADDR": rendezvous.address or first,
        "MASTER_PORT": str(rendezvous.port or (free_port() if alone else DEFAULT_PORT)),
    }
    if rendezvous.run_id is not None:
        variables["TORCHELASTIC_RUN_ID"] = rendezvous.run_id
    return variables


def _device_variables(devices: tuple[Device, ...]) -> dict[str, str]:
    """CUDA's view: exactly these devices, in this order, so that LOCAL_RANK counts them."""
    names = [device.visible_as for device in devices if device.visible_as is not None]
    if not names:
        return {}
    variables = {VISIBLE: ",".join(filter(None, names))}
    if VISIBLE not in os.environ:
        # Our numbers are nvidia-smi's; CUDA's own order differs where GPUs are unlike.
        variables["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    return variables
