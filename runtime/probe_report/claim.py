"""Agreement between processes by files only: the script's process group is its own.

The first process of a rank that completes an optimizer step speaks for it, exclusively. Claims are
numbered files; a claim is passed on if its holder has ended or runs below the claimant.

At the end rank 0 announces a coming step, and each rank ends after exactly that one, when the
others of its host have come as far, so that no last message is cut off. Rank 0 decides, since only
it evaluates and saves in many scripts. A rank whose data must not be ended says so two steps
before, which all of them have passed when the last one ends.
"""

from __future__ import annotations

import multiprocessing
import os
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist

from autoconf_launch.core import Mode, RankTask, Sign, real_time, sign_path

from ..rank import Ranks, announced_end, write_sign

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_PARENT = "AUTOCONF_LAUNCH_PROBE_PARENT"
_SIZES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_PEERS_WAIT_S = 10.0
_PEERS_PAUSE_S = 120.0
"""Its value if they may be in an evaluation; the launcher waits no longer either."""
_POLL_S = 0.005
_UNANNOUNCED_STEPS = 3
"""Steps beyond the last possible end after which a rank without news ends by itself."""
_SECOND = 2
_BEFORE = 2
_WAIT_S = 30.0


class Claim:
    """This process's right to report for a rank."""

    def __init__(self, task: RankTask, rank: int) -> None:
        self._task = task
        self._rank = rank
        self._number = -1

    def take(self) -> bool:
        """Become the reporting process; False: another process reports."""
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
        """Become the reporting process, only if no process has ever claimed the rank."""
        if self._last() is not None or not self._make(0):
            return False
        self._number = 0
        return True

    def holds(self) -> bool:
        """True if no other process has taken the claim over."""
        return not self._path(self._number + 1).exists()

    @property
    def is_crowded(self) -> bool:
        """True if another process has made steps for this rank, before or during this one."""
        return self._number > 0 or self.is_shared

    @property
    def is_shared(self) -> bool:
        """True if another process makes steps for this rank, too."""
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
    """True if this process only helps another process of the same rank that imports torch, too.

    Construct it before :func:`mark_children`. Ranks that an agent starts have a number that their
    agent lacks, and ranks that multiprocessing spawns are not daemons; loaders' workers are.
    """

    def __init__(self) -> None:
        self._started_by_rank = os.environ.get(_PARENT) == os.environ.get(_RANKS[0], "")

    def __bool__(self) -> bool:
        """The answer, ready at the end: multiprocessing sets a child's kind late."""
        if multiprocessing.parent_process() is not None:
            return bool(multiprocessing.current_process().daemon)
        return self._started_by_rank


def environment_rank() -> int:
    """Rank by the launcher's variables; 0 if there are none."""
    return _first_number(_RANKS, 0)


def _first_number(names: tuple[str, ...], default: int) -> int:
    values = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdecimal()), default)


def _gives_way(claim: Path) -> bool:
    """True if a claim's holder has ended, or is a descendant of this process."""
    pid, _, started = claim.read_text().partition(" ")
    return _start_time(int(pid)) != started or os.getpid() in _ancestors(int(pid))


