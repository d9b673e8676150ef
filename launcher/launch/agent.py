"""Starts the ranks of one launch, watches them and ends them with their controller.

A separate script, ``python -I -S agent.py DESCRIPTOR``, of the standard library only, so that it
starts in milliseconds; a fork server loads it, too. The descriptor is the controller's socket. It
receives JSON lines: first the order (``engines/agents.py``), then ``{"signal": N}`` and
``{"end": true}``; it sends one line, the report. When it closes, the controller is dead and all
that was started here dies within 2 s.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import importlib.util
import json
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from autoconf_launch.core import SecretFilter

    from . import trial_logs

# ruff: noqa: PTH100, PTH120, PTH108, PTH112, PTH113, PTH115, PTH116, PTH118, PTH119, PTH123, PTH208


ORPHAN_GRACE_S = 1.0  # from SIGTERM to SIGKILL once the controller is gone
LEFTOVER_GRACE_S = 0.5  # the same for what the ranks leave behind
LOG_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
UNKILLABLE_S = 30.0  # after SIGKILL; a process that a driver holds may never end
REPEAT_S = 0.05
LOCK_LOOKS_APART_S = 0.2  # between closing its lock and removing it nobody needs as long
LOCAL_DISKS = frozenset({"bcachefs", "btrfs", "ext4", "f2fs", "overlay", "tmpfs", "xfs", "zfs"})
LOG_LOOKS_APART_S = 1.0
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
Lock = tuple[str, int, int]  # path, inode, time of its making
_Handler = Callable[[dict[str, Any]], object]  # gives a fork its program


class Watch:
    """The ranks of one launch while they live."""

    def __init__(self, document: dict[str, Any], control: Control) -> None:
        self._document, self._control = document, control
        self._may_leave = document.get("may_leave")
        self._alarm, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._filtered = self._filter_output(_known_secrets(document))
        self._stop_listening()
        self._poller.register(control.descriptor, select.POLLIN)
        self._pids: list[int] = []
        self._codes: dict[int, int] = {}
        self._exit_unix_s: dict[int, float] = {}
        self._due: list[tuple[float, int]] = []
        self._terminated_unix_s: float | None = None
        self._give_up_s = float("inf")
        self._logs = trial_logs.limited_logs(document.get("log_limit_bytes"))
        self._held: set[Lock] = set()
        self._removed = remove_dead_locks(document["extension_caches"], self._held)

    def start(self, turn: _Handler) -> dict[str, Any] | None:
        """Start every rank, all in the process group of the first; in a fork, return the rank."""
        group = 0
        for rank in self._document["ranks"]:
            if (pid := os.fork()) == 0:
                for log in self._filtered:
                    os.dup2(log.write, log.number)
                return _become(rank, self._document["working_directory"], group, turn)
            self._pids.append(pid)
            group = group or pid
            with contextlib.suppress(OSError):  # it has done so itself and is another program
                os.setpgid(pid, group)
        return None

    def run(self) -> None:
        """Return when every rank has ended, or cannot be ended."""
        while self._live_ranks() and time.monotonic() < self._give_up_s:
            self._obey()
            self._reap()
            self._send_due()
            if self._live_ranks():
                self._sleep(self._next_look_s())
            for log in self._logs:
                log.free_middle()

    def _next_look_s(self) -> float | None:
        look_s = LOG_LOOKS_APART_S if self._logs else None
        if not self._due:
            return look_s
        due_s = self._due[0][0] - time.monotonic()
        return due_s if look_s is None else min(due_s, look_s)

    def sweep(self) -> None:
        """End leftover processes of the ranks, if they may not stay, failed or were stopped."""
        self._stop_listening()
        kill_s = time.monotonic() + LEFTOVER_GRACE_S
        ends = bool(self._due) or any(self._codes.values()) or not self._may_leave
        if ends and self._reap():
            self._signal_below(signal.SIGTERM)
        while ends and self._reap() and time.monotonic() < kill_s + UNKILLABLE_S:
            self._sleep(REPEAT_S)
            if time.monotonic() > kill_s:
                self._signal_below(signal.SIGKILL)
        if ends and not self._reap():
            self._removed += remove_dead_locks(self._document["extension_caches"], self._held)
        self._end_logs()
        for path, text in self._document.get("private_files", ()):
            _write_over(path, text)
        for rank in self._document["ranks"]:
            with contextlib.suppress(OSError):
                os.unlink(rank.get("shared_memory") or "")

    def _end_logs(self) -> None:
        for filtered in self._filtered:
            filtered.end()
        for log in self._logs:
            log.cut_middle()

    def report(self) -> dict[str, Any]:
        return {
            "codes": [self._codes.get(pid, -signal.SIGKILL) for pid in self._pids],
            "exit_unix_s": [self._exit_unix_s.get(pid, time.time()) for pid in self._pids],
            "terminated_unix_s": self._terminated_unix_s,
            "removed_locks": self._removed,
            "ended_s": time.monotonic(),
        }

    def _sleep(self, longest_s: float | None) -> None:
        ready = self._poller.poll(None if longest_s is None else max(0.0, longest_s) * 1e3 + 1)
        if any(descriptor == self._alarm for descriptor, _ in ready):
            os.read(self._alarm, 4096)
        for log in self._filtered:
            log.forward()

    def _filter_output(self, filters: dict[int, SecretFilter]) -> list[trial_logs.FilteredLog]:
        return [trial_logs.FilteredLog(number, known) for number, known in filters.items()]

    def _obey(self) -> None:
        for command in self._control.read_now():
            self._do(command)
        if self._control.closed:
            self._stop_listening()
            self._end(after_s=0.0, grace_s=ORPHAN_GRACE_S)

    def _do(self, command: dict[str, Any]) -> None:
        if "signal" in command:
            self._may_leave = False
            _signal_all(self._live_ranks(), command["signal"])
        elif "end" in command:
            self._end(after_s=0.0, grace_s=self._document["grace_s"])

    def _stop_listening(self) -> None:
        self._poller = select.poll()
        self._poller.register(self._alarm, select.POLLIN)
        for log in self._filtered:
            self._poller.register(log.read, select.POLLIN)

    def _end(self, *, after_s: float, grace_s: float) -> None:
        due_s = time.monotonic() + after_s
        if not self._due or due_s + grace_s < self._due[-1][0]:
            self._due = [(due_s, signal.SIGTERM), (due_s + grace_s, signal.SIGKILL)]

    def _reap(self) -> bool:
        """Collect every child that has ended; returns whether any is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid in self._pids:
                self._note(pid, os.waitstatus_to_exitcode(status))

    def _note(self, pid: int, code: int) -> None:
        self._codes[pid], self._exit_unix_s[pid] = code, time.time()
        if code != 0:
            document, rank = self._document, self._document["ranks"][self._pids.index(pid)]
            sure = _ran_out_of_memory(rank["result"], document["attempt"])
            self._end(after_s=0.0 if sure else document["linger_s"], grace_s=document["grace_s"])

    def _send_due(self) -> None:
        now = time.monotonic()
        while self._live_ranks() and self._due and self._due[0][0] <= now:
            number = self._due.pop(0)[1]
            self._terminated_unix_s = self._terminated_unix_s or time.time()
            if number == signal.SIGTERM:
                self._held |= held_locks(self._live_ranks())
                _signal_all(self._live_ranks(), number)
            else:
                self._signal_below(number)
                self._due.append((now + REPEAT_S, number))
                self._give_up_s = min(self._give_up_s, now + UNKILLABLE_S)

    def _signal_below(self, number: int) -> None:
        below = descendants(os.getpid()) or self._live_ranks()
        self._held |= held_locks(below)
        _signal_all(below, number)

    def _live_ranks(self) -> list[int]:
        return [pid for pid in self._pids if pid not in self._codes]


