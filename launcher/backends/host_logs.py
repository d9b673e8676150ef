"""The two logs of a launch over hosts, which the launcher itself writes."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import IO

from ..launch import STDERR_LOG, STDOUT_LOG, LogStart, trial_logs
from ..results import open_private
from .local import LOG_LIMIT_BYTES

_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT


class HostLogs:
    """What ranks of all hosts print, in the trial's folder or, without one, on our own streams.

    A launch keeps as much of each log as one on this machine does.
    """

    def __init__(self, folder: str | None) -> None:
        self._files: tuple[IO[bytes], ...] = ()
        if folder is not None:
            paths = (Path(folder, name) for name in (STDOUT_LOG, STDERR_LOG))
            self._files = tuple(os.fdopen(open_private(p, _APPEND), "ab") for p in paths)
        half = LOG_LIMIT_BYTES // 2
        self._limited = [trial_logs.LimitedLog(file.fileno(), half) for file in self._files]
        sizes = (os.fstat(file.fileno()).st_size for file in self._files)
        self.start = LogStart(**dict(zip(("stdout_bytes", "stderr_bytes"), sizes, strict=False)))
        """Where this launch's part of the logs begins."""

    def write(self, number: int, data: bytes) -> None:
        """Add what came from standard output (1) or error (2)."""
        index = 1 if number == 2 else 0
        if self._files:
            self._files[index].write(data)
            self._files[index].flush()
            self._limited[index].free_middle()
            return
        stream = (sys.stdout, sys.stderr)[index]
        stream.buffer.write(data)
        stream.buffer.flush()

    def close(self) -> None:
        """Say what is omitted, where the logs are longer than that."""
        for log, file in zip(self._limited, self._files, strict=True):
            log.cut_middle()
            with contextlib.suppress(OSError):
                file.close()
        self._files, self._limited = (), []
