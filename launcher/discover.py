"""Which slots this machine has. Not: torch's view of them; this process never imports torch."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import psutil

from autoconf_launch.autotuner.cluster import ClusterSpec, Device, Node
from autoconf_launch.core import HardwareError

from .request import LaunchRequest

_CPU_SHARE = 0.9  # of the available memory; the rest is the kernel's and ours
_MIB = 1 << 20


def find_cluster(request: LaunchRequest) -> ClusterSpec:
    """The slots of a launch: visible GPUs, or processes on a machine without any.

    Raises:
        HardwareError: more GPUs are asked for than are visible.
    """
    gpus = visible_gpus()
    if not gpus:
        devices = _cpu_slots(request.processes or 1, request.memory_limit_bytes)
    else:
        wanted = request.processes or len(gpus)
        if wanted > len(gpus):
            raise HardwareError(
                f"--num_gpus is {wanted}, but {len(gpus)} GPUs are visible; "
                "ask for fewer, or mend CUDA_VISIBLE_DEVICES."
            )
        devices = gpus[:wanted]
        if request.memory_limit_bytes:
            least = request.memory_limit_bytes
            devices = tuple(
                replace(gpu, memory_bytes=min(least, gpu.memory_bytes), emulated=True)
                for gpu in devices
            )
    return ClusterSpec(nodes=(Node(host=socket.gethostname(), devices=devices),))


def visible_gpus() -> tuple[Device, ...]:
    """NVIDIA GPUs in the order that CUDA_VISIBLE_DEVICES gives; empty without a driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ()
    query = "--query-gpu=index,uuid,name,memory.total"
    command = (program, query, "--format=csv,noheader,nounits")
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    if answer.returncode:
        return ()
    rows = [tuple(part.strip() for part in line.split(",")) for line in answer.stdout.splitlines()]
    return _filtered([row for row in rows if len(row) == 4])


def _filtered(rows: list[tuple[str, ...]]) -> tuple[Device, ...]:
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    by_name = {row[0]: row for row in rows} | {row[1]: row for row in rows}
    if chosen is not None:
        # CUDA ignores everything after the first name that it does not know.
        names = [name.strip() for name in chosen.split(",")]
        unknown = next((i for i, name in enumerate(names) if name not in by_name), len(names))
        rows = [by_name[name] for name in names[:unknown]]
    return tuple(Device(name=row[2], memory_bytes=int(float(row[3])) * _MIB) for row in rows)


def _cpu_slots(processes: int, limit_bytes: int | None) -> tuple[Device, ...]:
    share_bytes = int(available_memory_bytes() * _CPU_SHARE) // processes
    memory_bytes = min(limit_bytes, share_bytes) if limit_bytes else share_bytes
    device = Device(name=f"cpu ({platform.machine()})", memory_bytes=memory_bytes, emulated=True)
    return (device,) * processes


def available_memory_bytes() -> int:
    """Memory that new processes may take: the machine's, or its control group's if less."""
    free_bytes = psutil.virtual_memory().available
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    try:
        return min(free_bytes, max(0, int(limit.read_text()) - int(used.read_text())))
    except (OSError, ValueError):
        return int(free_bytes)