class Control:
    """JSON lines from the controller; ``closed`` once it is gone."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.closed = False
        self._pending = b""

    def read_first(self) -> dict[str, Any] | None:
        """Wait for the first line; None if the controller died before it was complete."""
        while b"\n" not in self._pending and not self.closed:
            self._take()
        return next(iter(self._lines(1)), None)

    def read_now(self) -> list[dict[str, Any]]:
        ready = select.poll()
        ready.register(self.descriptor, select.POLLIN)
        while not self.closed and ready.poll(0):
            self._take()
        return self._lines()

    def write(self, line: dict[str, Any]) -> None:
        """Send a line; without effect if nothing listens any more."""
        trial_logs.write_all(self.descriptor, json.dumps(line).encode() + b"\n")

    def _take(self) -> None:
        data = b""
        with contextlib.suppress(OSError):
            data = os.read(self.descriptor, 1 << 16)
        self._pending += data
        self.closed = self.closed or not data

    def _lines(self, count: int = -1) -> list[dict[str, Any]]:
        *whole, self._pending = self._pending.split(b"\n", count)
        return [json.loads(line) for line in whole]


def _known_secrets(document: dict[str, Any]) -> dict[int, SecretFilter]:
    """A filter for each of the two logs of a trial, if the launcher has passed secrets."""
    variables = {**os.environ, **dict(document["ranks"][0]["environment"])}
    if not document.get("attempt") or "AUTOCONF_LAUNCH_SECRETS" not in variables:
        return {}
    known = _load("..", "..", "core", "errors.py").SecretFilter
    return {number: known.from_environment(variables) for number in (1, 2)}


def _write_over(path: str, text: str) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC)
        trial_logs.write_all(descriptor, text.encode(errors="surrogateescape"))
        os.close(descriptor)


def _load(*parts: str) -> Any:
    """A module of ours by its relative path, as this Python knows no package."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), *parts)
    name = f"autoconf_launch_{parts[-1][:-3]}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look there
    spec.loader.exec_module(module)
    return module


