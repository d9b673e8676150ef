"""A file of the user's, opened for new bytes and whole until there are any. Not: which files.

Only what comes shows whether they are a checkpoint, which is to go elsewhere, or a log, a cache or
a memory map: whatever needs the file to be empty empties it.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any


class LateFile(io.FileIO):
    """Emptied when a byte is written, its end is asked for, or its descriptor is."""

    is_whole = False
    """Whether all that it was still stands."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, "wb", opener=_open_whole)
        self.is_whole = True

    def divert(self, place: Path) -> None:
        """Let all that comes go to ``place``; what it was stays for good."""
        self.is_whole = False
        with io.FileIO(place, "wb") as file:
            os.dup2(file.fileno(), self.fileno(), inheritable=False)

    def write(self, data: Any, /) -> int:
        """See io.FileIO."""
        self._empty()
        return super().write(data)

    def truncate(self, size: int | None = None, /) -> int:
        """See io.FileIO."""
        self._empty()
        return super().truncate(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """See io.FileIO."""
        if whence != os.SEEK_SET:
            self._empty()
        return super().seek(offset, whence)

    def fileno(self) -> int:
        """See io.FileIO."""
        self._empty()
        return super().fileno()

    def close(self) -> None:
        """See io.FileIO."""
        if not self.closed:
            self._empty()
        super().close()

    def _empty(self) -> None:
        if self.is_whole:
            self.is_whole = False
            os.ftruncate(super().fileno(), 0)


def _open_whole(path: str, flags: int) -> int:
    return os.open(path, flags & ~os.O_TRUNC, 0o666)
