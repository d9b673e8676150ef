"""Scripts that are started once, as ``python train.py`` does it.

Such a script starts its ranks itself, or has one. Ours get variables as torchrun sets them; one
that takes these for another start than the user means is tried again without.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from autoconf_launch.core import (
    ClusterSpec,
    FailureKind,
    NothingFeasibleError,
    RankTask,
    ResultsFolderError,
)

from ..events import Listener, Note
from ..launch import started_ranks
from ..request import LaunchRequest
from ..results import ResultsPaths, read_file
from ..script import ScriptSource, facts_of, own_modules, script_path
from ..spelling import Dialect
from .profile_run import ProfileFailedError
from .trial_io import write_json

_T = TypeVar("_T")
_MOST_STARTS = 3
_OF_RANKS = ("RANK", "WORLD_SIZE", "MASTER_", "distributed", "env://", "torchrun")
"""Words of a source that asks for its rank."""
_WITHOUT_RANKS = ("torch", "torchvision", "torchaudio", "torchtext", "numpy", "PIL", "tqdm")
"""Packages that do not ask for it by themselves."""
_USAGE_ERROR = 2
_FILE = "start.json"


class OtherStartError(Exception):
    """The profile run shows that the script is to be started in another way.

    Attributes:
        request: what is launched instead.
        why: a sentence for the user.
        first: what is told if this fails, too.
        keeps_profile: whether that profile run was started like what follows, so that it counts.
    """

    keeps_profile = False

    def __init__(
        self, request: LaunchRequest, why: str, first: NothingFeasibleError | None = None
    ) -> None:
        super().__init__(why)
        self.request, self.why, self.first = request, why, first


def profile_failed(
    request: LaunchRequest,
    dialect: Dialect,
    source: ScriptSource,
    *,
    ranks: int,
    error: ProfileFailedError,
) -> Exception:
    """Another start where one rank crashed and may read a launch's variables; else the error."""
    settled = request.alone or not dialect.is_external or request.kind == "program"
    settled = settled or not _may_read_variables(request, source.text)
    usage = error.failure.detail.startswith(f"rank 0 ended with exit code {_USAGE_ERROR} ")
    if settled or ranks != 1 or error.failure.kind is not FailureKind.CRASHED or usage:
        return error
    why = (
        "The script failed; it is tried once more without the variables of a distributed launch "
        "(RANK, WORLD_SIZE, …), as python starts it."
    )
    return OtherStartError(replace(request, alone=True), why, first=error)


def _may_read_variables(request: LaunchRequest, text: str) -> bool:
    """Whether a script, or something that it imports, may ask for its rank."""
    if not text:
        return True
    path = script_path(request)
    sources = (text, *own_modules(path, text))
    imported = {name for source in sources for name in facts_of(source).imported}
    known = {*sys.stdlib_module_names, *_WITHOUT_RANKS, *_own_names(path.parent)}
    return any(word in source for source in sources for word in _OF_RANKS) or any(
        name.lstrip(".").partition(".")[0] not in known for name in imported
    )


def _own_names(folder: Path) -> set[str]:
    found = (*folder.glob("*.py"), *folder.glob("*/__init__.py"))
    return {path.stem if path.parent == folder else path.parent.name for path in found}


def check_ranks(request: LaunchRequest, cluster: ClusterSpec, task: RankTask | None) -> None:
    """Compare the ranks that reported with those that were started.

    Raises:
        OtherStartError: the script starts others by itself; without GPUs it gets as many slots.
    """
    if task is None or len(cluster.nodes) > 1:
        return
    found, counted = started_ranks(task), request.started or len(cluster.devices)
    if found > counted or (request.alone and found != counted):
        slots = request.processes if cluster.devices[0].visible_as else found
        why = f"The script starts {found} ranks by itself; tuning for these instead of {counted}."
        raise OtherStartError(replace(request, alone=True, processes=slots, started=found), why)


def first_that_starts(
    request: LaunchRequest,
    attempt: Callable[[LaunchRequest], _T],
    paths: ResultsPaths,
    listener: Listener,
) -> _T:
    """What an attempt gives, made again in another start where its profile run asks for one.

    Raises:
        ProfileFailedError: the script fails; the first error where another start fails, too.
    """
    first: NothingFeasibleError | None = None
    for _ in range(_MOST_STARTS):
        try:
            return attempt(request)
        except OtherStartError as other:
            first, request = first or other.first, other.request
            remember_start(request, paths)
            listener(Note(text=other.why, warning=True))
        except ProfileFailedError:
            if first is not None:
                raise first from None
            raise
    raise NothingFeasibleError("The script starts a different number of ranks each time.")


def remember_start(request: LaunchRequest, paths: ResultsPaths) -> None:
    """Record how the script starts, for a tune that goes on with these results."""
    processes = request.processes if isinstance(request.processes, int) else None
    known = {"alone": request.alone, "processes": processes, "started": request.started}
    write_json(paths.profile / _FILE, known)


def recall_start(request: LaunchRequest, paths: ResultsPaths) -> LaunchRequest:
    """The request as the tune before this one found it; the same where it found nothing."""
    try:
        known = json.loads(read_file(paths.profile / _FILE))
        processes = known["processes"] or request.processes
        return replace(
            request, alone=known["alone"], processes=processes, started=known["started"]
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ResultsFolderError):
        return request
