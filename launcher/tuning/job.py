"""The inputs that are read before anything runs: script, configuration, machine."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.autotuner.measurement import EFFORTS, NORMAL, Effort
from autoconf_launch.autotuner.search import SearchLimits
from autoconf_launch.autotuner.space import AutotuningSettings, build_space
from autoconf_launch.autotuner.strategies import load_strategy
from autoconf_launch.core import (
    CONTEXT_BYTES,
    GIB,
    ClusterSpec,
    ConfigError,
    ModelSpec,
    Workload,
)
from autoconf_launch.tuning_spaces import with_network_of

from ..dialects import choose_dialect
from ..estimates import choose_cluster
from ..events import Listener, Note
from ..hosts import find_cluster
from ..launch import read_script
from ..machine import is_cpu
from ..request import LaunchRequest
from ..results import CONFIG, DS_CONFIG, ResultsPaths
from ..script import ScriptSource
from ..spelling import Dialect, UserSettings, path_argument
from ..trackers import check_tracking
from .running import TimeBudget, TrialLimits, read_time_budget


def search_limits(
    request: LaunchRequest, budget: TimeBudget, effort: Effort = NORMAL
) -> SearchLimits:
    """The user's limits on a search that starts now, in seconds since the command's start."""
    spent_s, is_timed = budget.spent_s, math.isfinite(budget.whole_s)
    least_gain = effort.good_enough if request.good_enough is None else request.good_enough
    return SearchLimits(
        seconds=spent_s + effort.search_share * (budget.whole_s - spent_s) if is_timed else None,
        whole_s=budget.whole_s if is_timed else None,
        ending_s=budget.ending_s if is_timed else 0.0,
        trials=request.limits.trials,
        least_gain=least_gain or None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningJob:
    """Everything that was read before anything runs, and the model once it is known.

    Attributes:
        said: sentences on the space that the listener has already received.
        spec: the model, by the user's settings or the profile run; None: not known.
        profile_s: wall time of the profile run, in an earlier session, too; None: unknown.
    """

    request: LaunchRequest
    source: ScriptSource
    dialect: Dialect
    cluster: ClusterSpec
    user: UserSettings
    paths: ResultsPaths
    listener: Listener
    budget: TimeBudget
    said: tuple[str, ...] = ()
    spec: ModelSpec | None = None
    profile_s: float | None = None

    @property
    def effort(self) -> Effort:
        return EFFORTS[self.user.settings.effort]

    @property
    def workload(self) -> Workload:
        """The user's training of the model."""
        return replace(self.user.workload, model=self.spec)

    @property
    def limits(self) -> TrialLimits:
        """Limits at which any launch of a tune is ended."""
        request = self.request
        return TrialLimits(
            timeout_s=request.trial_timeout_s, stall_s=request.stall_timeout_s, budget=self.budget
        )

    def with_source(self, source: ScriptSource) -> TuningJob:
        """The job with the settings of a source with more facts.

        Raises:
            ConfigError: they are invalid with these facts.
        """
        with _naming_file(source):
            user = self.dialect.read(source, world_size=_ranks(self.request, self.cluster))
        return replace(self, source=source, user=user)

    def with_start(self, request: LaunchRequest) -> TuningJob:
        """The job with another start of the script, without the findings of its earlier start."""
        if request == self.request:
            return self
        source = replace(self.source, applied=None, keeps_batch=False)
        request = as_script_starts(request, self.dialect, source)
        cluster = _find_cluster(request, lambda event: None)
        budget = read_time_budget(request, cluster, self.budget.began_s)
        return replace(self, request=request, cluster=cluster, budget=budget).with_source(source)


def as_script_starts(
    request: LaunchRequest, dialect: Dialect, source: ScriptSource
) -> LaunchRequest:
    """The request with the start that this script needs.

    An external script that starts its ranks itself is started once.
    """
    facts = source.facts
    if not dialect.is_external or request.kind == "program":
        return request
    if facts.starts_ranks:
        return replace(request, alone=True)
    if request.alone and request.processes is None and not facts.spreads:
        return replace(request, processes=1)
    return request


def read_job(
    request: LaunchRequest, listener: Listener, began_s: float | None = None
) -> TuningJob:
    """Read the command line, the configuration and the machine; warn of oddities.

    ``began_s`` is the command's start on ``time.monotonic``; None: now.

    Raises:
        ConfigError: one of them is invalid.
    """
    request, source = read_script(request)
    choice = choose_dialect(source)
    dialect = choice.dialect
    request = as_script_starts(request, dialect, source)
    cluster = _find_cluster(request, listener)
    with _naming_file(source):
        user = dialect.read(source, world_size=_ranks(request, cluster))
    by_flag = "tuner_type" in dict(source.words.overrides)
    with nullcontext() if by_flag else _naming_file(source):
        load_strategy(user.settings.tuner_type)  # a wrong name is said before anything runs
    with _naming_file(source):
        space = build_space(user.baseline, user.choices, user.batch_rule, user.settings)
    _check_memory_limit(request, cluster)
    budget = read_time_budget(request, cluster, began_s)
    check_tracking(request.tracking)
    said = () if user.awaits_profile else space.notes
    for text in (*said, *user.notes):
        listener(Note(text=text))
    for warning in (*choice.notes, *user.warnings):
        listener(Note(text=warning, warning=True))
    paths = _paths(user.settings, config_stem(dialect, source))
    return TuningJob(
        request=request,
        source=source,
        dialect=dialect,
        cluster=cluster,
        user=user,
        paths=replace(paths, trusts_others=request.trust_results),
        listener=listener,
        budget=budget,
        said=said,
    )


def _find_cluster(request: LaunchRequest, listener: Listener) -> ClusterSpec:
    cluster = find_cluster(request, listener)
    named = choose_cluster(request.cluster) if request.cluster else None
    return with_network_of(named, cluster) if named else cluster


def _check_memory_limit(request: LaunchRequest, cluster: ClusterSpec) -> None:
    limit_bytes = request.memory_limit_bytes
    if limit_bytes is None or is_cpu(cluster) or limit_bytes > CONTEXT_BYTES:
        return
    raise ConfigError(
        f"--memory_limit is {limit_bytes / GIB:.2f} GiB, but the CUDA context of a process "
        f"takes up to {CONTEXT_BYTES / GIB:.2f} GiB of a GPU; allow more than that."
    )


@contextmanager
def _naming_file(source: ScriptSource) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        position, text = source.config_argument, str(error)
        if position is None or text.startswith("-"):
            raise
        path = path_argument(source.script_args, position)
        if Path(path).name in text:
            raise
        raise ConfigError(f"{path}: {text}") from error


def _ranks(request: LaunchRequest, cluster: ClusterSpec) -> int:
    return request.started or len(cluster.devices)


def config_stem(dialect: Dialect, source: ScriptSource) -> str:
    """Name of the file with a trial's configuration, without its suffix.

    It is ``ds_config`` if a rank reads it, and ``config`` if it only shows the values that were
    set.
    """
    is_read = dialect.reads_document or source.config_argument is not None
    return DS_CONFIG if is_read else CONFIG


def _paths(settings: AutotuningSettings, stem: str) -> ResultsPaths:
    """If only the results folder is named, all that a tune writes goes there."""
    results = Path.cwd() / (settings.results_dir or "autotuning_results")
    beside = results if settings.results_dir else Path.cwd()
    return ResultsPaths(
        results=results,
        exps=Path.cwd() / settings.exps_dir if settings.exps_dir else beside / "autotuning_exps",
        config_stem=stem,
    )
