"""What the probes of a tune's trials have to say to the user: paths left behind, remarks.

Not: the outcomes of trials, nor any removal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from autoconf_launch.core import RankResult, decode

_MOST_SHOWN = 5


def said_by_probes(results: Path, folder: Path, own: Path | None = None) -> tuple[str, ...]:
    """Sentences on all trials in a results folder; each is said once.

    Args:
        results: has a folder for each trial.
        folder: the working directory of the trials.
        own: what we write beside the results; the script did not.
    """
    found = [_read(path) for path in sorted(results.glob("*/result*.json"))]
    read = [result for result in found if result is not None]
    paths = {path: folder / path for result in read for path in result.left_behind}
    left = {path for path, there in paths.items() if there.exists() and not _is_in(there, own)}
    notes = dict.fromkeys(note for result in read for note in result.notes)
    return (*notes, *_on_left(_outermost(left)))


def _is_in(path: Path, folder: Path | None) -> bool:
    return folder is not None and folder in (path, *path.parents)


def _read(path: Path) -> RankResult | None:
    try:
        return decode(RankResult, json.loads(path.read_bytes()))
    except (OSError, ValueError):
        return None


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Without what lies in a folder that is itself among them."""
    given = {PurePosixPath(path) for path in paths}
    outer = sorted(path for path in given if not given & set(path.parents))
    return tuple(map(str, outer))


def _on_left(paths: tuple[str, ...]) -> tuple[str, ...]:
    if not paths:
        return ()
    shown = ", ".join(paths[:_MOST_SHOWN])
    more = f" and {len(paths) - _MOST_SHOWN} more" if len(paths) > _MOST_SHOWN else ""
    return (
        f"The script's short trials wrote to {shown}{more}; what they added there is not "
        "part of any training and can be removed.",
    )
