"""The hosts and slots of a launch: of a hostfile, of an engine, or of this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from autoconf_launch.core import ConfigError, HardwareError, plural

from ..asked import HostSource, engine_facts
from ..engines import HostSlots, LaunchEngine
from ..machine import LOCAL, Gpu, is_this_machine, usable_cores
from ..request import DEFAULT_HOSTFILE, HostChoice, LaunchRequest, RemoteAccess
from .hostfile import filter_slots, parse_filter, read_hostfile

_BY_HOSTFILE = "with --hostfile FILE for several hosts, or once on each with --no_ssh --node_rank"
_STARTERS = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "mpirun", f"{_BY_HOSTFILE} K"),
    ("PMI_SIZE", "PMI_RANK", "mpirun", f"{_BY_HOSTFILE} K"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun", "with --launcher slurm for several nodes"),
)
"""Variables with the count of processes and this one's number, who sets them, remedy."""
_OWN_GPU = "and each rank needs its own"


def choose_hosts(
    request: LaunchRequest, gpus: tuple[Gpu, ...], engine: LaunchEngine
) -> tuple[HostSlots, ...]:
    """The hosts of a launch with the slots that get ranks, in order.

    ``gpus`` are visible on this machine; without any, slots here are processes, as many as are
    requested.

    Raises:
        ConfigError: the hostfile or a filter cannot be read, or they leave nothing.
        HardwareError: this machine has fewer GPUs than are requested.
    """
    choice = request.hosts
    pool = _hostfile_pool(choice, gpus)
    if pool is not None and isinstance(request.processes, str):
        raise ConfigError(
            f"--nproc_per_node {request.processes} counts what this machine has, but a hostfile "
            "says what each host has; give one of the two."
        )
    pool = pool or engine.find_hosts(request) or _local_pool(request, gpus)
    hosts = filter_slots(pool, include=choice.include, exclude=choice.exclude)
    hosts = _limit_hosts(hosts, request, gpus)
    if not hosts:
        raise ConfigError("--exclude leaves no slot to launch on; exclude fewer.")
    return hosts


def names_hosts(choice: HostChoice, access: RemoteAccess) -> bool:
    """True if a hostfile, an allocation or a cluster names the hosts of a launch."""
    is_known = engine_facts(access.engine).host_source is HostSource.ENGINE
    return has_hostfile(choice) or (is_known and not choice.standalone)


def unused_allocation(choice: HostChoice, access: RemoteAccess) -> str | None:
    """A sentence on a Slurm allocation of several nodes that a launch would not use."""
    nodes = os.environ.get("SLURM_JOB_NUM_NODES", "")
    is_other = access.engine != RemoteAccess().engine
    if is_other or choice.node_rank is not None or choice.standalone:
        return None
    if has_hostfile(choice) or not nodes.isdecimal() or int(nodes) < 2:
        return None
    return (
        f"This is a Slurm allocation of {int(nodes)} nodes, but only this one is used; add "
        "--launcher slurm to use all."
    )


def require_one_start(choice: HostChoice) -> None:
    """Check that no other starter has started the launcher once for each rank.

    Raises:
        ConfigError: another starter has, and --node_rank is missing.
    """
    if choice.node_rank is not None or choice.standalone:
        return
    rows = (*_torchrun(), *_STARTERS)
    for size, number, starter, remedy in rows:
        count, which = os.environ.get(size, ""), os.environ.get(number, "?")
        if count.isdecimal() and int(count) > 1:
            raise ConfigError(
                f"{starter} has started autoconf-launch {count} times (this is number {which}), "
                f"but it starts the ranks itself; start it once, {remedy}."
            )


def _torchrun() -> Iterator[tuple[str, str, str, str]]:
    if "TORCHELASTIC_RUN_ID" in os.environ:
        node = os.environ.get("GROUP_RANK", "K")
        yield "WORLD_SIZE", "RANK", "torchrun", f"{_BY_HOSTFILE} {node}"


def pod_text() -> str | None:
    """A sentence on the pod of Kubernetes that this is, with its number in an Indexed Job."""
    if "KUBERNETES_SERVICE_HOST" not in os.environ:
        return None
    index = os.environ.get("JOB_COMPLETION_INDEX", "")
    if not index.isdecimal():
        return "This is a pod of Kubernetes; --launcher kubernetes starts ranks in others."
    return (
        f"This is pod {index} of an Indexed Job of Kubernetes, whose other pods are not reached; "
        f"start each with --no_ssh --node_rank {index}, or use --launcher kubernetes."
    )


