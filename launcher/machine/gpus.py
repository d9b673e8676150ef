"""GPUs that the driver shows and CUDA_VISIBLE_DEVICES leaves. Not: torch's view of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TypeAlias

from autoconf_launch.core import Device, HardwareError

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
    return _named(rows, [name.strip() for name in names.split(",")])


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


def _named(rows: list[_Row], names: list[str]) -> tuple[Device, ...]:
    """As CUDA reads the variable: up to the first name that it does not know."""
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
    """By number, or by the beginning of a UUID."""
    by_uuid = name.startswith("GPU-")
    return next(
        (row for row in rows if row[0] == name or (by_uuid and row[1].startswith(name))), None
    )


def _device(row: _Row, *, visible_as: str) -> Device:
    memory = re.match(r"[0-9.]+", row[3])
    memory_bytes = int(float(memory[0])) * _MIB if memory else 0
    return Device(name=row[2], memory_bytes=memory_bytes, slot=int(row[0]), visible_as=visible_as)
