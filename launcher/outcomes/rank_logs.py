"""A log file for each rank, as ``--enable_each_rank_log`` asks. Not: the logs of a trial."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from autoconf_launch.core import ResultsFolderError


def rank_log_paths(folder: str, ranks: Iterable[int]) -> tuple[str, ...]:
    """Absolute paths ``<now>_rank<R>.log`` in the folder, which is made where it is missing.

    Raises:
        ResultsFolderError: the folder cannot be made.
    """
    path = Path(folder).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsFolderError(
            f"Folder {folder} for the ranks' logs cannot be made: {error.strerror}; "
            "give another one with --enable_each_rank_log."
        ) from error
    now = time.strftime("%Y%m%d%H%M%S")
    return tuple(str(path / f"{now}_rank{rank}.log") for rank in ranks)
