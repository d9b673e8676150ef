"""Files that must be this user's: of a results folder, and the step times of earlier tunes.

Other users may have placed links or pipes in a folder. Step times are JSON lines in
``measurements.jsonl`` in the user's data folder, readable only by them: a digest of model and
hardware, a candidate, its step time, and a random word that the times of one tune share.
Unreadable lines are skipped; a file that others may write is not read.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from autoconf_launch.autotuner.strategies import PastTime
from autoconf_launch.core import ClusterSpec, ModelSpec, ResultsFolderError, decode, encode

_NOT_REGULAR = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})
"""Errors of opening a link, a pipe or socket, a folder."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
OTHERS_UMASK = 0o022
_MOST_BYTES = 1 << 30
_FILE = "measurements.jsonl"
_MOST = 64
_MOST_PAST_BYTES = 4 << 20
"""Read from the end of the file."""
_LONGEST_S = 1e9


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
    """True if the path still leads to the open file."""
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
    """The reason why others can decide the content of the file or folder; None if they cannot."""
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


def past_file() -> Path | None:
    """The file; None if the environment names no folder of the user."""
    data = Path(os.environ.get("XDG_DATA_HOME", ""))
    home = Path(os.environ.get("HOME", ""))
    folder = data if data.is_absolute() else home / ".local" / "share"
    return folder / "autoconf-launch" / _FILE if folder.is_absolute() else None


def key_of(spec: ModelSpec, cluster: ClusterSpec, dialect: str) -> str:
    """Digest of the parts that must be equal: model shapes, devices, and dialect."""
    blocks = [
        (b.count, b.parameters, b.frozen_parameters, b.activation_bytes) for b in spec.blocks
    ]
    shape = (blocks, spec.parameter_bytes_each, spec.hidden_size, spec.layers)
    devices = [device.name for device in cluster.devices]
    parts = (*shape, spec.sequence_length, spec.vocabulary_size, devices, dialect)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def read_past(key: str) -> tuple[PastTime, ...]:
    """The latest times of this key, the oldest first; none if the file cannot be trusted."""
    path = past_file()
    if path is None:
        return ()
    try:
        data = _own_bytes(path)
    except (OSError, ResultsFolderError):
        return ()
    found = (_of_line(line, key) for line in data.splitlines())
    return tuple(one for one in found if one is not None)[-_MOST:]


def remember(key: str, times: Sequence[PastTime]) -> None:
    """Append the times of one tune; a folder that cannot be written is ignored."""
    path, study = past_file(), secrets.token_hex(8)
    plain = [
        replace(one, study=study)
        for one in times
        if (not any(isinstance(value, str) for _, value in one.candidate.extras))
    ]
    lines = [json.dumps({"key": key, "time": encode(one)}) for one in plain]
    if path is None or not lines:
        return
    text = "".join(f"{line}\n" for line in lines)
    with suppress(OSError, ResultsFolderError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(path, "a", opener=open_private) as file:
            file.write(text)


def _own_bytes(path: Path) -> bytes:
    with open(path, "rb", opener=open_file) as file:
        if why_not_ours(path):
            return b""
        file.seek(max(0, os.fstat(file.fileno()).st_size - _MOST_PAST_BYTES))
        return file.read(_MOST_PAST_BYTES)


def _of_line(line: bytes, key: str) -> PastTime | None:
    try:
        read = json.loads(line)
        if read["key"] != key:
            return None
        one = decode(PastTime, read["time"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return one if 0.0 < one.step_s < _LONGEST_S else None
