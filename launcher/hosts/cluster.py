"""The slots of a launch as devices of a cluster; torch is never queried."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Sequence
from dataclasses import replace

from autoconf_launch.core import (
    GIB,
    ClusterSpec,
    ConfigError,
    Device,
    HardwareError,
    Node,
    plural,
    visible,
)
from autoconf_launch.tuning_spaces import equal_nodes, known_accelerator, with_links

from ..asked import HostSource
from ..engines import HostDescription, HostSlots, LaunchEngine, make_engine
from ..events import Listener, Note
from ..machine import (
    BUS_ORDER,
    ORDER,
    VISIBLE,
    Gpu,
    as_device,
    available_memory_bytes,
    host_memory_bytes,
    is_cpu,
    usable_cores,
    visible_gpus,
)
from ..request import HostChoice, LaunchRequest
from .choice import choose_hosts, own_index, unused_allocation

_CPU_SHARE = 0.9  # of the available memory; the rest is the kernel's and ours


def find_cluster(request: LaunchRequest, listener: Listener | None = None) -> ClusterSpec:
    """The slots of a launch: visible GPUs, or processes on a machine without any.

    Slots of other hosts, whose ranks are started there by hand, count as equal to ours.

    Raises:
        ConfigError: the hosts cannot be read, or one cannot be reached.
        HardwareError: more GPUs are requested than are visible.
    """
    gpus = () if request.processes == "cpu" else visible_gpus(request.python)
    if listener:
        _say_what_is_visible(request, gpus, listener)
    if listener and (unused := unused_allocation(request.hosts, request.remote)):
        listener(Note(text=unused, warning=True))
    engine = make_engine(request.remote, listener)
    hosts = choose_hosts(request, gpus, engine)
    own = own_index(request, hosts, engine)
    if own is None:
        return ClusterSpec(nodes=_described_nodes(request, hosts, engine, listener))
    if len(hosts) > 1 and request.autotuning:
        raise ConfigError(
            f"--autotuning runs on {len(hosts)} hosts, but trials are started from one of them "
            "alone; omit --no_ssh and --node_rank."
        )
    devices = _limit_memory(_own_devices(request, hosts[own], gpus), request.memory_limit_bytes)
    if listener:
        _say_who_uses([gpu for gpu in gpus if gpu.index in hosts[own].slots], listener)
    if len(hosts) == 1:
        host_bytes = host_memory_bytes() if gpus else 0  # processes of a CPU have all of it
        node = Node(host=socket.gethostname(), devices=devices, host_memory_bytes=host_bytes)
        return ClusterSpec(nodes=(with_links(node),))
    alike = replace(devices[0], visible_as=None, free_bytes=None)
    others = (tuple(replace(alike, slot=slot) for slot in host.slots) for host in hosts)
    nodes = (
        Node(host=host.host, devices=devices if index == own else each)
        for index, (host, each) in enumerate(zip(hosts, others, strict=True))
    )
    return ClusterSpec(nodes=tuple(nodes))


def _described_nodes(
    request: LaunchRequest,
    hosts: tuple[HostSlots, ...],
    engine: LaunchEngine,
    listener: Listener | None,
) -> tuple[Node, ...]:
    found = engine.describe_hosts(tuple(host.host for host in hosts))
    if listener and request.processes != "cpu":
        for host, each in zip(hosts, found, strict=True):
            used = [gpu for gpu in each.gpus if gpu.index in host.slots]
            _say_who_uses(used, listener, where=f" of {host.host}")
    nodes = (_node(request, host, each, engine) for host, each in zip(hosts, found, strict=True))
    return tuple(
        replace(node, devices=_limit_memory(node.devices, request.memory_limit_bytes))
        for node in nodes
    )


def _node(
    request: LaunchRequest, host: HostSlots, found: HostDescription, engine: LaunchEngine
) -> Node:
    gpus = () if request.processes == "cpu" else found.gpus
    if not gpus:
        devices = _cpu_devices(request, host.slots, found.memory_bytes)
        return Node(host=host.host, devices=devices)
    devices = _devices_of(
        host, gpus, "would be a GPU, but it has {}; fix the hostfile or the filter."
    )
    if engine.host_source is HostSource.LAUNCH:  # a later job may have others
        devices = tuple(replace(gpu, visible_as=None) for gpu in devices)
    return with_links(Node(host=host.host, devices=devices, host_memory_bytes=found.memory_bytes))


def _say_what_is_visible(
    request: LaunchRequest, gpus: tuple[Gpu, ...], listener: Listener
) -> None:
    asked, cores = request.processes, usable_cores()
    if not gpus and isinstance(asked, int) and asked > cores:
        text = f"--num_gpus {asked} starts {asked} processes, which share {plural(cores, 'core')}."
        listener(Note(text=text, warning=True))
    value = os.environ.get(VISIBLE)
    if value is None or not gpus:
        return
    if request.hosts.include or request.hosts.exclude:
        numbers = ", ".join(str(gpu.index) for gpu in gpus)
        listener(
            Note(
                text=f"{VISIBLE}={value} holds: --include and --exclude choose "
                f"among GPUs {numbers}, by the numbers of nvidia-smi."
            )
        )
    first = value.partition(",")[0].strip()
    are_unlike = not gpus[0].visible_as.isdecimal() and not gpus[0].is_slice
    if first.isdecimal() and are_unlike and os.environ.get(ORDER) != BUS_ORDER:
        names = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in gpus)
        listener(
            Note(
                text=f"{VISIBLE}={value} means GPU {names} by the numbers of nvidia-smi; CUDA "
                f"itself may number them otherwise, unless {ORDER}={BUS_ORDER}."
            )
        )


def _say_who_uses(gpus: Sequence[Gpu], listener: Listener, *, where: str = "") -> None:
    """Report the processes that hold memory of these GPUs, and the GPUs that they block."""
    for gpu in gpus:
        named = " and ".join(f"pid {user.pid} ({visible(user.name)})" for user in gpu.users)
        if gpu.is_exclusive and named:
            listener(
                Note(
                    text=f"GPU {gpu.index}{where} allows one process at a time (compute mode "
                    f"{gpu.mode}), and it has {named}: ranks fail there until that ends.",
                    warning=True,
                )
            )
        elif gpu.is_in_use:
            free_bytes = gpu.memory_bytes - gpu.used_bytes
            listener(
                Note(
                    text=f"GPU {gpu.index}{where}: {gpu.used_bytes / GIB:.1f} of "
                    f"{gpu.memory_bytes / GIB:.1f} GiB are used by "
                    f"{named or 'processes that the driver does not name'}; "
                    f"{free_bytes / GIB:.1f} GiB are left for this launch.",
                    warning=True,
                )
            )


def _own_devices(
    request: LaunchRequest, host: HostSlots, gpus: tuple[Gpu, ...]
) -> tuple[Device, ...]:
    if not gpus:
        return _cpu_devices(request, host.slots, available_memory_bytes())
    lacks = (
        f"would be a GPU that is not visible here (visible: {{}}); fix the hostfile or {VISIBLE}."
    )
    # A GPU that shares the machine's memory reports none.
    return tuple(
        gpu if gpu.memory_bytes else replace(gpu, memory_bytes=available_memory_bytes())
        for gpu in _devices_of(host, gpus, lacks)
    )


def _devices_of(host: HostSlots, gpus: Sequence[Gpu], lacks: str) -> tuple[Device, ...]:
    by_slot = {gpu.index: as_device(gpu) for gpu in gpus}
    if missing := [slot for slot in host.slots if slot not in by_slot]:
        why = lacks.format(", ".join(map(str, by_slot)))
        raise HardwareError(f"Slot {missing[0]} of host {host.host} {why}")
    return tuple(by_slot[slot] for slot in host.slots)


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


def local_cluster(ranks: int | None = None) -> ClusterSpec:
    """GPUs of this machine, or processes if it has none; None: all GPUs, or one process.

    They have the memory that their driver reports, and the name of our tables if these have them.

    Raises:
        HardwareError: it has fewer GPUs, or different ones.
    """
    request = LaunchRequest(script="", processes=ranks, hosts=HostChoice(standalone=True))
    found = find_cluster(request)
    devices = found.devices
    if is_cpu(found):
        return found
    names = sorted({device.name for device in devices})
    if len(names) > 1:
        raise HardwareError(
            f"This machine has different GPUs ({', '.join(names)}); choose those of one kind with "
            "CUDA_VISIBLE_DEVICES."
        )
    memory = min(device.memory_bytes for device in devices)
    known = known_accelerator(names[0], memory)
    is_slice = known is None and known_accelerator(names[0]) is not None
    name = known or (f"part of {names[0]}" if is_slice else names[0])
    here = found.nodes[0]
    node = here if known is None else equal_nodes(1, len(devices), known).nodes[0]
    usable = tuple(
        Device(name=name, memory_bytes=memory, slot=slot) for slot in range(len(devices))
    )
    host_bytes = here.host_memory_bytes
    return ClusterSpec(nodes=(replace(node, devices=usable, host_memory_bytes=host_bytes),))
