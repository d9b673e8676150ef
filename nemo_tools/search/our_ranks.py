"""Runs of our own runtime, by the study and backends of ``--autotuning``."""

from __future__ import annotations

import math
import sys
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from importlib.util import find_spec
from typing import TypeAlias

from autoconf_launch.autotuner.cost import configured_workload, estimate
from autoconf_launch.autotuner.measurement import estimate_noise
from autoconf_launch.autotuner.sizing import builtin_document
from autoconf_launch.autotuner.space import AutotuningSettings, CandidateTable, Record
from autoconf_launch.core import (
    MODEL_INFO_FILE,
    Candidate,
    ClusterSpec,
    ConfigError,
    FailureKind,
    ModelSpec,
    NothingFeasibleError,
    Workload,
    resolve,
    visible,
)
from autoconf_launch.launcher.dialects import BuiltinDialect
from autoconf_launch.launcher.engines import Backend
from autoconf_launch.launcher.events import Listener, ModelProfiled, Note
from autoconf_launch.launcher.hosts import (
    WHOLE,
    SlotPool,
    engine_for,
    find_cluster,
    why_not_in_turn,
)
from autoconf_launch.launcher.launch import find_script_source
from autoconf_launch.launcher.live import LinesView
from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.launcher.trackers import Feed
from autoconf_launch.launcher.tuning import (
    ProfileFailedError,
    Search,
    Site,
    TrialFiles,
    TrialLimits,
    play,
    read_model_info,
    run_profile,
)

from .candidate_file import SearchFolder, write_documents
from .candidates import SearchCandidate
from .hp_search import Chosen, HpRuns, OpenRuns, Runner, opening_launches, trials_of
from .job_runs import JOBS_AT_ONCE
from .outcome import (
    all_too_slow,
    are_extrapolated,
    counts,
    in_time_first,
    is_too_slow,
    training_limits,
    why_too_slow,
)
from .question import GridKind, SearchQuestion
from .this_machine import (
    runtime_extras,
    split_trainable,
    why_no_candidate,
    with_zero,
)

_STAGES = (0, 1, 2, 3)
_UNKNOWN_S = math.inf
_NEEDED = "transformers"
_SCRIPT = "autoconf_launch.runtime.pretraining"
_LEAST_PROFILE_S = 600.0
_UNPROFILED = (
    "The profile run did not end in time, so that nothing is predicted; candidates are tried in "
    "their own order."
)
_Some: TypeAlias = tuple[SearchCandidate, ...]


def order_candidates(
    found: tuple[SearchCandidate, ...],
    as_candidate: Callable[[SearchCandidate], Candidate],
    workload: Workload,
    cluster: ClusterSpec,
) -> tuple[SearchCandidate, ...]:
    """Candidates with their best ZeRO stage, the fastest predicted fit first.

    The order stays if nothing can be predicted. The smallest micro-batch comes first if only
    memory can: then not even two samples had room in the profile run.
    """
    if workload.model is None:
        return found
    variants = [
        with_zero(one, stage)
        for one in found
        for stage in (
            _STAGES if one.layout.data_parallel * one.layout.context_parallel > 1 else (0,)
        )
    ]
    table = CandidateTable.from_candidates([as_candidate(one) for one in variants])
    told = estimate(table, workload, cluster)
    priced = [
        replace(
            one,
            step_s=_none_if_nan(told.step_s_C[row]),
            peak_bytes=_none_if_nan(told.peak_bytes_C[row]),
        )
        for row, one in enumerate(variants)
    ]
    limit = cluster.least_memory_bytes
    best: dict[str, SearchCandidate] = {}
    for one in sorted(priced, key=lambda one: _rank(one, limit)):
        best.setdefault(one.name, one)
    return tuple(best.values())


