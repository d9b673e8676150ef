"""Says which errors of the operating system are a file system's, and what to do. Not: exit codes.

A missing file, a wrong kind of file, too many open ones and a refused process are none: where
they reach the command, they are mistakes of ours, and their traceback is wanted.
"""

from __future__ import annotations

import errno

from .results.paths import is_disk_full

_RIGHTS = frozenset({errno.EACCES, errno.EPERM})
"""Of a file where one is named, otherwise perhaps of a process."""
_READ_ONLY = errno.EROFS
_GONE = frozenset(
    {
        errno.EIO,
        errno.ENODEV,
        errno.ENXIO,
        errno.ENOTCONN,
        errno.EREMOTEIO,
        errno.ESHUTDOWN,
        errno.ESTALE,
        errno.ETIMEDOUT,
        errno.EUCLEAN,
    }
)
"""Of a disk or a file server that does not answer any more; the name of a file shows it is not a
socket."""


def is_unwritable(error: OSError) -> bool:
    """Whether a file may not be used, by its rights or those of its file system."""
    named = error.filename is not None
    return error.errno == _READ_ONLY or (named and error.errno in _RIGHTS)


def is_gone(error: OSError) -> bool:
    """Whether a disk or a file server fails."""
    sure = error.errno in (errno.EIO, errno.ESTALE)
    return sure or (error.filename is not None and error.errno in _GONE)


def sentence_on(error: OSError) -> str | None:
    """What happened, where, and what to do; None where it is no matter of a file system."""
    if is_disk_full(error):
        where = f" ({_name(error)})" if error.filename else ""
        return f"the disk is full{where}; make room, then run it again."
    if is_unwritable(error):
        return (
            f"{_name(error)} may not be used ({error.strerror}); see to its rights and "
            "whether its file system can be written, then run it again."
        )
    if is_gone(error):
        return (
            f"{_name(error)} cannot be reached any more ({error.strerror}); see to its "
            "disk or file server, then run it again."
        )
    return None


def _name(error: OSError) -> str:
    name = error.filename or "a file"
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
