"""Which slots a launch has, as devices. Not: torch's view of them; we never import torch."""

from __future__ import annotations

import os
import platform
import socket
from dataclasses import replace
from pathlib import Path

import psutil

from autoconf_launch.core import ClusterSpec, ConfigError, Device, HardwareError, Node
from autoconf_launch.tuning_spaces import with_links

from ..events import Listener, Note
from ..request import LaunchRequest
from .gpus import VISIBLE, visible_gpus
from .hosts import HostSlots, choose_hosts, own_index

_CPU_SHARE = 0.9  # of the available memory; the rest is the kernel's and ours


def find_cluster(request: LaunchRequest, listener: Listener | None = None) -> ClusterSpec:
    """The slots of a launch: visible GPUs, or processes on a machine without any.

    Slots of other hosts, whose ranks are started there by hand, are taken to be like ours.

    Raises:
        ConfigError: the hosts cannot be read, or one cannot be reached.
        HardwareError: more GPUs are asked for than are visible.
    """
    gpus = () if request.processes == "cpu" else visible_gpus()
    if listener and gpus:
        _say_what_is_visible(request, gpus, listener)
    hosts = choose_hosts(request, tuple(gpu.slot for gpu in gpus))
    own = own_index(request.hosts, hosts)
    if len(hosts) > 1 and request.autotuning:
        raise ConfigError(
            f"--autotuning would run on {len(hosts)} hosts, but trials can be started only on "
            "this one so far; tune on one host, then launch on all of them."
        )
    devices = _limited(_own_devices(request, hosts[own], gpus), request.memory_limit_bytes)
    if len(hosts) == 1:
        return ClusterSpec(nodes=(with_links(Node(host=socket.gethostname(), devices=devices)),))
    nodes = (
        Node(host=host.host, devices=devices if index == own else _alike(host, devices[0]))
        for index, host in enumerate(hosts)
    )
    return ClusterSpec(nodes=tuple(nodes))


def _say_what_is_visible(
    request: LaunchRequest, gpus: tuple[Device, ...], listener: Listener
) -> None:
    if VISIBLE in os.environ and (request.hosts.include or request.hosts.exclude):
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
        share_bytes = int(available_memory_bytes() * _CPU_SHARE) // len(host.slots)
        name = f"cpu ({platform.machine()})"
        hidden = "" if request.processes == "cpu" else None
        device = Device(name=name, memory_bytes=share_bytes, emulated=True, visible_as=hidden)
        return tuple(replace(device, slot=slot) for slot in host.slots)
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


def _limited(devices: tuple[Device, ...], limit_bytes: int | None) -> tuple[Device, ...]:
    if not limit_bytes:
        return devices
    return tuple(
        replace(device, memory_bytes=min(limit_bytes, device.memory_bytes), emulated=True)
        for device in devices
    )


def _alike(host: HostSlots, device: Device) -> tuple[Device, ...]:
    return tuple(replace(device, slot=slot, visible_as=None) for slot in host.slots)


def available_memory_bytes() -> int:
    """Memory that new processes may take: the machine's, or its control group's if less."""
    free_bytes = psutil.virtual_memory().available
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    try:
        return min(free_bytes, max(0, int(limit.read_text()) - int(used.read_text())))
    except (OSError, ValueError):
        return int(free_bytes)
