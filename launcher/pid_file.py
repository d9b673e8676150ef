"""``--save_pid``: where other programs find the process to signal. Not: a lock."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from autoconf_launch.core import ResultsFolderError


@contextlib.contextmanager
def saved_pid(wanted: bool) -> Iterator[None]:
    """Keep ``<pid>.ds`` in the temporary folder, holding the same number, while we live.

    A signal to that process reaches every rank.

    Raises:
        ResultsFolderError: the file cannot be written.
    """
    if not wanted:
        yield
        return
    path = pid_file(os.getpid())
    try:
        path.unlink(missing_ok=True)  # of a dead process that had our number
        with path.open("x") as file:
            file.write(f"{os.getpid()}\n")
    except OSError as error:
        raise ResultsFolderError(
            f"{path} for --save_pid cannot be written: {error.strerror}; set TMPDIR to a folder "
            "that can."
        ) from error
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def pid_file(pid: int) -> Path:
    """The file of one launch, by the number of its first process."""
    return Path(tempfile.gettempdir()) / f"{pid}.ds"