def _start_time(pid: int) -> str:
    """Start time of a living process; empty if it has ended."""
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
    """Fields of ``/proc/<pid>/stat`` from the state on; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def find_place(device: torch.device) -> Ranks:
    """Place of this process among the ranks: by its process group, else by its variables."""
    if dist.is_available() and dist.is_initialized():
        return Ranks(rank=dist.get_rank(), world_size=dist.get_world_size(), device=device)
    size = _first_number(_SIZES, 1)
    return Ranks(rank=environment_rank(), world_size=size, device=device)


def inspected_step(task: RankTask) -> int | None:
    """Number of the step that is looked into: the second one, if it will not be timed."""
    is_free = task.mode is Mode.PROFILE or task.start_step > _SECOND
    return _SECOND if is_free else None


class Agreement:
    """A rank's view of the common end, and of going on after the last step.

    Args:
        task: of the launch.
        place: the rank that this process reports for.
        lead: steps before the end at which it is announced: as far as one rank can be ahead of
            another.
    """

    def __init__(self, task: RankTask, place: Ranks, *, lead: int) -> None:
        self._task = task
        self._rank, self._world_size = place.rank, place.world_size
        self._lead = lead if place.world_size > 1 else 0
        self._least = inspected_step(task) or 1
        self._stop: int | None = None

    @property
    def stop(self) -> int | None:
        return self._stop

    def is_last(self, step: int) -> bool:
        """True if all ranks end after this step; to be asked after each one."""
        if self._stop is None:
            self._stop = self._announce(step) if self._rank == 0 else self._read_announced_end()
        if self._stop is not None:
            return step >= self._stop
        most = max(self._task.most_steps or 0, self._task.end_step, self._least)
        return step >= most + _UNANNOUNCED_STEPS

    def on_end(self) -> None:
        if self._world_size > 1:
            write_sign(self._task, f"ended_rank{self._rank}", "")

    def wait_for_peers(self, *, paused: bool = False) -> None:
        """Return when the ranks of this host have all ended, or after 10 s.

        ``paused``: they may be in an evaluation, and are waited for as long as the launcher does.
        """
        if self._world_size == 1:
            return
        give_up_s = real_time.monotonic() + (_PEERS_PAUSE_S if paused else _PEERS_WAIT_S)
        while self._is_missing_rank() and real_time.monotonic() < give_up_s:
            real_time.sleep(_POLL_S)

    def restart(self) -> None:
        """Forget the announced last step: steps count anew."""
        self._stop = None
        if self._rank == 0 and self._world_size > 1:
            sign_path(self._task, Sign.STOP.value).unlink(missing_ok=True)

    def _announce(self, step: int) -> int | None:
        """Announce the end once it is near enough or cannot move."""
        wanted = max(self._wanted_end(), self._least)
        if self._task.most_steps is not None and step + self._lead < wanted:
            return None
        stop = max(wanted, step + self._lead)
        if self._world_size > 1:
            write_sign(self._task, Sign.STOP.value, str(stop))
        return stop

    def _wanted_end(self) -> int:
        if self._task.mode is Mode.PROFILE:
            return self._least
        if self._task.most_steps is None:
            return self._task.end_step
        return min(announced_end(self._task), self._task.most_steps)

    def _read_announced_end(self) -> int | None:
        with suppress(OSError, ValueError):
            return int(sign_path(self._task, Sign.STOP.value).read_text())
        return None

    def _is_missing_rank(self) -> bool:
        local = os.environ.get("LOCAL_WORLD_SIZE", "")
        expected = int(local) if local.isdecimal() else self._world_size
        return len(self._signs("ended_rank*")) < min(expected, self._world_size)

    def on_step(self, number: int, *, can_end: bool) -> None:
        """A step has ended; ``can_end`` says of this rank's data whether it can be ended."""
        announces = self._world_size > 1 and number == self._task.end_step - _BEFORE
        if announces and not can_end:
            write_sign(self._task, f"endless_rank{self._rank}", "")

    def agree_to_go_on(self, wanted: bool) -> bool:
        """True if all go on after the last step; rank 0 decides by ``wanted``.

        A rank without an answer within 30 s uses its own ``wanted``.
        """
        if not self._task.ends_epoch or self._task.end_step <= _BEFORE:
            return False
        if self._world_size == 1:
            return wanted
        if self._rank == 0:
            wanted = wanted and not self._signs("endless_rank*")
            write_sign(self._task, "goes_on", str(int(wanted)))
            return wanted
        return self._hear(wanted)

    def _hear(self, wanted: bool) -> bool:
        give_up_s = real_time.monotonic() + _WAIT_S
        while real_time.monotonic() < give_up_s:
            with suppress(OSError):
                return sign_path(self._task, "goes_on").read_text() == "1"
            real_time.sleep(_POLL_S)
        return wanted

    def _signs(self, pattern: str) -> list[Path]:
        folder = sign_path(self._task, "").parent
        return list(folder.glob(f"{pattern}.{self._task.attempt}"))
