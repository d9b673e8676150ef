"""Scripts that are started once, as by ``python train.py``.

Such a script starts its ranks itself, or has one. Ranks get variables as from torchrun; a script
that misreads these is tried again without them.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

from autoconf_launch.autotuner.space import Measurement, Record, Trial
from autoconf_launch.core import (
    ClusterSpec,
    Failure,
    FailureKind,
    NothingFeasibleError,
    RankTask,
    ResultsFolderError,
    plural,
)

from ..events import Listener, Note
from ..flags import launch_flags, typed_flags
from ..launch import started_ranks
from ..report import shown_name
from ..request import LaunchRequest
from ..results import ResultsPaths, read_file, shell_command
from ..script import ScriptSource, script_path
from .job import TuningJob
from .profile_run import Site, wait_for_end
from .trial_io import TrialFiles, clear_saved, repeated_steps, write_json

_T = TypeVar("_T")
_MOST_STARTS = 3
_OF_RANKS = ("RANK", "WORLD_SIZE", "MASTER_", "distributed", "env://", "torchrun")
"""Words of a source that reads its rank."""
_WITHOUT_RANKS = ("torch", "torchvision", "torchaudio", "torchtext", "numpy", "PIL", "tqdm")
"""Packages that do not read the rank by themselves."""
_USAGE_ERROR = 2
_CHECK_SUFFIX = "_as_python"
"""Suffix of the launch that shows whether a script runs as python starts it."""
_FILE = "start.json"


class OtherStartError(Exception):
    """A launch shows that the script must be started in another way.

    Attributes:
        request: the new launch.
        why: a sentence for the user.
        first: the error to report if this fails, too.
        keeps_profile: True if the profile run was already started in this way, so that it counts.
    """

    keeps_profile = False

    def __init__(
        self, request: LaunchRequest, why: str, first: NothingFeasibleError | None = None
    ) -> None:
        super().__init__(why)
        self.request, self.why, self.first = request, why, first


def job_crash(job: TuningJob, error: NothingFeasibleError, failure: Failure) -> Exception:
    """Another start if one rank crashed and may read a launch's variables; else the error.

    If several ranks were started, the error names the line that starts the script once.
    """
    request = job.request
    settled = request.alone or not job.dialect.is_external or request.kind == "program"
    usage = failure.detail.startswith(f"rank 0 ended with exit code {_USAGE_ERROR} ")
    if settled or usage or failure.kind is not FailureKind.CRASHED:
        return error
    if not _may_read_variables(request, job.source):
        return error
    line = plain_line(request)
    if len(job.cluster.devices) != 1:
        text = f"{error} If the script starts its ranks itself, use: {line}"
        return NothingFeasibleError(text, error.log_tail)
    why = (
        f"{error} It is tried once more without the variables of a distributed launch (RANK, "
        f"WORLD_SIZE, …), as python starts it. To begin with that: {line}"
    )
    return OtherStartError(replace(request, alone=True), why, first=error)


class Searched(Protocol):
    """The records of a search that has ended."""

    @property
    def records(self) -> tuple[Record, ...]: ...

    @property
    def repeats(self) -> tuple[Record, ...]: ...


def late_crash(study: Searched, later: Sequence[Record]) -> Record | None:
    """A crash in a configuration whose trial ran, or of all except the user's; else None.

    The last launch of each configuration counts: an earlier one may have failed for its
    evaluation, which a verification run moves. ``later`` are launches after the search, in order.
    """
    last = {record.trial.candidate: record for record in (*study.repeats, *later)}
    others = [record for record in study.records if record.trial.number]
    if any(record.measurement for record in others):
        others = []
    for record in (*last.values(), *others):
        if record.failure is not None and record.failure.kind is FailureKind.CRASHED:
            return record
    return None


def check_start(job: TuningJob, crash: Record, site: Site) -> None:
    """Launch a crashed trial as python starts it, if a launch's variables may be the cause.

    Raises:
        OtherStartError: it runs so.
    """
    failure = crash.failure
    assert failure is not None
    text = f"{shown_name(crash.trial)} crashed: {failure.detail.rstrip('.')}."
    first = NothingFeasibleError(text, failure.log_tail)
    other = job_crash(job, first, failure)
    if not isinstance(other, OtherStartError):
        return
    if job.budget.left_s <= 0.0:
        use = f"If it runs as python starts it, use: {plain_line(job.request)}"
        job.listener(Note(text=f"{text} {use}", warning=True))
        return
    job.listener(Note(text=other.why, warning=True))
    files = TrialFiles.of_job(job.with_start(other.request))
    plan = files.plan(_checking_trial(crash.trial, job), uuid.uuid4().hex)
    launched = site.backend.submit(site.pool.first_share.place(plan, alone=True))
    end = wait_for_end(site, launched, job.limits)
    clear_saved(Path(plan.folder or "."))
    if isinstance(end.outcome, Measurement):
        why = "It runs as python starts it, so that all is measured again in this way."
        raise OtherStartError(other.request, why, first=first)
    kind = end.outcome.failure.kind if end.outcome else FailureKind.NO_STEPS
    text = f"Whether it runs as python starts it is not known: its launch ended with {kind.value}."
    if kind is FailureKind.CRASHED:
        text = "It crashes as python starts it, too."
    job.listener(Note(text=text, warning=True))


def _checking_trial(trial: Trial, job: TuningJob) -> Trial:
    timed = job.user.settings.start_profile_step - 1 + repeated_steps(trial)
    steps = None if trial.is_soak else max(job.effort.most_steps, timed)
    name = f"{trial.name}{_CHECK_SUFFIX}"
    return trial.as_soak(name, attempt=2, steps=steps)


def plain_line(request: LaunchRequest) -> str:
    """``autoconf-launch tune … -- python train.py …``: the user's line, which starts it once."""
    once = replace(request, alone=True, processes=None)
    words = ("autoconf-launch", "tune", *typed_flags(once), *launch_flags(once), request.script)
    return shell_command((*words, *request.script_args))


