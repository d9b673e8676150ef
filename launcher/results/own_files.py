"""Files of a results folder, where somebody else may have put something."""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from autoconf_launch.core import RankResult, ResultsFolderError, decode

_NOT_REGULAR = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})
"""How opening fails at a link, at a pipe or socket, at a folder."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS_UMASK = 0o022


def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o644) -> int:
    """Descriptor of a regular file to which no symbolic link leads; an ``opener`` of ``open``.

    Raises:
        ResultsFolderError: it is something else.
        OSError: it cannot be opened.
    """
    own = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(path, flags | own, mode)
    except OSError as error:
        if error.errno in _NOT_REGULAR:
            raise _not_regular(Path(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _not_regular(Path(path))
    return descriptor


def open_private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file as :func:`open_file` does; only the owner can read it, an older one too."""
    descriptor = open_file(path, flags, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def read_file(path: Path) -> bytes:
    """All bytes of a regular file.

    Raises:
        ResultsFolderError: it is something else.
        OSError: it cannot be read.
    """
    with open(path, "rb", opener=open_file) as file:
        return file.read()


def read_result(path: Path) -> RankResult | None:
    """What a rank reported; None where that is not there or cannot be read."""
    try:
        return decode(RankResult, json.loads(read_file(path)))
    except (OSError, ValueError, RecursionError, ResultsFolderError):
        return None


def plain_below(folder: Path, skipped: frozenset[str]) -> Iterator[Path]:
    """The folder and all below it but ``skipped`` names; named pipes of a killed trial go.

    Raises:
        ResultsFolderError: something is neither a regular file nor a folder.
    """
    require_plain(folder)
    yield folder
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        mode = entry.lstat().st_mode
        if stat.S_ISFIFO(mode):
            entry.unlink()
        elif entry.name in skipped and stat.S_ISDIR(mode):
            continue
        else:
            yield from plain_below(entry, skipped)


def require_plain(path: Path) -> None:
    """Refuse what is there and is neither a regular file nor a folder.

    Raises:
        ResultsFolderError: it is such.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise _not_regular(path)


def why_not_ours(path: Path) -> str | None:
    """What lets others decide what is in the file or folder; None where nothing does."""
    about = path.stat()
    if about.st_uid != os.geteuid():
        return f"{path} belongs to user {about.st_uid}"
    return f"{path} can be written by other users" if about.st_mode & _OTHERS_WRITE else None


def _not_regular(path: Path) -> ResultsFolderError:
    what = "a symbolic link" if path.is_symlink() else "not a regular file"
    return ResultsFolderError(
        f"{path} is {what}, and a tune uses regular files alone; remove it, or choose another "
        "results folder."
    )
