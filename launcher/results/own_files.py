"""Files of a results folder, where somebody else may have put something.

A folder that is held was opened once: its files are found from its descriptor, no symbolic link
on the way, wherever its path leads by then.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from autoconf_launch.core import ResultsFolderError

_NOT_REGULAR = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})
"""How opening fails at a link, at a pipe or socket, at a folder."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS_UMASK = 0o022
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MOST_BYTES = 1 << 30
_held: dict[str, int] = {}
"""Descriptors of the folders that are held, by their paths."""


@contextmanager
def holding(folder: Path) -> Iterator[None]:
    """Find the folder's files from its descriptor until the end."""
    before = _held.get(str(folder))
    descriptor = _held[str(folder)] = os.open(folder, _FOLDER)
    try:
        yield
    finally:
        if before is None:
            del _held[str(folder)]
        else:
            _held[str(folder)] = before
        os.close(descriptor)


@contextmanager
def no_writing_by_others() -> Iterator[None]:
    """Under the user's umask, and without permission for others to write."""
    before = os.umask(OTHERS_UMASK)
    os.umask(before | OTHERS_UMASK)
    try:
        yield
    finally:
        os.umask(before)


def require_held() -> None:
    """Refuse to go on where the path of a held folder leads elsewhere by now.

    Raises:
        ResultsFolderError: one was moved, exchanged or removed.
    """
    for folder, descriptor in _held.items():
        if _is_elsewhere(folder, descriptor):
            raise ResultsFolderError(
                f"{folder} was moved, exchanged or removed while it was used, by the script or "
                "somebody else; find out by what, then start again."
            )


def is_named(path: Path, descriptor: int) -> bool:
    """Whether the path still leads to the open file."""
    try:
        return os.path.samestat(_stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _is_elsewhere(folder: str, descriptor: int) -> bool:
    try:
        return not os.path.samestat(Path(folder).stat(), os.fstat(descriptor))
    except (FileNotFoundError, NotADirectoryError):
        return True


@contextmanager
def _place(path: str | os.PathLike[str]) -> Iterator[tuple[str, int | None]]:
    """A name, and the descriptor of the folder that it is to be looked up in; None: anywhere."""
    text = os.fspath(path)
    above = max((f for f in _held if f"{text}/".startswith(f"{f}/")), key=len, default=None)
    if above is None:
        yield text, None
        return
    *folders, name = Path(text).relative_to(above).parts or (".",)
    with ExitStack() as stack:
        parent, where = _held[above], Path(above)
        for folder in folders:
            where /= folder
            parent = _open_folder(where, folder, parent)
            stack.callback(os.close, parent)
        yield name, parent


def _open_folder(path: Path, name: str, parent: int | None) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise _not_regular(path) from error
        raise OSError(error.errno, error.strerror, str(path)) from error


def open_file(path: str | os.PathLike[str], flags: int, mode: int = 0o644) -> int:
    """Descriptor of a regular file to which no symbolic link leads; an ``opener`` of ``open``.

    Raises:
        ResultsFolderError: it is something else.
        OSError: it cannot be opened.
    """
    own = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with _place(path) as (name, folder):
            descriptor = os.open(name, flags | own, mode, dir_fd=folder)
    except OSError as error:
        if error.errno in _NOT_REGULAR:
            raise _not_regular(Path(path)) from error
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error
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


def replace_file(new: Path, path: Path) -> None:
    """Give a file of the same folder this name, in place of what has it."""
    with _place(path) as (name, folder):
        source = str(new) if folder is None else new.name
        os.replace(source, name, src_dir_fd=folder, dst_dir_fd=folder)


def remove_file(path: Path) -> None:
    """Remove a file, or the link in its place, if there is one."""
    with suppress(FileNotFoundError), _place(path) as (name, folder):
        os.unlink(name, dir_fd=folder)


def make_folder(path: Path) -> None:
    """Make a folder, unless it is there.

    Raises:
        ResultsFolderError: something else has its name, or the one above it was exchanged.
    """
    require_held()
    require_plain(path)
    with _place(path) as (name, parent):
        if parent is None:
            path.mkdir(parents=True, exist_ok=True)
        else:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=parent)


def plain_below(folder: Path, skipped: frozenset[str]) -> Iterator[Path]:
    """The folder and all below it but ``skipped`` names; named pipes of a killed trial go.

    Raises:
        ResultsFolderError: something is neither a regular file nor a folder.
    """
    require_plain(folder)
    yield folder
    for entry in _entries(folder):
        mode = _stat(entry).st_mode
        if stat.S_ISFIFO(mode):
            remove_file(entry)
        elif entry.name in skipped and stat.S_ISDIR(mode):
            continue
        else:
            yield from plain_below(entry, skipped)


def _entries(folder: Path) -> list[Path]:
    """What is in a folder; nothing in a file."""
    if not stat.S_ISDIR(_stat(folder).st_mode):
        return []
    with _place(folder) as (name, parent):
        descriptor = _open_folder(folder, name, parent)
    try:
        return sorted(folder / entry.name for entry in os.scandir(descriptor))
    finally:
        os.close(descriptor)


def _stat(path: Path) -> os.stat_result:
    """What is there itself, be it a link; a held folder is what was opened."""
    with _place(path) as (name, folder):
        return os.stat(name, dir_fd=folder, follow_symlinks=False)


def require_plain(path: Path) -> None:
    """Refuse what is there and is neither a regular file nor a folder.

    Raises:
        ResultsFolderError: it is such.
    """
    try:
        mode = _stat(path).st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise _not_regular(path)


def why_not_ours(path: Path) -> str | None:
    """What lets others decide what is in the file or folder; None where nothing does."""
    about = _stat(path)
    about = path.stat() if stat.S_ISLNK(about.st_mode) else about  # the way to a folder of ours
    if about.st_uid != os.geteuid():
        return f"{path} belongs to user {about.st_uid}"
    return f"{path} can be written by other users" if about.st_mode & _OTHERS_WRITE else None


def _not_regular(path: Path) -> ResultsFolderError:
    what = "a symbolic link" if path.is_symlink() else "not a regular file"
    return ResultsFolderError(
        f"{path} is {what}, and a tune uses regular files alone; remove it, or choose another "
        "results folder."
    )
