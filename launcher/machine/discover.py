"""Which slots a launch has, as devices. Not: torch's view of them; we never import torch."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import psutil

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
from autoconf_launch.tuning_spaces import with_links

from ..events import Listener, Note
from ..hosts import (
    BUS_ORDER,
    ORDER,
    PROHIBITED,
    VISIBLE,
    Gpu,
    HostDescription,
    describe_hosts,
    is_this_machine,
    list_gpus,
    names_none,
    seen_at_once,
)
from ..request import RAY, UNNAMED, LaunchRequest
from .cores import usable_cores
from .hosts import HostSlots, choose_hosts, own_index, unused_allocation


def visible_gpus(python: str | None = None) -> tuple[Gpu, ...]:
    """GPUs in the order that CUDA_VISIBLE_DEVICES gives; empty without a driver.

    Numbers in the variable are those of ``nvidia-smi``, whatever CUDA_DEVICE_ORDER says.

    Args:
        python: the script's interpreter, if it is not ours.

    Raises:
        HardwareError: CUDA_VISIBLE_DEVICES names first a GPU that is not here, or one twice, or
            no GPU here may be used.
    """
    gpus = list_gpus(python or "")
    if not any(gpu.uuid for gpu in gpus):  # torch has read the variable
        return gpus
    value = os.environ.get(VISIBLE)
    named = gpus if value is None else _named_gpus(gpus, [n.strip() for n in value.split(",")])
    visible = seen_at_once(named)
    if named and not visible:
        raise HardwareError(
            f"GPU {named[0].index} is in compute mode {PROHIBITED}, so no process can use it; "
            f"allow it with nvidia-smi -i {named[0].index} -c DEFAULT, or use the CPU with "
            f'{VISIBLE}="".'
        )
    return visible


def _named_gpus(gpus: tuple[Gpu, ...], names: list[str]) -> tuple[Gpu, ...]:
    """GPUs that CUDA reads in the variable: up to the first name that it does not know."""
    named: list[Gpu] = []
    for name in names:
        gpu = _find(gpus, name)
        if gpu is None:
            break
        if gpu in named:
            raise HardwareError(
                f"{VISIBLE}={','.join(names)} names GPU {gpu.index} twice, but a GPU can be used "
                "by one rank only; name each GPU once."
            )
        named.append(gpu)
    if not named and not names_none(names[0]):
        known = ", ".join(_name(gpu) for gpu in gpus)
        raise HardwareError(
            f"{VISIBLE} begins with {names[0]}, but this machine has GPUs {known}; fix it, unset "
            "it, or set it to nothing to use the CPU."
        )
    return tuple(
        replace(gpu, visible_as=name) if gpu.visible_as.isdecimal() else gpu
        for gpu, name in zip(named, names, strict=False)
    )


def _name(gpu: Gpu) -> str:
    return gpu.uuid if gpu.is_slice else str(gpu.index)


def _find(gpus: tuple[Gpu, ...], name: str) -> Gpu | None:
    """The GPU, or its first slice, with this number or with a UUID that begins so."""
    by_uuid = name.startswith(("GPU-", "MIG-"))
    return next(
        (g for g in gpus if str(g.index) == name or (by_uuid and g.uuid.startswith(name))), None
    )


def _device(gpu: Gpu) -> Device:
    return Device(
        name=gpu.name,
        memory_bytes=gpu.memory_bytes,
        slot=gpu.index,
        visible_as=gpu.visible_as,
        free_bytes=gpu.free_bytes if gpu.memory_bytes else None,
        exclusive=gpu.is_exclusive,
    )


_CPU_SHARE = 0.9  # of the available memory; the rest is the kernel's and ours


def find_cluster(request: LaunchRequest, listener: Listener | None = None) -> ClusterSpec:
    """The slots of a launch: visible GPUs, or processes on a machine without any.

    Slots of other hosts, whose ranks are started there by hand, are taken to be like ours.

    Raises:
        ConfigError: the hosts cannot be read, or one cannot be reached.
        HardwareError: more GPUs are asked for than are visible.
    """
    gpus = () if request.processes == "cpu" else visible_gpus(request.python)
    if listener:
        _say_what_is_visible(request, gpus, listener)
    if listener and (unused := unused_allocation(request.hosts, request.remote)):
        listener(Note(text=unused, warning=True))
    hosts = choose_hosts(request, gpus, _teller(listener))
    own = own_index(request, hosts)
    if own is None:
        return ClusterSpec(nodes=_described_nodes(request, hosts, listener))
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
    nodes = (
        Node(host=host.host, devices=devices if index == own else _alike(host, devices[0]))
        for index, host in enumerate(hosts)
    )
    return ClusterSpec(nodes=tuple(nodes))


def _teller(listener: Listener | None) -> Callable[[str], object]:
    """Says a sentence, if anybody listens."""
    return lambda text: listener(Note(text=text)) if listener else None


def started_hosts(request: LaunchRequest, cluster: ClusterSpec) -> tuple[str, ...]:
    """The hosts of a launch on which ranks are started from here; empty: on this one alone."""
    if request.hosts.node_rank is not None or request.hosts.by_hand:
        return ()
    own = len(cluster.nodes) == 1 and is_this_machine(cluster.nodes[0].host)
    own = own and request.remote.engine != RAY
    return () if own else tuple(node.host for node in cluster.nodes)


def _described_nodes(
    request: LaunchRequest, hosts: tuple[HostSlots, ...], listener: Listener | None
) -> tuple[Node, ...]:
    """Hosts on which agents are started, as these describe them."""
    found = describe_hosts(tuple(host.host for host in hosts), request.remote, _teller(listener))
    if listener and request.processes != "cpu":
        for host, each in zip(hosts, found, strict=True):
            used = [gpu for gpu in each.gpus if gpu.index in host.slots]
            _say_who_uses(used, listener, where=f" of {host.host}")
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
    by_slot = {gpu.index: _device(gpu) for gpu in gpus}
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
    """Say which processes hold memory of these GPUs, and which GPUs they block."""
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
    by_slot = {gpu.index: _device(gpu) for gpu in gpus}
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
    return tuple(
        replace(device, slot=slot, visible_as=None, free_bytes=None) for slot in host.slots
    )


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