def own_index(
    request: LaunchRequest, hosts: tuple[HostSlots, ...], engine: LaunchEngine
) -> int | None:
    """The number of this machine among the hosts; None if ranks are started on others, too.

    Raises:
        ConfigError: the user must name it, or it is named twice.
    """
    choice, last = request.hosts, len(hosts) - 1
    if choice.node_rank is not None:
        if choice.node_rank > last:
            raise ConfigError(f"--node_rank is {choice.node_rank}, but must be from 0 to {last}.")
        return choice.node_rank
    if choice.by_hand and last:
        raise ConfigError(
            f"--no_ssh starts only this machine's ranks; say which of the {last + 1} hosts it is "
            f"with --node_rank K, from 0 to {last}."
        )
    if engine.takes_this_machine:
        return None
    ours = [host.host for host in hosts if is_this_machine(host.host)]
    if len(ours) > 1:
        raise ConfigError(
            f"{ours[0]} and {ours[1]} are both this machine; name it once, or start each with "
            "--no_ssh --node_rank K."
        )
    return 0 if ours and not last else None


def has_hostfile(choice: HostChoice) -> bool:
    """True if a hostfile names the hosts: the user's, or DeepSpeed's."""
    default = not choice.standalone and Path(DEFAULT_HOSTFILE).is_file()
    return choice.hostfile is not None or default


def _hostfile_pool(choice: HostChoice, gpus: tuple[Gpu, ...]) -> tuple[HostSlots, ...] | None:
    if not has_hostfile(choice):
        return None
    return tuple(
        _visible_slots(host, gpus) for host in read_hostfile(choice.hostfile or DEFAULT_HOSTFILE)
    )


def _visible_slots(host: HostSlots, gpus: tuple[Gpu, ...]) -> HostSlots:
    if not gpus or not is_this_machine(host.host):
        return host
    if len(host.slots) > len(gpus):
        raise HardwareError(
            f"The hostfile gives {host.host} {plural(len(host.slots), 'slot')}, but "
            f"{_visible_text(gpus)}; fix the hostfile or CUDA_VISIBLE_DEVICES."
        )
    return replace(host, slots=_numbers(gpus)[: len(host.slots)])


def _numbers(gpus: tuple[Gpu, ...]) -> tuple[int, ...]:
    return tuple(gpu.index for gpu in gpus)


def _visible_text(gpus: tuple[Gpu, ...]) -> str:
    """``1 GPU is visible (0: NVIDIA L4), and each rank needs its own``."""
    names = ", ".join(f"{gpu.index}: {gpu.name}" for gpu in gpus)
    verb = "is" if len(gpus) == 1 else "are"
    why = "as a process sees one MIG slice at most" if gpus[0].is_slice else _OWN_GPU
    return f"{plural(len(gpus), 'GPU')} {verb} visible ({names}), {why}"


def _local_pool(request: LaunchRequest, gpus: tuple[Gpu, ...]) -> tuple[HostSlots, ...]:
    choice = request.hosts
    nodes = choice.nodes or 1
    slots = _numbers(gpus) or _processes(request)
    if nodes == 1:
        return (HostSlots(host=_name_in_filter(choice), slots=slots),)
    address = request.rendezvous.address
    if choice.node_rank is None or address is None:
        raise ConfigError(
            f"--num_nodes is {nodes}, but without a hostfile no other host is known; give "
            "--hostfile FILE, or start each host with --node_rank K --master_addr HOST."
        )
    others = (HostSlots(host=f"node-{rank}", slots=slots) for rank in range(1, nodes))
    return (HostSlots(host=address, slots=slots), *others)


def _processes(request: LaunchRequest) -> tuple[int, ...]:
    """Slots of a machine without GPUs: as many as requested, or the slots that are named."""
    if request.processes == "gpu":
        raise HardwareError(
            "--nproc_per_node is gpu, but no GPU is visible; give a number of processes instead."
        )
    if isinstance(request.processes, str):
        return tuple(range(usable_cores()))
    named = (one.slots or () for one in parse_filter(request.hosts.include, "--include"))
    return tuple(sorted({*range(request.processes or 1)}.union(*named)))


def _name_in_filter(choice: HostChoice) -> str:
    filters = parse_filter(choice.include or choice.exclude, "--include or --exclude")
    return next((one.host for one in filters if is_this_machine(one.host)), LOCAL)


def _limit_hosts(
    hosts: tuple[HostSlots, ...], request: LaunchRequest, gpus: tuple[Gpu, ...]
) -> tuple[HostSlots, ...]:
    nodes, processes = request.hosts.nodes, request.processes
    if nodes is not None and nodes > len(hosts):
        raise ConfigError(
            f"--num_nodes is {nodes}, but the hostfile names "
            f"{plural(len(hosts), 'host')}; ask for fewer."
        )
    hosts = hosts[:nodes]
    if not isinstance(processes, int):
        return hosts
    small = next((host for host in hosts if len(host.slots) < processes), None)
    if small is None:
        return tuple(replace(host, slots=host.slots[:processes]) for host in hosts)
    if gpus and is_this_machine(small.host):
        raise HardwareError(
            f"--num_gpus is {processes}, but {_visible_text(gpus)}; ask for fewer, or fix "
            "CUDA_VISIBLE_DEVICES."
        )
    raise ConfigError(
        f"--num_gpus is {processes}, but host {small.host} has "
        f"{plural(len(small.slots), 'slot')}; ask for fewer."
    )
