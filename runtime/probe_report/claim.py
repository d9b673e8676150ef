"""Which process speaks for a rank: the first that completes an optimizer step, exclusively.

A claim whose holder has ended, or runs below the claimant (a helper that trains something first),
is passed on. Claims are numbered files, each made exclusively.
"""

from __future__ import annotations

import multiprocessing
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from autoconf_launch.core import RankTask, sign_path

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_PARENT = "AUTOCONF_LAUNCH_PROBE_PARENT"
_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")


class Claim:
    """This process's right to report for a rank."""

    def __init__(self, task: RankTask, rank: int) -> None:
        self._task = task
        self._rank = rank
        self._number = -1

    def take(self) -> bool:
        """Become the one that reports; False: another lives and does."""
        while True:
            last = self._last()
            if last is not None and not _gives_way(self._path(last)):
                self._refused_path.touch()
                return False
            number = 0 if last is None else last + 1
            if self._make(number):
                self._number = number
                return True

    def take_first(self) -> bool:
        """Become the one that reports, only where no process has ever claimed the rank."""
        if self._last() is not None or not self._make(0):
            return False
        self._number = 0
        return True

    def holds(self) -> bool:
        """True if no other process has taken the claim over."""
        return not self._path(self._number + 1).exists()

    @property
    def is_crowded(self) -> bool:
        """True if another process has made steps for this rank, before or beside this one."""
        return self._number > 0 or self.is_shared

    @property
    def is_shared(self) -> bool:
        """True if another process makes steps for this rank beside this one."""
        return self._refused_path.exists()

    @property
    def _refused_path(self) -> Path:
        return sign_path(self._task, f"refused_rank{self._rank}")

    def _make(self, number: int) -> bool:
        path = self._path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}")
        temporary.write_text(f"{os.getpid()} {_start_time(os.getpid())}")
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
        finally:
            temporary.unlink(missing_ok=True)
        return True

    def _last(self) -> int | None:
        number = 0
        while self._path(number).exists():
            number += 1
        return number - 1 if number else None

    def _path(self, number: int) -> Path:
        return sign_path(self._task, f"claim_rank{self._rank}_{number}")


def mark_children() -> None:
    """Let the processes that are started from here on know that this one imports torch."""
    os.environ[_PARENT] = os.environ.get(_RANKS[0], "")


class Helper:
    """Whether this process only helps another one of the same rank that imports torch, too.

    To be asked before :func:`mark_children`. Ranks that an agent starts have a number that their
    agent has not, and those that multiprocessing spawns are not daemons; loaders' workers are.
    """

    def __init__(self) -> None:
        self._started_by_rank = os.environ.get(_PARENT) == os.environ.get(_RANKS[0], "")

    def __bool__(self) -> bool:
        """The answer, ready at the end: multiprocessing tells a child late what it is."""
        if multiprocessing.parent_process() is not None:
            return bool(multiprocessing.current_process().daemon)
        return self._started_by_rank


def environment_rank() -> int:
    """Rank by the launcher's variables; 0 where there are none."""
    return _first_number(_RANKS, 0)


def environment_size() -> int:
    """Ranks by the launcher's variables; 1 where there are none."""
    return _first_number(_SIZES, 1)


def _first_number(names: tuple[str, ...], default: int) -> int:
    values = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdecimal()), default)


def _gives_way(claim: Path) -> bool:
    """True if a claim's holder has ended, or is a descendant of this process."""
    pid, _, started = claim.read_text().partition(" ")
    return _start_time(int(pid)) != started or os.getpid() in _ancestors(int(pid))


def _start_time(pid: int) -> str:
    """When a living process started; empty for one that has ended."""
    fields = _stat(pid)
    if fields:
        return "" if fields[0] == "Z" else fields[19]
    if Path("/proc/self/stat").exists():
        return ""
    with suppress(OSError):
        os.kill(pid, 0)
        return "unknown"
    return ""


def _ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    while pid > 1 and pid not in found:
        fields = _stat(pid)
        pid = int(fields[1]) if fields else 0
        found.add(pid)
    return found


def _stat(pid: int) -> list[str]:
    """Fields of ``/proc/<pid>/stat`` from the state on; empty where there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """Rank of this process and how many there are: by its process group, else its variables."""

    rank: int
    world_size: int


def place() -> RankPlace:
    """Place of this process among the ranks."""
    if dist.is_available() and dist.is_initialized():
        return RankPlace(rank=dist.get_rank(), world_size=dist.get_world_size())
    return RankPlace(rank=environment_rank(), world_size=environment_size())
