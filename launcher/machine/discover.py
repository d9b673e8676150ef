"""Which slots a launch has, as devices. Not: torch's view of them; we never import torch."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import psutil

from autoconf_launch.core import ClusterSpec, ConfigError, Device, HardwareError, Node
from autoconf_launch.tuning_spaces import with_links

from ..events import Listener, Note
from ..hosts import HostDescription, describe_hosts, is_this_machine
from ..request import RAY, UNNAMED, LaunchRequest
from .cores import usable_cores
from .hosts import HostSlots, choose_hosts, own_index, unused_allocation

VISIBLE = "CUDA_VISIBLE_DEVICES"
_MIB = 1 << 20
_Row: TypeAlias = tuple[str, ...]  # index, uuid, name, MiB


def visible_gpus() -> tuple[Device, ...]:
    """NVIDIA GPUs in the order that CUDA_VISIBLE_DEVICES gives; empty without a driver.

    A GPU's slot is the number that ``nvidia-smi`` gives it.

    Raises:
        HardwareError: CUDA_VISIBLE_DEVICES names first a GPU that is not here.
    """
    rows = _driver_rows()
    names = os.environ.get(VISIBLE)
    if not rows or names is None:
        return tuple(_device(row, visible_as=row[0]) for row in rows)
    return _named_devices(rows, [name.strip() for name in names.split(",")])


def _driver_rows() -> list[_Row]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = "--query-gpu=index,uuid,name,memory.total"
    command = (program, query, "--format=csv,noheader,nounits")
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if answer.returncode:
        return []
    rows = (tuple(part.strip() for part in line.split(",")) for line in answer.stdout.splitlines())
    return [row for row in rows if len(row) == 4 and row[0].isdecimal()]


def _named_devices(rows: list[_Row], names: list[str]) -> tuple[Device, ...]:
    """Devices that CUDA reads in the variable: up to the first name that it does not know."""
    devices: list[Device] = []
    for name in names:
        row = _find(rows, name)
        if row is None:
            break
        devices.append(_device(row, visible_as=name))
    if not devices and re.match(r"[0-9]|GPU-|MIG-", names[0]):
        known = ", ".join(row[0] for row in rows)
        raise HardwareError(
            f"{VISIBLE} begins with {names[0]}, but this machine has GPUs {known}; fix it, unset "
            "it, or set it to nothing to use the CPU."
        )
    return tuple(devices)


def _find(rows: list[_Row], name: str) -> _Row | None:
    """The GPU with a number, or with the beginning of a UUID."""
    by_uuid = name.startswith("GPU-")
    return next(
        (row for row in rows if row[0] == name or (by_uuid and row[1].startswith(name))), None
    )


def _device(row: _Row, *, visible_as: str) -> Device:
    memory = re.match(r"[0-9.]+", row[3])
    memory_bytes = int(float(memory[0])) * _MIB if memory else 0
    return Device(name=row[2], memory_bytes=memory_bytes, slot=int(row[0]), visible_as=visible_as)


_CPU_SHARE = 0.9  # of the available memory; the rest is the kernel's and ours


def find_cluster(request: LaunchRequest, listener: Listener | None = None) -> ClusterSpec:
    """The slots of a launch: visible GPUs, or processes on a machine without any.

    Slots of other hosts, whose ranks are started there by hand, are taken to be like ours.

    Raises:
        ConfigError: the hosts cannot be read, or one cannot be reached.
        HardwareError: more GPUs are asked for than are visible.
    """
    gpus = () if request.processes == "cpu" else visible_gpus()
    if listener:
        _say_what_is_visible(request, gpus, listener)
    if listener and (unused := unused_allocation(request.hosts, request.remote)):
        listener(Note(text=unused, warning=True))

    def tell(text: str) -> None:
        if listener:
            listener(Note(text=text))

    hosts = choose_hosts(request, tuple(gpu.slot for gpu in gpus), tell)
    own = own_index(request, hosts)
    if own is None:
        return ClusterSpec(nodes=_described_nodes(request, hosts, tell))
    if len(hosts) > 1 and request.autotuning:
        raise ConfigError(
            f"--autotuning runs on {len(hosts)} hosts, but trials are started from one of them "
            "alone; omit --no_ssh and --node_rank."
        )
    devices = _limit_memory(_own_devices(request, hosts[own], gpus), request.memory_limit_bytes)
    if len(hosts) == 1:
        host_bytes = host_memory_bytes() if gpus else 0  # processes of a CPU have all of it
        node = Node(host=socket.gethostname(), devices=devices, host_memory_bytes=host_bytes)
        return ClusterSpec(nodes=(with_links(node),))
    nodes = (
        Node(host=host.host, devices=devices if index == own else _alike(host, devices[0]))
        for index, host in enumerate(hosts)
    )
    return ClusterSpec(nodes=tuple(nodes))


def started_hosts(request: LaunchRequest, cluster: ClusterSpec) -> tuple[str, ...]:
    """The hosts of a launch on which ranks are started from here; empty: on this one alone."""
    if request.hosts.node_rank is not None or request.hosts.by_hand:
        return ()
    own = len(cluster.nodes) == 1 and is_this_machine(cluster.nodes[0].host)
    own = own and request.remote.engine != RAY
    return () if own else tuple(node.host for node in cluster.nodes)


def _described_nodes(
    request: LaunchRequest, hosts: tuple[HostSlots, ...], tell: Callable[[str], object]
) -> tuple[Node, ...]:
    """Hosts on which agents are started, as these describe them."""
    found = describe_hosts(tuple(host.host for host in hosts), request.remote, tell)
    nodes = (_node(request, host, each) for host, each in zip(hosts, found, strict=True))
    return tuple(
        replace(node, devices=_limit_memory(node.devices, request.memory_limit_bytes))
        for node in nodes
    )


def _node(request: LaunchRequest, host: HostSlots, found: HostDescription) -> Node:
    gpus = () if request.processes == "cpu" else found.gpus
    if not gpus:
        devices = _cpu_devices(request, host.slots, found.memory_bytes)
        return Node(host=host.host, devices=devices)
    by_slot = {int(row[0]): _device(row, visible_as=row[0]) for row in gpus}
    if request.remote.engine in UNNAMED:  # a later job may have others, which Slurm names to it
        by_slot = {slot: replace(gpu, visible_as=None) for slot, gpu in by_slot.items()}
    missing = [slot for slot in host.slots if slot not in by_slot]
    if missing:
        raise HardwareError(
            f"Slot {missing[0]} of host {host.host} would be a GPU, but it has "
            f"{', '.join(map(str, by_slot))}; fix the hostfile or the filter."
        )
    devices = tuple(by_slot[slot] for slot in host.slots)
    return with_links(Node(host=host.host, devices=devices, host_memory_bytes=found.memory_bytes))


def _say_what_is_visible(
    request: LaunchRequest, gpus: tuple[Device, ...], listener: Listener
) -> None:
    asked, cores = request.processes, usable_cores()
    if not gpus and isinstance(asked, int) and asked > cores:
        text = f"--num_gpus {asked} starts {asked} processes, which share {cores} cores."
        listener(Note(text=text, warning=True))
    if gpus and VISIBLE in os.environ and (request.hosts.include or request.hosts.exclude):
        numbers = ", ".join(str(gpu.slot) for gpu in gpus)
        listener(
            Note(
                text=f"{VISIBLE}={os.environ[VISIBLE]} holds: --include and --exclude choose "
                f"among GPUs {numbers}, by the numbers of nvidia-smi."
            )
        )


def _own_devices(
    request: LaunchRequest, host: HostSlots, gpus: tuple[Device, ...]
) -> tuple[Device, ...]:
    if not gpus:
        return _cpu_devices(request, host.slots, available_memory_bytes())
    by_slot = {gpu.slot: gpu for gpu in gpus}
    missing = [slot for slot in host.slots if slot not in by_slot]
    if missing:
        raise HardwareError(
            f"Slot {missing[0]} of host {host.host} would be a GPU that is not visible here "
            f"(visible: {', '.join(map(str, by_slot))}); fix the hostfile or {VISIBLE}."
        )
    chosen = (by_slot[slot] for slot in host.slots)
    # A GPU that shares the machine's memory has none of its own to tell.
    return tuple(
        gpu if gpu.memory_bytes else replace(gpu, memory_bytes=available_memory_bytes())
        for gpu in chosen
    )


def _cpu_devices(
    request: LaunchRequest, slots: tuple[int, ...], available_bytes: int
) -> tuple[Device, ...]:
    share_bytes = int(available_bytes * _CPU_SHARE) // len(slots)
    name = f"cpu ({platform.machine()})"
    hidden = "" if request.processes == "cpu" else None
    device = Device(name=name, memory_bytes=share_bytes, emulated=True, visible_as=hidden)
    return tuple(replace(device, slot=slot) for slot in slots)


def _limit_memory(devices: tuple[Device, ...], limit_bytes: int | None) -> tuple[Device, ...]:
    if not limit_bytes:
        return devices
    return tuple(
        replace(device, memory_bytes=min(limit_bytes, device.memory_bytes), emulated=True)
        for device in devices
    )


def _alike(host: HostSlots, device: Device) -> tuple[Device, ...]:
    return tuple(replace(device, slot=slot, visible_as=None) for slot in host.slots)


def host_memory_bytes() -> int:
    """Memory of the machine in use and free, or its control group's limit if that is less."""
    whole_bytes = psutil.virtual_memory().total
    try:
        return min(whole_bytes, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (OSError, ValueError):
        return int(whole_bytes)


def available_memory_bytes() -> int:
    """Memory that new processes may take: the machine's, or its control group's if less."""
    free_bytes = psutil.virtual_memory().available
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    try:
        return min(free_bytes, max(0, int(limit.read_text()) - int(used.read_text())))
    except (OSError, ValueError):
        return int(free_bytes)
