"""The GPUs of the machine that this runs on: ``nvidia-smi`` lists them, else torch does.

Standard library only, as the agent of a host runs this file as a program; it prints JSON.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

VISIBLE, HIP_VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
BUS_ORDER = "PCI_BUS_ID"
"""Value of ``ORDER`` with which CUDA numbers GPUs as ``nvidia-smi`` does."""
PROHIBITED = "Prohibited"
"""Compute mode of a card that no process may use."""
_MIB, _GIB = 1 << 20, 1 << 30
_QUERIES = (
    "index,uuid,name,memory.total,memory.free,compute_mode,mig.mode.current",
    "index,uuid,name,memory.total",  # a driver that does not have all of these
)
_COLUMNS = 4
_PROCESSES = "gpu_uuid,pid,used_gpu_memory,process_name"
_NO_UNITS = "--format=csv,noheader,nounits"
_SMI_S, _TORCH_S = 20.0, 120.0
_IN_USE = 0.05
"""Share of a GPU's memory above which its users are listed; a desktop takes a little."""
_SLICE_USABLE = 0.95
"""Part of the size in a MIG profile's name that a slice really has: 9.5 GiB in ``1g.10gb``."""
_ACTING_ON_TORCH = (VISIBLE, HIP_VISIBLE, "ROCR_VISIBLE_DEVICES", "PATH", "LD_LIBRARY_PATH")
_AMD_DRIVER = "/dev/kfd"
_CARD = re.compile(r"GPU (\d+): ")
_SLICE = re.compile(r"\s*MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[^)\s]+)\)")
_DRIVER_FILES = (_AMD_DRIVER, "/dev/nvidiactl", "/dev/nvidia0", "/dev/dxg", "/dev/nvmap")
"""Files that drivers make: AMD's, NVIDIA's, that of WSL, and NVIDIA's for Jetson."""
_DRIVER_LIBRARY = "libcuda.so.1"
_BUILT_FOR_GPUS = re.compile(r"^(cuda|hip)\b[^=]*= *['\"]", re.MULTILINE)
_ASK_TORCH = """
import json, torch
def free_bytes(number):
    try:
        return torch.cuda.mem_get_info(number)[0]
    except Exception:
        return None
cards = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
rows = [[c.name, c.total_memory, free_bytes(n)] for n, c in enumerate(cards)]
print(json.dumps([bool(torch.version.hip), rows]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUser:
    """A process that computes on a GPU.

    Attributes:
        memory_bytes: memory that it holds there; None if the driver does not report it.
    """

    pid: int
    name: str
    memory_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """A GPU, or a MIG slice of a GPU.

    Attributes:
        index: number of the GPU in ``nvidia-smi``, also for a slice of it.
        uuid: name that CUDA knows in every order of the GPUs; "" for GPUs that only torch reports,
            which counts the visible ones.
        visible_as: name in ``VISIBLE`` by which a process gets this one.
        memory_bytes: whole memory; 0 for a GPU that shares the machine's.
        free_bytes: memory that no process holds; None if unknown.
        mode: compute mode of the driver, such as ``Exclusive_Process``.
        users: processes on it, if a notable part of its memory is in use.
    """

    index: int
    uuid: str
    visible_as: str
    name: str
    memory_bytes: int
    free_bytes: int | None = None
    mode: str = "Default"
    users: tuple[GpuUser, ...] = ()

    @property
    def is_slice(self) -> bool:
        return self.uuid.startswith("MIG-")

    @property
    def is_exclusive(self) -> bool:
        return self.mode.startswith("Exclusive")

    @property
    def used_bytes(self) -> int:
        """Memory in use; 0 if unknown."""
        return 0 if self.free_bytes is None else max(0, self.memory_bytes - self.free_bytes)

    @property
    def is_in_use(self) -> bool:
        return self.used_bytes > _IN_USE * self.memory_bytes


def list_gpus(python: str = "") -> tuple[Gpu, ...]:
    """All GPUs that ``nvidia-smi`` lists; without it, the GPUs that torch sees.

    A card with MIG enabled is replaced by its slices.

    Args:
        python: interpreter to import torch with; "": this one.
    """
    if gpus := _driver_gpus():
        return gpus
    if _are_all_hidden() or not _may_have_gpu(python):
        return ()
    environment = tuple(os.environ.get(name) for name in _ACTING_ON_TORCH)
    return _torch_gpus(python or sys.executable, environment)


def seen_at_once(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """The GPUs of these that one process can use: a slice hides all others from CUDA.

    Cards whose compute mode is Prohibited are not among them.
    """
    usable = tuple(gpu for gpu in gpus if gpu.mode != PROHIBITED)
    first = next((gpu for gpu in usable if gpu.is_slice), None)
    return usable if first is None else (first,)


def names_none(value: str) -> bool:
    """True if a value of ``VISIBLE`` hides all GPUs, as "" and "-1" do."""
    return re.match(r"\s*([0-9]|GPU-|MIG-)", value) is None


def _are_all_hidden() -> bool:
    by_hip = os.environ.get(HIP_VISIBLE) if os.path.exists(_AMD_DRIVER) else None  # noqa: PTH110
    value = os.environ.get(VISIBLE) if by_hip is None else by_hip
    return value is not None and names_none(value)


def _driver_gpus() -> tuple[Gpu, ...]:
    for query in _QUERIES:
        rows = _rows(_smi(f"--query-gpu={query}", _NO_UNITS))
        rows = [row for row in rows if len(row) >= _COLUMNS and row[0].isdecimal()]
        if rows:
            break
    else:
        return ()
    gpus = [_gpu(row) for row in rows]
    enabled = {int(row[0]) for row in rows if row[-1] == "Enabled"}
    if enabled or not all(gpu.memory_bytes for gpu in gpus):  # a container may not see the card's
        gpus = list(_with_slices(gpus, enabled, _smi("-L"), _smi("-q", "-x")))
    elif len({(gpu.name, gpu.memory_bytes) for gpu in gpus}) > 1:
        gpus = [replace(gpu, visible_as=gpu.uuid) for gpu in gpus]
    if any(gpu.is_in_use or gpu.is_exclusive for gpu in gpus):
        users = _users(_smi(f"--query-compute-apps={_PROCESSES}", _NO_UNITS))
        gpus = [replace(gpu, users=users.get(gpu.uuid, ())) for gpu in gpus]
    return tuple(gpus)


def _smi(*words: str) -> str:
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    try:
        answer = subprocess.run(
            (program, *words), capture_output=True, text=True, timeout=_SMI_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if answer.returncode else answer.stdout


def _rows(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]


def _gpu(row: Sequence[str]) -> Gpu:
    more = row[_COLUMNS:]
    return Gpu(
        index=int(row[0]),
        uuid=row[1],
        visible_as=row[0],
        name=row[2],
        memory_bytes=_mib_bytes(row[3]) or 0,
        free_bytes=_mib_bytes(more[0]) if more else None,
        mode=more[1] if len(more) > 1 else "Default",
    )


def _mib_bytes(text: str | None) -> int | None:
    """Bytes of ``81559`` or ``4864 MiB``; None for ``[N/A]``."""
    number = re.match(r"[0-9.]+", (text or "").strip())
    return int(float(number[0])) * _MIB if number else None


def _with_slices(
    gpus: Sequence[Gpu], enabled: set[int], listing: str, document: str
) -> Iterator[Gpu]:
    """The GPUs, with the slices of a card in its place.

    Args:
        gpus: all cards.
        enabled: numbers of the cards with MIG enabled, which CUDA cannot use whole.
        listing: output of ``nvidia-smi -L``, which has the UUIDs.
        document: output of ``nvidia-smi -q -x``, which has the memory; "": use the profile.
    """
    memory = _slice_memory(document)
    cards = {gpu.index: gpu for gpu in gpus}
    card, number = None, -1
    slices: dict[int, list[Gpu]] = {}
    for line in listing.splitlines():
        if found := _CARD.match(line):
            number = int(found[1])
            card = cards.get(number)
        elif card and (found := _SLICE.match(line)):
            profile, device, uuid = found[1], int(found[2]), found[3]
            total, free = memory.get((card.uuid, device), (None, None))
            one = replace(
                card,
                uuid=uuid,
                visible_as=uuid,
                name=f"{card.name} MIG {profile}",
                memory_bytes=total or _profile_bytes(profile),
                free_bytes=free,
            )
            slices.setdefault(number, []).append(one)
    for gpu in gpus:
        whole = [] if gpu.index in enabled else [gpu]
        yield from slices.get(gpu.index) or (
            [replace(one, visible_as=one.uuid) for one in whole] if slices else whole
        )


def _slice_memory(document: str) -> dict[tuple[str, int], tuple[int | None, int | None]]:
    """Total and free bytes by a card's UUID and the number of a slice on it."""
    try:
        cards = ElementTree.fromstring(document).iter("gpu") if document else iter(())
    except ElementTree.ParseError:
        return {}
    return {
        (card.findtext("uuid", ""), int(part.findtext("index", "-1"))): (
            _mib_bytes(part.findtext("fb_memory_usage/total")),
            _mib_bytes(part.findtext("fb_memory_usage/free")),
        )
        for card in cards
        for part in card.iterfind("mig_devices/mig_device")
    }


