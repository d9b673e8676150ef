"""From a request and its edits to the exact processes of a launch.

Our own scripts report by themselves. An external script gets the probe through its environment
(``runtime/probe.py``, which this layer knows only as files), and only knobs that a probe can find
are compared with the request.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from autoconf_launch.core import (
    PROBE_VARIABLE,
    SIGNS_FOLDER,
    TASK_VARIABLE,
    Candidate,
    ClusterSpec,
    ConfigError,
    RankTask,
    ResultsFolderError,
    Sign,
    sign_path,
)

from ..dialects import DATALOADER_BATCH_VARIABLE
from ..machine import (
    LOCAL,
    audible,
    cores_of_ranks,
    deaf_flag,
    free_port,
    read_environment_files,
    started_hosts,
    usable_cores,
    visibility,
)
from ..plan import LaunchPlan, RankPlan
from ..request import LaunchRequest
from ..results import read_file
from ..script import ScriptSource, leading_imports, plain_text
from ..spelling import Dialect, Rendered, TrialNeeds, silent_variables

INJECTED = Path(__file__).resolve().parents[2] / "runtime" / "injected"
_DRIVERS_GPUS = Path("/proc/driver/nvidia/gpus")
DEFAULT_PORT = 29500
"""The default of DeepSpeed and torch; hosts that are started by hand cannot agree on a free
one."""
_LOCAL_ADDRESS = "127.0.0.1"
_SEARCH_PATH = "PYTHONPATH"


def rank_log_paths(folder: str, ranks: Iterable[int]) -> tuple[str, ...]:
    """Absolute paths ``<now>_rank<R>.log`` in the folder, which is made if it is missing.

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


def plan_launch(
    request: LaunchRequest,
    cluster: ClusterSpec,
    rendered: Rendered,
    *,
    task: RankTask | None = None,
    expected: Candidate | None = None,
) -> LaunchPlan:
    """Argv and variables of the ranks that are started from here: of all hosts, or of this one.

    ``task`` makes it a trial with its own folder, whose ranks get no other logs.

    Raises:
        ConfigError: the ranks cannot be bound to cores, or their Python would ignore the probe.
        ResultsFolderError: the folder for the ranks' logs cannot be made.
    """
    if rendered.checked is not None:
        flags, variables = audible(request.python_flags)
        request = replace(request, python_flags=flags)
        rendered = replace(rendered, environment=(*rendered.environment, *variables))
    hosts = started_hosts(request, cluster)
    nodes = range(len(hosts)) if hosts else (request.hosts.node_rank or 0,)
    ranks = tuple(
        rank for node in nodes for rank in _ranks_of(node, request, cluster, rendered, task)
    )
    if rendered.checked is not None:
        _refuse_deaf(ranks[0].argv[len(request.prefix) :])
    return LaunchPlan(
        name=Path(task.folder).name if task else Path(request.script).name,
        ranks=ranks,
        hosts=hosts,
        working_directory=str(Path.cwd()),
        folder=task.folder if task else None,
        task=task,
        expected=expected,
        checked=rendered.checked,
        alone=request.alone,
    )


def _ranks_of(
    node: int,
    request: LaunchRequest,
    cluster: ClusterSpec,
    rendered: Rendered,
    task: RankTask | None,
) -> tuple[RankPlan, ...]:
    """The ranks of one host; a script that starts them itself has a single process."""
    devices = cluster.nodes[node].devices
    first = sum(len(other.devices) for other in cluster.nodes[:node])
    logs = request.rank_log_folder if task is None else None
    paths = rank_log_paths(logs, range(first, first + len(devices))) if logs else None
    cores = cores_of_ranks(request.binding, len(devices)) if request.binding else None
    threads = len(cores[0]) if cores else None
    shared = _shared_variables(request, cluster, node, task, threads)
    ranks = tuple(
        RankPlan(
            rank=first + local,
            local_rank=local,
            node=node,
            argv=_argv(request, rendered.script_args, local),
            environment=(*shared, *_numbers(request, first, local), *rendered.environment),
            cores=cores[local] if cores else None,
            log=paths[local] if paths else None,
        )
        for local in range(1 if request.alone else len(devices))
    )
    if request.alone and cores:
        return (replace(ranks[0], cores=tuple(core for own in cores for core in own)),)
    return ranks


def forked_imports(request: LaunchRequest, *, is_ours: bool) -> tuple[str, ...] | None:
    """Imports of ranks that may be forked; none for our own runtime, None: ranks are spawned."""
    if request.kind == "program":
        return None
    if is_ours:
        return ()
    text = plain_text(Path(request.script)) if request.kind == "script" else ""
    return leading_imports(text) or None


def early_variables(request: LaunchRequest, *, is_ours: bool) -> dict[str, str]:
    """The variables of a rank of this machine, as far as they are known before it is looked at.

    A wrong number of threads costs only what was begun with it.
    """
    variables = {**os.environ, **dict(request.variables), **dict(silent_variables(""))}
    named = variables.get("CUDA_VISIBLE_DEVICES")
    gpus = len(named.split(",")) if named else len(list(_DRIVERS_GPUS.glob("*")))
    ranks = request.processes if isinstance(request.processes, int) else gpus
    variables.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // (ranks or 1))))
    return variables if is_ours else variables | dict([search_path()])


