"""Files of a results folder, in which other users may have placed links or pipes."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autoconf_launch.core import ResultsFolderError

_NOT_REGULAR = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})
"""Errors of opening a link, a pipe or socket, a folder."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS_UMASK = 0o022
_MOST_BYTES = 1 << 30


@contextmanager
def no_writing_by_others() -> Iterator[None]:
    """Create files under the user's umask, and without write permission for others."""
    before = os.umask(OTHERS_UMASK)
    os.umask(before | OTHERS_UMASK)
    try:
        yield
    finally:
        os.umask(before)


def is_named(path: Path, descriptor: int) -> bool:
    """Whether the path still leads to the open file."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except (FileNotFoundError, NotADirectoryError):
        return False


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
    """Open a file like :func:`open_file`, readable only by its owner, even if it is older."""
    descriptor = open_file(path, flags, 0o600)
    os.fchmod(descriptor, 0o600)
    return descriptor


def read_file(path: Path) -> bytes:
    """All bytes of a regular file.

    Raises:
        ResultsFolderError: it is something else, or larger than any of ours.
        OSError: it cannot be read.
    """
    with open(path, "rb", opener=open_file) as file:
        if os.fstat(file.fileno()).st_size > _MOST_BYTES:
            raise ResultsFolderError(
                f"{path} is larger than {_MOST_BYTES >> 20} MiB, as no file of a tune is; remove "
                "it, or choose another results folder."
            )
        return file.read(_MOST_BYTES)


def make_folder(path: Path) -> None:
    """Make a folder, unless it is there.

    Raises:
        ResultsFolderError: something else has its name.
    """
    require_plain(path)
    path.mkdir(parents=True, exist_ok=True)


def plain_below(folder: Path, skipped: frozenset[str]) -> Iterator[Path]:
    """The folder and all below it except ``skipped`` names; named pipes of killed trials go.

    Raises:
        ResultsFolderError: an entry is neither a regular file nor a folder.
    """
    require_plain(folder)
    yield folder
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        mode = entry.lstat().st_mode
        if stat.S_ISFIFO(mode):
            entry.unlink(missing_ok=True)
        elif entry.name in skipped and stat.S_ISDIR(mode):
            continue
        else:
            yield from plain_below(entry, skipped)


def require_plain(path: Path) -> None:
    """Refuse an entry that is neither a regular file nor a folder.

    Raises:
        ResultsFolderError: it is another kind.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise _not_regular(path)


def why_not_ours(path: Path) -> str | None:
    """Why others can decide the content of the file or folder; None if they cannot."""
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