def _profile_bytes(profile: str) -> int:
    """Memory of ``1g.10gb`` or ``1c.3g.40gb+me``, if the driver does not report it."""
    found = re.search(r"(\d+)gb", profile)
    return int(int(found[1]) * _GIB * _SLICE_USABLE) if found else 0


def _users(text: str) -> dict[str, tuple[GpuUser, ...]]:
    users: dict[str, tuple[GpuUser, ...]] = {}
    for uuid, pid, memory, *name in (row for row in _rows(text) if len(row) >= _COLUMNS):
        if pid.isdecimal():
            words = Path(",".join(name)).name
            user = GpuUser(pid=int(pid), name=words, memory_bytes=_mib_bytes(memory))
            users[uuid] = (*users.get(uuid, ()), user)
    return users


def _may_have_gpu(python: str) -> bool:
    """Return whether importing torch, which takes seconds, may find a GPU."""
    if not (python or _is_torch_for_gpus()):
        return False
    if any(os.path.exists(path) for path in _DRIVER_FILES):  # noqa: PTH110
        return True
    try:
        ctypes.CDLL(_DRIVER_LIBRARY)
    except OSError:
        return False
    return True


def _is_torch_for_gpus() -> bool:
    """Return whether this interpreter's torch was built with CUDA or HIP; it is not imported."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return False
    try:
        text = Path(found.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return True
    return _BUILT_FOR_GPUS.search(text) is not None


@cache
def _torch_gpus(python: str, environment: tuple[str | None, ...]) -> tuple[Gpu, ...]:
    """The GPUs that torch sees, queried once for each environment."""
    try:
        answer = subprocess.run(
            (python, "-c", _ASK_TORCH),
            env={**os.environ, ORDER: BUS_ORDER},
            capture_output=True,
            text=True,
            timeout=_TORCH_S,
            check=False,
        )
        is_hip, rows = json.loads(answer.stdout.splitlines()[-1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return ()
    value = os.environ.get(VISIBLE, "")
    named = (os.environ.get(HIP_VISIBLE, value) if is_hip else value).split(",")
    names = [name.strip() for name in named] if len(named) >= len(rows) else []
    names = names if all(names) and names else [str(number) for number in range(len(rows))]
    return tuple(
        Gpu(
            index=int(visible_as) if visible_as.isdecimal() else number,
            uuid="",
            visible_as=visible_as,
            name=name,
            memory_bytes=memory,
            free_bytes=free,
        )
        for number, (visible_as, (name, memory, free)) in enumerate(zip(names, rows, strict=False))
    )


if __name__ == "__main__":
    print(json.dumps([asdict(gpu) for gpu in list_gpus()]))  # noqa: T201