if not TYPE_CHECKING:
    trial_logs = _load("trial_logs.py")


def descendants(ancestor: int) -> list[int]:
    """Processes below ``ancestor`` that have not ended; empty without ``/proc``."""
    parents = {pid: int(fields[1]) for pid, fields in living_processes()}
    found, below = list[int](), {ancestor}
    while below:
        below = {pid for pid, parent in parents.items() if parent in below}
        found += sorted(below)
    return found


def living_processes() -> list[tuple[int, list[bytes]]]:
    """Number and ``[state, parent, group, session]`` of every process except zombies."""
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()[:4]
                if fields[0] != b"Z":
                    found.append((int(name), fields))
    return found


def held_locks(pids: list[int]) -> set[Lock]:
    """Empty files named ``lock`` that these processes have open."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    path = os.readlink(f"/proc/{pid}/fd/{name}")
                    status = os.stat(f"/proc/{pid}/fd/{name}")
                    if os.path.basename(path) == "lock" and _is_lock(status):
                        found.add((path, status.st_ino, status.st_mtime_ns))
    return found


def remove_dead_locks(caches: list[str], died: set[Lock]) -> list[str]:
    """Remove locks of killed builds of torch extensions; every later build would wait forever.

    ``torch.utils.file_baton`` makes a file that must not exist, keeps it open and removes it at
    the end, so its maker is dead if no process has it open. ``died``: locks of processes that were
    killed here.
    """
    paths = {path for cache in caches for path in _cached_locks(cache)}
    paths.update(path for path, _, _ in died)
    seen = {path: lock for path in paths if (lock := _abandoned_lock(path, died))}
    if seen:
        time.sleep(LOCK_LOOKS_APART_S)
    removed = []
    for path, lock in seen.items():
        if lock == _abandoned_lock(path, died):
            with contextlib.suppress(OSError):
                os.unlink(path)
                removed.append(path)
    return removed


def _cached_locks(cache: str) -> list[str]:
    """Lock files of the extensions in a cache, with or without a folder for Python and CUDA."""
    below = _folders(cache)
    folders = [*below, *(deeper for folder in below for deeper in _folders(folder))]
    return [lock for folder in folders if os.path.isfile(lock := os.path.join(folder, "lock"))]


def _folders(path: str) -> list[str]:
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        return [entry.path for entry in entries if entry.is_dir()]
    return []


def _abandoned_lock(path: str, died: set[Lock]) -> Lock | None:
    """A lock that no process has open; None if one has, or may have.

    On a disk that other machines write to, no kernel knows; there it must be in ``died``.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(descriptor)
        if not _is_lock(status) or status.st_uid != os.geteuid():
            return None
        lock = path, status.st_ino, status.st_mtime_ns
        is_dead = _has_no_other(descriptor) if _is_local(path) else lock in died
        return lock if is_dead else None
    finally:
        os.close(descriptor)