def _refuse_deaf(argv: Sequence[str]) -> None:
    if flag := deaf_flag(argv):
        raise ConfigError(
            f"The script's Python is started with {flag}, so it reads neither PYTHONPATH nor "
            f"sitecustomize and cannot be measured; start it without {flag}."
        )


def _argv(request: LaunchRequest, script_args: tuple[str, ...], rank: int) -> tuple[str, ...]:
    flag = request.local_rank_flag if not request.alone else None
    local_rank = (f"{flag}={rank}",) if flag else ()
    module = ("-m",) if request.kind == "module" else ()
    python = (request.python or sys.executable, "-u", *request.python_flags, *module)
    start = request.prefix if request.kind == "program" else (*request.prefix, *python)
    return (*start, request.script, *local_rank, *script_args)


def _shared_variables(
    request: LaunchRequest,
    cluster: ClusterSpec,
    node: int,
    task: RankTask | None,
    threads: int | None,
) -> tuple[tuple[str, str], ...]:
    """Variables that all ranks of a host share; ours override a file's.

    ``threads`` of each rank; None: as set by the user, or else a fair share.
    """
    devices = cluster.nodes[node].devices
    variables = variables_of_user(request, cluster) | visibility(devices)
    if threads or "OMP_NUM_THREADS" not in {**os.environ, **variables}:
        share = max(1, usable_cores() // len(devices))
        variables["OMP_NUM_THREADS"] = str(threads or share)
    if not request.alone:
        variables |= _rendezvous_variables(request, cluster)
        variables |= _sizes(cluster, node)
    if task:
        variables[TASK_VARIABLE] = task.to_variable()
    return tuple(variables.items())


def variables_of_user(request: LaunchRequest, cluster: ClusterSpec) -> dict[str, str]:
    """Variables that the user sets for ranks, in addition to our own environment."""
    several = len(cluster.nodes) > 1 or request.hosts.force_multi
    from_files = dict(read_environment_files()) if several else {}
    return from_files | dict(request.variables)


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
    port = str(rendezvous.port or (free_port() if alone else DEFAULT_PORT))
    if started_hosts(request, cluster):
        first, port = "", str(rendezvous.port or "")
    variables = {"MASTER_ADDR": rendezvous.address or first, "MASTER_PORT": port}
    if rendezvous.run_id is not None:
        variables["TORCHELASTIC_RUN_ID"] = rendezvous.run_id
    return variables


def in_trial(
    dialect: Dialect,
    rendered: Rendered,
    source: ScriptSource,
    *,
    task: RankTask,
    needs: TrialNeeds,
) -> Rendered:
    """The candidate as a trial; an external script gets the probe, too."""
    trial = dialect.in_trial(rendered, source, needs)
    if not dialect.is_external:
        return trial
    shutil.rmtree(needs.output, ignore_errors=True)  # of an earlier launch of this trial
    probe = probe_environment(task, Path(task.folder))
    return replace(trial, environment=(*trial.environment, *probe))


def in_training(rendered: Rendered) -> Rendered:
    """The winner as a training; our code is added if it sets the batch."""
    if DATALOADER_BATCH_VARIABLE not in dict(rendered.environment):
        return rendered
    return replace(rendered, environment=(*rendered.environment, search_path()))


def probe_environment(task: RankTask, folder: Path) -> tuple[tuple[str, str], ...]:
    """Variables that make every Python of a launch arm the probe.

    ``folder`` is the trial's; it is made here with room for the probe's signs.
    """
    (folder / SIGNS_FOLDER).mkdir(parents=True, exist_ok=True)
    return (search_path(), (PROBE_VARIABLE, task.to_variable()))


def search_path() -> tuple[str, str]:
    """The variable by which every Python of a launch finds our code first."""
    set_by_user = os.environ.get(_SEARCH_PATH)
    before = set_by_user.split(os.pathsep) if set_by_user else []  # an empty one: where we are
    path = os.pathsep.join((str(INJECTED), *(e for e in before if e != str(INJECTED))))
    return _SEARCH_PATH, path


def why_silent(task: RankTask) -> str:
    """The reason why no rank of a launch reported, by how far the probe got in any process."""
    broken = sign_path(task, Sign.BROKEN.value)
    if broken.exists():
        return f"the probe failed inside the script: {read_file(broken).decode(errors='replace')}"
    if not sign_path(task, Sign.INJECTED.value).exists():
        return (
            "the probe was never started: the script's Python does not read PYTHONPATH "
            "(flags -I, -E or -S, or a wrapper that clears the environment)"
        )
    if not sign_path(task, Sign.ARMED.value).exists():
        return "no process of the script imported torch"
    return (
        "no process of the script ran a backward pass or a step of a torch.optim.Optimizer; only "
        "such steps can be measured"
    )
