"""The two logs of a trial: secrets are removed on the way to them, and their length is limited.

The agent loads this file by its path, as its Python knows no package.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autoconf_launch.core import SecretFilter

# ruff: noqa: PTH123

PUNCH_HOLE = 3  # linux/falloc.h: FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
READ_BYTES, READS_AT_ONCE = 1 << 16, 16  # a rank may print faster than we read


class FilteredLog:
    """A pipe from the ranks to a log, and the filter in between."""

    def __init__(self, log: int, secrets: SecretFilter) -> None:
        self.read, self.write = os.pipe()
        os.set_blocking(self.read, False)
        self.number, self._secrets = log, secrets

    def forward(self) -> bool:
        """Forward the ranks' output; returns whether there may be more."""
        for _ in range(READS_AT_ONCE):
            try:
                data = os.read(self.read, READ_BYTES)
            except BlockingIOError:
                return False
            write_all(self.number, self._secrets.feed(data))
        return True

    def end(self) -> None:
        while self.forward():
            pass
        write_all(self.number, self._secrets.end())


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, unless the disk is full or nothing listens."""
    with contextlib.suppress(OSError):
        while data:
            data = data[os.write(descriptor, data) :]


class LimitedLog:
    """A log, of which a launch keeps the first and the last ``half`` bytes."""

    def __init__(self, descriptor: int, half: int) -> None:
        self._descriptor, self._half = descriptor, half
        self._start = os.fstat(descriptor).st_size

    def free_middle(self) -> None:
        """Return the room of the omitted part to the disk; writers go on at the end."""
        first, end = self._start + self._half, self._end()
        if (size := end - self._half - first) > 0 and sys.platform == "linux":
            libc = ctypes.CDLL(None)
            offset, length = ctypes.c_int64(first), ctypes.c_int64(size)
            libc.fallocate(self._descriptor, PUNCH_HOLE, offset, length)  # no matter if it fails

    def cut_middle(self) -> None:
        """Note the omission in its place, once no process writes any more."""
        first, end = self._start + self._half, self._end()
        if (size := end - self._half - first) <= 0:
            return
        with contextlib.suppress(OSError):
            with open(f"/proc/self/fd/{self._descriptor}", "rb") as file:
                file.seek(end - self._half)
                tail = file.read()
            os.ftruncate(self._descriptor, first)
            said = f"\n[autoconf-launch: {size} bytes are omitted here: a log has a limit]\n"
            write_all(self._descriptor, said.encode() + tail)

    def _end(self) -> int:
        return os.fstat(self._descriptor).st_size


def limited_logs(limit: int | None) -> list[LimitedLog]:
    """Standard output and error as logs of a trial; none if they are the user's."""
    return [LimitedLog(descriptor, limit // 2) for descriptor in (1, 2)] if limit else []
