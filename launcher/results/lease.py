"""One controller per results folder. Not: protection of single files.

The lease is a file with the holder's host and process id, locked while the holder lives (a
dead holder's lock is gone with it) and touched as a heartbeat for folders that several hosts
share, where locks may not reach.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from types import TracebackType

from autoconf_launch.core import ResultsFolderError

from .paths import CHOSEN_BY

HEARTBEAT_S = 10.0
STALE_AFTER_S = 60.0


class Lease:
    """Held from ``with`` to its end.

    Raises:
        ResultsFolderError: on entering, where another controller holds the folder.
    """

    def __init__(self, path: Path, chosen_by: str = CHOSEN_BY) -> None:
        """Take nothing yet.

        Args:
            path: of the file.
            chosen_by: words that another folder is chosen by.
        """
        self._path, self._chosen_by = path, chosen_by
        self._descriptor: int | None = None
        self._touched_s = 0.0

    def __enter__(self) -> Lease:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _holder(descriptor)
            os.close(descriptor)
            raise self._held_by(holder) from error
        holder = _holder(descriptor)
        if _lives_elsewhere(holder, descriptor):
            os.close(descriptor)
            raise self._held_by(holder)
        content = {"host": socket.gethostname(), "pid": os.getpid(), "start_unix_s": time.time()}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(content).encode(), 0)
        self._descriptor = descriptor
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._descriptor is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = None

    def heartbeat(self) -> None:
        """Show that the holder lives; cheap enough to call at every wake-up."""
        now_s = time.monotonic()
        if self._descriptor is not None and now_s - self._touched_s > HEARTBEAT_S:
            os.utime(self._descriptor)
            self._touched_s = now_s

    def _held_by(self, holder: dict[str, object]) -> ResultsFolderError:
        who = f"process {holder.get('pid', '?')} on {holder.get('host', '?')}"
        return ResultsFolderError(
            f"results folder {self._path.parent} is in use by {who}; wait until it ends, "
            f"or choose another folder with {self._chosen_by}."
        )


def _holder(descriptor: int) -> dict[str, object]:
    try:
        content = json.loads(os.pread(descriptor, 4096, 0) or b"{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def _lives_elsewhere(holder: dict[str, object], descriptor: int) -> bool:
    if not holder or holder.get("host") == socket.gethostname():
        return False
    return time.time() - os.fstat(descriptor).st_mtime < STALE_AFTER_S
