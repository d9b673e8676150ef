"""The devices of this machine that processes can use, and how much memory they have."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil

from autoconf_launch.core import Device, HardwareError

from .gpus import (
    BUS_ORDER,
    HIP_VISIBLE,
    ORDER,
    PROHIBITED,
    VISIBLE,
    Gpu,
    list_gpus,
    names_none,
    seen_at_once,
)


def visible_gpus(python: str | None = None) -> tuple[Gpu, ...]:
    """GPUs in the order that CUDA_VISIBLE_DEVICES gives; empty without a driver.

    Numbers in the variable are ``nvidia-smi``'s, regardless of CUDA_DEVICE_ORDER.

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


def as_device(gpu: Gpu) -> Device:
    """The GPU as a slot of a cluster."""
    return Device(
        name=gpu.name,
        memory_bytes=gpu.memory_bytes,
        slot=gpu.index,
        visible_as=gpu.visible_as,
        free_bytes=gpu.free_bytes if gpu.memory_bytes else None,
        exclusive=gpu.is_exclusive,
    )


def visibility(devices: Sequence[Device]) -> dict[str, str]:
    """Variables by which CUDA or HIP shows exactly these devices, in this order.

    Numbers are ``nvidia-smi``'s; CUDA's own order differs if GPUs are unlike. AMD's HIP
    reads CUDA's variable, too, but prefers its own one.
    """
    order = {} if devices[0].is_cpu else {ORDER: BUS_ORDER}
    names = [device.visible_as for device in devices if device.visible_as is not None]
    if not names:
        return order
    value = ",".join(filter(None, names))
    hip = {HIP_VISIBLE: value} if HIP_VISIBLE in os.environ or not value else {}
    return {VISIBLE: value, **hip, **order}


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
