"""Read a file that the user names."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MOST_BYTES = 16 << 20


def is_file(word: str | Path) -> bool:
    """True if a word names a file; it may be too long for a name, or no name at all."""
    try:
        return Path(word).is_file()
    except (OSError, ValueError):
        return False


def is_there(word: str) -> bool:
    """True if a word names a file, a folder or a socket; it may be too long for a name."""
    try:
        return Path(word).exists()
    except (OSError, ValueError):
        return False


def input_text(path: Path, encoding: str = "utf-8") -> str:
    """Text of a regular file; nothing waits for a pipe or reads a device without end.

    Raises:
        OSError: it cannot be read, is something else, or is too large.
        UnicodeDecodeError: it is not text.
    """
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "its path has a NUL character", str(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise OSError(errno.EFBIG, f"it is larger than {MOST_BYTES >> 20} MiB", str(path))
    text = data.decode(encoding).removeprefix("\ufeff")  # a byte-order mark
    return text.replace("\r\n", "\n").replace("\r", "\n")
