"""The lease: one controller per results folder.

It is a file with the holder's host, process id and that process's start, locked while the
holder lives (its lock ends with it) and touched as a heartbeat for folders that several hosts
share, to which locks may not reach.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from pathlib import Path
from typing import Any

from autoconf_launch.core import ResultsFolderError

from .own_files import is_named, open_file
from .paths import CHOSEN_BY

HEARTBEAT_S = 10.0
STALE_AFTER_S = 60.0
_PRIVATE = 0o600
"""A process that can read a file can lock it."""
_OTHERS_READ = 0o044
_IS_LOCKED = (errno.EWOULDBLOCK, errno.EACCES)
"""Errors of flock(2) if another process has the lock; all others mean a folder without locks."""
_MOST_PID = 2**31
_START_FIELD = 19
"""Index of ``starttime`` behind the name in ``/proc/PID/stat`` (proc(5), field 22)."""


class Lease:
    """Held from ``with`` to its end.

    Raises:
        ResultsFolderError: on entering, if another controller holds the folder.
    """

    def __init__(self, path: Path, chosen_by: str = CHOSEN_BY) -> None:
        """Take nothing yet; ``chosen_by`` names the flags that choose another folder."""
        self._path, self._chosen_by = path, chosen_by
        self._descriptor: int | None = None
        self._touched_s = 0.0

    def __enter__(self) -> Lease:
        descriptor = self._lock()
        while not is_named(self._path, descriptor):  # its holder ended after we opened it
            os.close(descriptor)
            descriptor = self._lock()
        holder = _holder(descriptor)
        if _lives_elsewhere(holder, descriptor):
            os.close(descriptor)
            raise self._held_by(holder)
        content = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "start_ticks": _state_and_start(os.getpid())[1],
            "start_unix_s": time.time(),
        }
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(content).encode(), 0)
        self._descriptor = descriptor
        return self

    def __exit__(self, *_: object) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # a dead disk has said so before
                if is_named(self._path, self._descriptor):  # else its folder was moved aside
                    self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None

    def heartbeat(self) -> None:
        """Show that the holder lives; cheap enough to call at every wake-up."""
        now_s = time.monotonic()
        if self._descriptor is not None and now_s - self._touched_s > HEARTBEAT_S:
            os.utime(self._descriptor)
            self._touched_s = now_s

    def _lock(self) -> int:
        descriptor = open_file(self._path, os.O_RDWR | os.O_CREAT, _PRIVATE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder, mode = _holder(descriptor), os.fstat(descriptor).st_mode
            if error.errno not in _IS_LOCKED and not is_held(self._path):
                return descriptor  # no locks reach this folder: host and heartbeat decide
            os.close(descriptor)
            if mode & _OTHERS_READ and not is_held(self._path):  # locked by who may only read it
                self._path.unlink(missing_ok=True)
                return self._lock()
            raise self._held_by(holder) from error
        os.fchmod(descriptor, _PRIVATE)
        return descriptor

    def _held_by(self, holder: dict[str, Any]) -> ResultsFolderError:
        who = f"process {holder.get('pid', '?')} on {holder.get('host', '?')}"
        return ResultsFolderError(
            f"results folder {self._path.parent} is in use by {who}; wait until it ends, "
            f"or choose another folder with {self._chosen_by}."
        )


def is_held(lease: Path) -> bool:
    """True if a living controller holds the folder; read without touching the lock."""
    try:
        descriptor = open_file(lease, os.O_RDONLY)
    except PermissionError:  # of another user, whose heartbeat is all that we see
        return _beats(lease.stat())
    except (OSError, ResultsFolderError):
        return False
    with os.fdopen(descriptor):
        holder, about = _holder(descriptor), os.fstat(descriptor)
    if not isinstance(holder.get("pid"), int) or not 0 < holder["pid"] < _MOST_PID:
        return False
    if holder.get("host") != socket.gethostname():
        return _beats(about)
    return _is_alive(holder["pid"], holder.get("start_ticks"))


def _is_alive(pid: int, start_ticks: object) -> bool:
    """True if the process that took the lease lives, not another with the same number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    state, began = _state_and_start(pid)
    return state != b"Z" and (began is None or start_ticks in (None, began))


def _state_and_start(pid: int) -> tuple[bytes, int | None]:
    """A process's state, and its start in ticks since boot; empty if they are unknown."""
    try:
        told = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return told[0], int(told[_START_FIELD])
    except (OSError, ValueError, IndexError):
        return b"", None


def _holder(descriptor: int) -> dict[str, Any]:
    try:
        content = json.loads(os.pread(descriptor, 4096, 0) or b"{}")
    except (ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _lives_elsewhere(holder: dict[str, Any], descriptor: int) -> bool:
    if not holder or holder.get("host") == socket.gethostname():
        return False
    return _beats(os.fstat(descriptor))


def _beats(about: os.stat_result) -> bool:
    """True if a file was touched recently; a date in the future does not count."""
    return abs(time.time() - about.st_mtime) < STALE_AFTER_S