def _is_lock(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and status.st_size == 0


def _has_no_other(descriptor: int) -> bool:
    """True if no process of this machine, in any container, has the file open except us.

    The kernel grants a lease for writing only then (fcntl(2)).
    """
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)  # SIGIO would end us
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    except OSError:
        return False
    return True


def _is_local(path: str) -> bool:
    """True if a path is on a disk of only this machine, by its longest mount point."""
    real, found = os.path.realpath(path), (0, "")
    with contextlib.suppress(OSError), open("/proc/self/mounts", errors="surrogateescape") as file:
        for line in file:
            _, point, kind, *_ = line.split(" ")
            point = point.replace("\\040", " ").replace("\\134", "\\").rstrip("/")
            if real.startswith(f"{point}/") and len(point) >= found[0]:
                found = (len(point), kind)
    return found[1] in LOCAL_DISKS


def _signal_all(pids: list[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _ran_out_of_memory(path: str | None, attempt: str | None) -> bool:
    try:
        with open(path or "", "rb") as file:
            result = json.load(file)
        return (result["attempt"], result["failure"]["kind"]) == (attempt, "out_of_memory")
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _become(rank: dict[str, Any], folder: str, group: int, turn: _Handler) -> dict[str, Any]:
    """Make this fork a rank; a failure to start is an exit code of 127 and one sentence."""
    with contextlib.ExitStack() as failed:
        failed.callback(os._exit, 127)
        try:
            os.setpgid(0, group)
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() == os.getsid(0):  # the agent leads the session, and lives
                signal.pthread_sigmask(signal.SIG_SETMASK, ())
                os.chdir(folder)
                os.sched_setaffinity(0, rank.get("cores") or os.sched_getaffinity(0))
                if rank.get("log"):
                    log = os.open(rank["log"], LOG_FLAGS, 0o600)
                    os.dup2(os.dup2(log, 1), 2)
                turn(rank)
                failed.pop_all()
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            text = f"autoconf-launch: cannot start {rank['argv'][0]} in {folder}: {reason}\n"
            os.write(2, text.encode(errors="surrogateescape"))
    return rank


def execute(rank: dict[str, Any]) -> None:
    """Make this process the program of a rank."""
    os.execvpe(rank["argv"][0], rank["argv"], {**os.environ, **dict(rank["environment"])})


def _prctl(option: int, value: int) -> None:
    """Linux's ``prctl``; on other systems nothing, and orphans are not found."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def prepare_process(control: Control) -> None:
    """Block every signal but SIGCHLD, and become the subreaper of our descendants.

    Signals are blocked, not ignored, so that a signal that reaches a rank before it has become
    another program takes effect then, with that program's dispositions.
    """
    os.set_inheritable(control.descriptor, False)
    signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals() - {signal.SIGCHLD})
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def supervise(document: dict[str, Any], control: Control, turn: _Handler) -> dict[str, Any] | None:
    """Run the ranks to their end and report it; in a fork that ``turn`` returns to, the rank."""
    watch = Watch(document, control)
    if (rank := watch.start(turn)) is None:
        watch.run()
        watch.sweep()
        control.write(watch.report())
    return rank


def main() -> NoReturn:
    """Read the document, run it, report; the exit code says nothing."""
    control = Control(int(sys.argv[1]))
    prepare_process(control)
    if (document := control.read_first()) is not None:
        supervise(document, control, execute)
    os._exit(0)


if __name__ == "__main__":
    main()