def _may_read_variables(request: LaunchRequest, source: ScriptSource) -> bool:
    """True if a script, or a module that it imports, may read its rank."""
    if not source.text:
        return True
    imported = {name for facts in source.all_facts for name in facts.imported}
    own = _own_names(script_path(request).parent)
    known = {*sys.stdlib_module_names, *_WITHOUT_RANKS, *own}
    return any(word in text for text in source.texts for word in _OF_RANKS) or any(
        name.lstrip(".").partition(".")[0] not in known for name in imported
    )


def _own_names(folder: Path) -> set[str]:
    found = (*folder.glob("*.py"), *folder.glob("*/__init__.py"))
    return {path.stem if path.parent == folder else path.parent.name for path in found}


def check_ranks(request: LaunchRequest, cluster: ClusterSpec, task: RankTask | None) -> None:
    """Compare the ranks that reported with the ranks that were started.

    Raises:
        OtherStartError: the script starts others by itself; without GPUs it gets as many slots.
    """
    if task is None or len(cluster.nodes) > 1:
        return
    found, counted = started_ranks(task), request.started or len(cluster.devices)
    if found > counted or (request.alone and found != counted):
        slots = request.processes if cluster.devices[0].visible_as else found
        them = "these" if found > 1 else "it"
        starts = f"The script starts {plural(found, 'rank')} by itself"
        why = f"{starts}; tuning for {them} instead of {counted}."
        raise OtherStartError(replace(request, alone=True, processes=slots, started=found), why)


def first_that_starts(
    request: LaunchRequest,
    attempt: Callable[[LaunchRequest], _T],
    paths: ResultsPaths,
    listener: Listener,
) -> _T:
    """Result of an attempt, which is repeated in another start if a launch asks for one.

    Raises:
        NothingFeasibleError: the script fails; the first error leads if another start fails, too.
    """
    first: NothingFeasibleError | None = None
    for _ in range(_MOST_STARTS):
        try:
            return attempt(request)
        except OtherStartError as other:
            first, request = first or other.first, other.request
            remember_start(request, paths)
            listener(Note(text=other.why, warning=True))
        except NothingFeasibleError as error:
            raise _error_of_both(first, error) if first is not None else error from None
    raise NothingFeasibleError("The script starts a different number of ranks each time.")


def _error_of_both(
    first: NothingFeasibleError, second: NothingFeasibleError
) -> NothingFeasibleError:
    how = f"As python starts it, without RANK, WORLD_SIZE, …: {second}"
    if first.log_tail and first.log_tail[-1:] == second.log_tail[-1:]:
        how = "It crashes alike as python starts it, without RANK, WORLD_SIZE, …; fix it first."
    return NothingFeasibleError(f"{first} {how}", first.log_tail)


def remember_start(request: LaunchRequest, paths: ResultsPaths) -> None:
    """Record how the script starts, for a tune that continues with these results."""
    processes = request.processes if isinstance(request.processes, int) else None
    known = {"alone": request.alone, "processes": processes, "started": request.started}
    write_json(paths.profile / _FILE, known)


def recall_start(request: LaunchRequest, paths: ResultsPaths) -> LaunchRequest:
    """The request as the previous tune started it; unchanged if that recorded none."""
    try:
        known = json.loads(read_file(paths.profile / _FILE))
        processes = known["processes"] or request.processes
        return replace(
            request, alone=known["alone"], processes=processes, started=known["started"]
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ResultsFolderError):
        return request
