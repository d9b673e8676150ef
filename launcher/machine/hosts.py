"""Which hosts and slots a request means, and which host is this one. Not: what a slot is."""

from __future__ import annotations

import socket
from dataclasses import replace
from functools import cache
from pathlib import Path

import psutil

from autoconf_launch.core import ConfigError, HardwareError

from ..request import HostChoice, LaunchRequest
from .cores import usable_cores
from .filters import filter_slots, parse_filter
from .hostfile import DEFAULT_HOSTFILE, HostSlots, read_hostfile

LOCAL = "localhost"


def choose_hosts(request: LaunchRequest, gpus: tuple[int, ...]) -> tuple[HostSlots, ...]:
    """The hosts of a launch with the slots that get ranks, in order.

    ``gpus`` are the numbers of this machine's GPUs; without any, slots here are processes and
    there are as many as are asked for.

    Raises:
        ConfigError: the hostfile or a filter cannot be read, or they leave nothing.
        HardwareError: this machine has fewer GPUs than are asked for.
    """
    choice = request.hosts
    pool = _hostfile_pool(choice, gpus)
    if pool is None:
        pool = _local_pool(request, gpus)
    elif isinstance(request.processes, str):
        raise ConfigError(
            f"--nproc_per_node {request.processes} counts what this machine has, but a hostfile "
            "says what each host has; give one of the two."
        )
    hosts = filter_slots(pool, include=choice.include, exclude=choice.exclude)
    hosts = _limited(hosts, request, gpus)
    if not hosts:
        raise ConfigError("--exclude leaves no slot to launch on; exclude fewer.")
    return hosts


def own_index(choice: HostChoice, hosts: tuple[HostSlots, ...]) -> int:
    """Which of the hosts is this machine.

    Raises:
        ConfigError: ranks would have to be started on another one.
    """
    last = len(hosts) - 1
    if choice.node_rank is not None:
        if choice.node_rank > last:
            raise ConfigError(f"--node_rank is {choice.node_rank}, but must be from 0 to {last}.")
        return choice.node_rank
    if choice.by_hand and last:
        raise ConfigError(
            f"--no_ssh starts only this machine's ranks; say which of the {last + 1} hosts it is "
            f"with --node_rank K, from 0 to {last}."
        )
    other = next((host.host for host in hosts if not is_this_machine(host.host)), None)
    if other is not None:
        raise ConfigError(
            f"Host {other} is another machine, and ranks can be started only on this one so far; "
            "run the same command on each host with --no_ssh --node_rank K, or leave it out."
        )
    if last:
        raise ConfigError(
            f"{hosts[0].host} and {hosts[1].host} are both this machine; name it once, or start "
            "each with --no_ssh --node_rank K."
        )
    return 0


@cache
def is_this_machine(host: str) -> bool:
    """Whether a name or an address is one of this machine's own."""
    own = socket.gethostname()
    if host in (LOCAL, own, own.partition(".")[0]):
        return True
    try:
        found = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return False
    interfaces = psutil.net_if_addrs().values()
    addresses = {a.address.partition("%")[0] for interface in interfaces for a in interface}
    return any(
        a.startswith("127.") or a == "::1" or a.partition("%")[0] in addresses for a in found
    )


def _hostfile_pool(choice: HostChoice, gpus: tuple[int, ...]) -> tuple[HostSlots, ...] | None:
    if choice.hostfile is None and (choice.standalone or not Path(DEFAULT_HOSTFILE).is_file()):
        return None
    return tuple(_seen(host, gpus) for host in read_hostfile(choice.hostfile or DEFAULT_HOSTFILE))


def _seen(host: HostSlots, gpus: tuple[int, ...]) -> HostSlots:
    """The same slots, by the numbers of the GPUs where the host is this one."""
    if not gpus or not is_this_machine(host.host):
        return host
    if len(host.slots) > len(gpus):
        raise HardwareError(
            f"The hostfile gives {host.host} {len(host.slots)} slots, but {len(gpus)} GPUs are "
            "visible; mend the hostfile or CUDA_VISIBLE_DEVICES."
        )
    return replace(host, slots=gpus[: len(host.slots)])


def _local_pool(request: LaunchRequest, gpus: tuple[int, ...]) -> tuple[HostSlots, ...]:
    choice = request.hosts
    nodes = choice.nodes or 1
    slots = gpus or _processes(request)
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
    """Slots of a machine without GPUs: as many as are asked for, or those that are named."""
    if request.processes == "gpu":
        raise HardwareError(
            "--nproc_per_node is gpu, but no GPU is visible; give a number of processes instead."
        )
    if isinstance(request.processes, str):
        return tuple(range(usable_cores()))
    named = (one.slots or () for one in parse_filter(request.hosts.include, "--include"))
    return tuple(sorted({*range(request.processes or 1)}.union(*named)))


def _name_in_filter(choice: HostChoice) -> str:
    """How the user's filter calls this machine."""
    filters = parse_filter(choice.include or choice.exclude, "--include or --exclude")
    return next((one.host for one in filters if is_this_machine(one.host)), LOCAL)


def _limited(
    hosts: tuple[HostSlots, ...], request: LaunchRequest, gpus: tuple[int, ...]
) -> tuple[HostSlots, ...]:
    nodes, processes = request.hosts.nodes, request.processes
    if nodes is not None and nodes > len(hosts):
        raise ConfigError(
            f"--num_nodes is {nodes}, but the hostfile names {len(hosts)} hosts; ask for fewer."
        )
    hosts = hosts[:nodes]
    if not isinstance(processes, int):
        return hosts
    small = next((host for host in hosts if len(host.slots) < processes), None)
    if small is None:
        return tuple(replace(host, slots=host.slots[:processes]) for host in hosts)
    if gpus and is_this_machine(small.host):
        raise HardwareError(
            f"--num_gpus is {processes}, but {len(small.slots)} GPUs are visible; "
            "ask for fewer, or mend CUDA_VISIBLE_DEVICES."
        )
    raise ConfigError(
        f"--num_gpus is {processes}, but host {small.host} has {len(small.slots)} slots; "
        "ask for fewer."
    )