def _rank(one: SearchCandidate, limit_bytes: float) -> tuple[bool, float, int, int]:
    is_large = one.peak_bytes is not None and one.peak_bytes > limit_bytes
    sample_s = _UNKNOWN_S if one.step_s is None else one.step_s / one.layout.global_batch
    value = one.peak_bytes or 0.0 if is_large else sample_s
    samples = one.layout.micro_batch if one.step_s is None else 0
    return (is_large, value, samples, one.layout.zero_stage)


def _none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def require_transformers(caller: str) -> None:
    """Check that runs can build their model."""
    if find_spec(_NEEDED) is None:
        raise ConfigError(
            f"{caller} builds models with {_NEEDED}, which is not installed; run "
            "pip install 'autoconf-launch[search]'."
        )


def stderr_view(*, quiet: bool = False) -> LinesView:
    """Lines on single runs, on standard error."""

    def write(line: str) -> None:
        sys.stderr.write(f"{visible(line)}\n")
        sys.stderr.flush()

    return LinesView(write, quiet=quiet, level="info")


def request_of(
    question: SearchQuestion,
    folder: SearchFolder,
    launch: LaunchRequest,
    listener: Listener | None = None,
) -> LaunchRequest:
    """The pretraining of the base configuration; writes the two files that ranks read.

    ``listener`` is notified while a queue is awaited.
    """
    base = folder.write_for_ranks("base", question.completed_base)
    cluster = find_cluster(launch, listener)
    document = builtin_document(question.completed_base, micro_batch=1)  # the smallest first
    if all(device.name.startswith("cpu") for device in cluster.devices):
        document = document.with_value(("bf16", "enabled"), False)
    config = folder.write_for_ranks("runtime", document)
    words = (
        *("--base-config", str(base), "--config", str(config)),
        *("--steps", str(question.scope.max_steps + 1)),
    )
    return replace(
        launch,
        script=_SCRIPT,
        kind="module",
        script_args=words,
        local_rank_flag="",
        autotuning="tune",
        trial_timeout_s=max(_LEAST_PROFILE_S, 60.0 * question.scope.max_minutes),
    )


class OurRanks(Runner[SearchCandidate]):
    """Trains candidates with our runtime, on this machine or in jobs.

    Attributes:
        limits: of each run.

    Args:
        question: the training.
        folder: of the search.
        launch: of nothing yet: the machines, the trackers and the command line.
        listener: notified while a queue is awaited.
    """

    def __init__(
        self,
        question: SearchQuestion,
        folder: SearchFolder,
        launch: LaunchRequest,
        listener: Listener | None = None,
    ) -> None:
        self._question, self._folder = question, folder
        self._request = request_of(question, folder, launch, listener)
        self._source = find_script_source(self._request)
        self._cluster = find_cluster(self._request)
        self.limits = training_limits(question, self._request.stall_timeout_s)
        self.at_once = JOBS_AT_ONCE if launch.remote.engine == "sbatch" else 1
        self.device = self._cluster.devices[0].name
        self._files = TrialFiles(
            request=self._request,
            cluster=self._cluster,
            paths=folder.runs,
            source=self._source,
            dialect=BuiltinDialect(),
            settings=AutotuningSettings(enabled=True),
            bound=(self.limits.steps, self.limits.steps_s),
        )

    def opening(self, listener: Listener, *, fresh: bool) -> AbstractContextManager[OpenRuns]:
        question = self._question
        feed = Feed(question.family.name, f"{question.size_b:.10g}b")
        launch = self._request, self._cluster, feed
        parts = self._files, self._backend
        return opening_launches(self._folder.runs, launch, parts, listener, fresh=fresh)

    def _backend(self, listener: Listener) -> Backend:
        return engine_for(self._request, self._cluster, listener, forks=True)

    def choose(self, points: _Some, runs: OpenRuns) -> Chosen[SearchCandidate]:
        question = self._question
        training = configured_workload(resolve(self._source.config, world_size=1))
        spec = self._profile(points, runs)
        workload = replace(training, model=spec)
        trainable, rejected = split_trainable(spec, points)
        if not trainable:
            raise NothingFeasibleError(why_no_candidate(question, rejected))
        chosen, too_slow = self._order(trainable, workload)
        if not chosen:
            raise NothingFeasibleError(all_too_slow(too_slow, question.scope.max_minutes))
        write_documents(question, self._folder, chosen)
        slow = ((one, why_too_slow(one)) for one in too_slow)
        return Chosen(
            points=chosen,
            left_out=(*slow, *((one.candidate, one.failure) for one in rejected)),
            runs=replace(runs, files=replace(self._files, workload=workload)),
        )

    def counts(self, record: Record) -> bool:
        return counts(record, self._question.scope.max_minutes)

    def measure_again(self, found: HpRuns[SearchCandidate], runs: OpenRuns) -> tuple[Record, ...]:
        if found.stop.is_error or are_extrapolated(found.records):
            return ()
        measured = Search(
            records=found.records,
            settings=AutotuningSettings(),
            noise=estimate_noise(found.records),
            elapsed_s=found.elapsed_s,
            apart=why_not_in_turn(
                self._request, self._cluster, self._source, self._folder.runs.results
            ),
        )
        return play(
            measured,
            runs.control,
            listener=runs.listener,
            limits=self.limits.launch,
            earlier=runs.opened.contents,
            soak_asked=0,
        ).playoff

    def _profile(self, points: _Some, runs: OpenRuns) -> ModelSpec | None:
        path = self._folder.runs.profile / MODEL_INFO_FILE
        event = ModelProfiled(spec=read_model_info(path), wall_s=None)
        if not runs.opened.contents.profiled:
            request = self._request
            first = min(points, key=lambda one: math.prod(one.layout.mesh))
            (trial,) = trials_of([first], self.candidate)
            try:
                event = run_profile(
                    lambda: self._files.plan_profile(trial, uuid.uuid4().hex),
                    Site(
                        backend=runs.backend,
                        pool=SlotPool.of_shares(WHOLE),
                        folder=runs.opened,
                    ),
                    TrialLimits(
                        timeout_s=request.trial_timeout_s, stall_s=request.stall_timeout_s
                    ),
                    runs.listener,
                )
            except ProfileFailedError as error:
                failure = error.failure
                if failure.kind is not FailureKind.TIMED_OUT:
                    raise NothingFeasibleError(
                        f"{self._question.name} cannot be trained here "
                        f"({failure.kind.value}: {failure.detail}); the output of its first run "
                        f"is in {self._folder.runs.profile}.",
                        failure.log_tail,
                    ) from error
                runs.listener(Note(text=_UNPROFILED, warning=True))  # it only lacked time
                return None
        runs.listener(event)
        return event.spec

    def _order(self, found: _Some, workload: Workload) -> tuple[_Some, _Some]:
        """Candidates to run and too slow candidates; NVIDIA's grid keeps NVIDIA's order.

        Ours is by predicted time; candidates that may lack time come last.
        """
        scope = self._question.scope
        priced = order_candidates(found, self.candidate, workload, self._cluster)
        if scope.grid is GridKind.NEMO:
            times = {one.name: one.step_s for one in priced}
            priced = tuple(replace(one, step_s=times[one.name]) for one in found)
        else:
            priced = in_time_first(priced, scope.max_minutes)
        too_slow = tuple(one for one in priced if is_too_slow(one, scope.max_minutes))
        kept = tuple(one for one in priced if one not in too_slow)
        return kept[: scope.limit_runs or None], too_slow

    def candidate(self, point: SearchCandidate) -> Candidate:
        """A candidate as the runtime reads it, with the knobs of its ZeRO stage."""
        extras = runtime_extras(self._question, point)
        bare = Candidate(layout=point.layout, extras=extras)
        document = BuiltinDialect().render(bare, self._source, "").config
        resolved = resolve(document, world_size=len(self._cluster.devices))
        return Candidate(layout=resolved.layout, extras=resolved.extras)
