"""The runs of a search on this machine, by the study and backends of ``--autotuning``.

Not: what is written of them (command), nor which there are (this_machine).
"""

from __future__ import annotations

import math
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import TypeAlias

from autoconf_launch.autotuner.cost import configured_workload, estimate
from autoconf_launch.autotuner.measurement import estimate_noise
from autoconf_launch.autotuner.playoff import Decider
from autoconf_launch.autotuner.search import ListedStudy
from autoconf_launch.autotuner.sizing import builtin_document
from autoconf_launch.autotuner.space import AutotuningSettings, CandidateTable, Record, Trial
from autoconf_launch.core import (
    MODEL_INFO_FILE,
    Candidate,
    ClusterSpec,
    ConfigError,
    FailureKind,
    ModelSpec,
    NothingFeasibleError,
    RawConfig,
    Workload,
    resolve,
    visible,
)
from autoconf_launch.core import config_keys as keys
from autoconf_launch.launcher.backends import (
    Backend,
    backend_for,
    closing_backend,
    warn_listener,
)
from autoconf_launch.launcher.dialects import BuiltinDialect
from autoconf_launch.launcher.events import Listener, ModelProfiled, Note
from autoconf_launch.launcher.interrupts import stopping_on_signals
from autoconf_launch.launcher.launch import find_script_source
from autoconf_launch.launcher.live import LinesView
from autoconf_launch.launcher.machine import WHOLE, SlotPool, find_cluster, why_not_in_turn
from autoconf_launch.launcher.request import HostChoice, LaunchRequest, RemoteAccess
from autoconf_launch.launcher.results import (
    Earlier,
    OpenFolder,
    fingerprint,
    open_folder,
    write_environment,
)
from autoconf_launch.launcher.trackers import Feed, track_events
from autoconf_launch.launcher.tuning import (
    Controller,
    ProfileFailedError,
    Search,
    TrialFiles,
    TrialLimits,
    play,
    read_model_info,
    run_profile,
)

from .candidate_file import SearchFolder
from .candidates import SearchCandidate
from .jobs import JOBS_AT_ONCE, sbatch_words
from .outcome import (
    DoneRuns,
    all_too_slow,
    are_extrapolated,
    counts,
    in_time_first,
    is_too_slow,
    run_limit_s,
    steps_limit_s,
)
from .prepare import Prepared
from .settings import ClusterKind, GridKind
from .this_machine import local_request, with_zero

_STAGES = (0, 1, 2, 3)
_UNKNOWN_S = math.inf


def order_candidates(
    found: tuple[SearchCandidate, ...],
    as_candidate: Callable[[SearchCandidate], Candidate],
    workload: Workload,
    cluster: ClusterSpec,
) -> tuple[SearchCandidate, ...]:
    """Each with its best ZeRO stage, the fastest predicted one that fits first.

    As they were where nothing can be predicted; the smallest micro-batch first where memory alone
    can, since then not even two samples had room in the profile run.
    """
    if workload.model is None:
        return found
    stages = _STAGES if len(cluster.devices) > 1 else (0,)
    variants = [with_zero(one, stage) for one in found for stage in stages]
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
    best = [
        min(priced[first : first + len(stages)], key=lambda one: _rank(one, limit))
        for first in range(0, len(priced), len(stages))
    ]
    return tuple(sorted(best, key=lambda one: _rank(one, limit)))


def _rank(one: SearchCandidate, limit_bytes: float) -> tuple[bool, float, int, int]:
    is_large = one.peak_bytes is not None and one.peak_bytes > limit_bytes
    sample_s = _UNKNOWN_S if one.step_s is None else one.step_s / one.layout.global_batch
    value = one.peak_bytes or 0.0 if is_large else sample_s
    samples = one.layout.micro_batch if one.step_s is None else 0
    return (is_large, value, samples, one.layout.zero_stage)


def _none_if_nan(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


_NEEDED = "transformers"


def require_transformers(caller: str) -> None:
    """See that runs can build their model.

    Raises:
        ConfigError: the package is missing.
    """
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


_SCRIPT = "autoconf_launch.runtime.pretraining"
_LEAST_PROFILE_S = 600.0


def request_of(
    prepared: Prepared, folder: SearchFolder, listener: Listener | None = None
) -> LaunchRequest:
    """The pretraining of the base configuration; writes the two files that ranks read.

    ``listener`` hears that a queue is awaited.

    Raises:
        ResultsFolderError: they cannot be written.
    """
    question, settings = prepared.question, prepared.settings
    base = folder.write_for_ranks("base", question.completed_base)
    document = _runtime_document(
        question.completed_base, find_cluster(launch_request(prepared), listener)
    )
    config = folder.write_for_ranks("runtime", document)
    words = (
        *("--base-config", str(base), "--config", str(config)),
        *("--steps", str(settings.train.max_steps + 1)),
    )
    return replace(
        launch_request(prepared),
        script=_SCRIPT,
        kind="module",
        script_args=words,
        local_rank_flag="",
        autotuning="tune",
        trial_timeout_s=max(_LEAST_PROFILE_S, 60.0 * settings.train.max_minutes),
        tracking=settings.tracking,
        argv=tuple(_argv(prepared)),
    )


def _argv(prepared: Prepared) -> Iterator[str]:
    yield from ("search", f"search_config={prepared.settings.choice}")
    yield from sorted(prepared.settings.given)


def launch_request(prepared: Prepared) -> LaunchRequest:
    """A launch of nothing yet: on this machine, by jobs of Slurm, or inside Base Command."""
    question, cluster = prepared.question, prepared.settings.cluster
    if cluster.kind is ClusterKind.LOCAL:
        return local_request(question.gpus)
    words = sbatch_words(cluster, question.name) if cluster.kind is ClusterKind.BCM else ()
    return replace(
        local_request(question.gpus_per_node),
        hosts=HostChoice(nodes=question.nodes),
        remote=RemoteAccess(engine=_ENGINES[cluster.kind], arguments=words),
    )


_ENGINES = {ClusterKind.BCM: "sbatch", ClusterKind.BCP: "bcprun"}
_JOBS_AT_ONCE = {ClusterKind.BCM: JOBS_AT_ONCE}


def _runtime_document(base: RawConfig, cluster: ClusterSpec) -> RawConfig:
    """The smallest micro-batch to begin with; fp32 where ranks have no GPU."""
    document = builtin_document(base, micro_batch=1)
    if all(device.name.startswith("cpu") for device in cluster.devices):
        return document.with_value(("bf16", "enabled"), False)
    return document


_UNPROFILED = (
    "The profile run did not end in time, so that nothing is predicted; candidates are tried in "
    "their own order."
)
_Some: TypeAlias = tuple[SearchCandidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """State that the runs of a folder share while we hold it."""

    opened: OpenFolder
    backend: Backend
    heard: Listener
    files: TrialFiles

    def control(self, decider: Decider, listener: Listener, limits: TrialLimits) -> Controller:
        """A controller of some of them."""
        return Controller(
            decider,
            self.backend,
            self.files,
            journal=self.opened.journal,
            listener=listener,
            limits=limits,
        )


class LocalRuns:
    """Runs the candidates of one search; use ``run`` once."""

    def __init__(self, prepared: Prepared, folder: SearchFolder, listener: Listener) -> None:
        self._prepared = prepared
        self._folder = folder
        self._listener = listener
        is_local = prepared.settings.cluster.kind is ClusterKind.LOCAL
        self._request = request_of(prepared, folder, None if is_local else listener)
        self._source = find_script_source(self._request)
        self._cluster = find_cluster(self._request)
        self._settings = AutotuningSettings(enabled=True)

    def run(
        self, write_files: Callable[[tuple[SearchCandidate, ...]], None], *, fresh: bool
    ) -> DoneRuns:
        """Profile the model, order the candidates, run them, and the best ones again.

        Args:
            write_files: called with what will be run, before it is.
            fresh: move what an earlier search left aside.

        Raises:
            NothingFeasibleError: the model cannot be trained here, or no step within the minutes.
        """
        paths, request = self._folder.runs, self._request
        print_ = fingerprint(request, self._cluster, self._source, self._settings)
        with stopping_on_signals(), open_folder(paths, print_, fresh=fresh) as opened:
            for text in opened.notes:
                self._listener(Note(text=text))
            write_environment(paths, request, self._cluster, self._settings)
            question = self._prepared.question
            made = backend_for(request, self._cluster, forks=True)
            feed = Feed(question.family.name, f"{question.size_b:.10g}b")
            with (
                track_events(request.tracking, feed, paths.tracking, self._listener) as heard,
                closing_backend(warn_listener(made, heard)) as backend,
            ):
                session = _Session(
                    opened=opened, backend=backend, heard=heard, files=self._files()
                )
                return self._search(session, write_files)

    def _search(
        self,
        session: _Session,
        write_files: Callable[[tuple[SearchCandidate, ...]], None],
    ) -> DoneRuns:
        candidates, too_slow = self._candidates(session)
        write_files(candidates)
        trials = [self._trial(number, one) for number, one in enumerate(candidates)]
        study = self._study(trials)
        controller = session.control(study, session.heard, self._limits())
        controller.resume(self._earlier(session, trials))
        at_once = _JOBS_AT_ONCE.get(self._prepared.settings.cluster.kind, 1)
        stop = controller.run(WHOLE * at_once)
        finals: tuple[Record, ...] = ()
        if not stop.is_error and not are_extrapolated(study.records):
            finals = self._finals(session, study, controller.elapsed_s)
        return DoneRuns(
            candidates=candidates,
            records=study.records,
            finals=finals,
            ruled_out=study.ruled_out,
            too_slow=too_slow,
            stop=stop,
            gpu=self._cluster.devices[0].name,
        )

    def _candidates(self, session: _Session) -> tuple[_Some, _Some]:
        """Candidates to run and too slow candidates, after the profile run."""
        spec = self._profile(session)
        training = configured_workload(
            resolve(self._source.config, world_size=len(self._cluster.devices))
        )
        workload = replace(training, model=spec)
        session.files.describe_model(workload)
        candidates, too_slow = self._order(workload)
        if not candidates:
            minutes = self._prepared.settings.train.max_minutes
            raise NothingFeasibleError(all_too_slow(too_slow, minutes))
        return candidates, too_slow

    def _earlier(self, session: _Session, trials: list[Trial]) -> Earlier:
        """Results of an earlier, equal search for runs that this search has, too."""
        contents = session.opened.contents
        known = {trial.name: trial.candidate for trial in trials}
        minutes = self._prepared.settings.train.max_minutes
        ours = tuple(
            one
            for one in contents.records
            if known.get(one.trial.name) == one.trial.candidate and counts(one, minutes)
        )
        return replace(contents.search, records=ours)

    def _finals(
        self, session: _Session, study: ListedStudy, elapsed_s: float
    ) -> tuple[Record, ...]:
        search = Search(
            records=study.records,
            settings=AutotuningSettings(),
            noise=estimate_noise(study.records),
            elapsed_s=elapsed_s,
            apart=why_not_in_turn(
                self._request, self._cluster, self._source, self._folder.runs.results
            ),
        )
        return play(
            search,
            session.control,
            listener=session.heard,
            limits=self._limits(),
            earlier=session.opened.contents,
            soak_asked=0,
        ).playoff

    def _files(self) -> TrialFiles:
        files = TrialFiles(
            self._request,
            self._cluster,
            self._folder.runs,
            source=self._source,
            dialect=BuiltinDialect(),
            settings=self._settings,
        )
        train = self._prepared.settings.train
        files.bound_steps(train.max_steps, cut_s=steps_limit_s(train.max_minutes))
        return files

    def _profile(self, session: _Session) -> ModelSpec | None:
        opened = session.opened
        path = self._folder.runs.profile / MODEL_INFO_FILE
        event = ModelProfiled(spec=read_model_info(path), wall_s=None)
        if not opened.contents.profiled:
            try:
                event = self._run_profile(session)
            except ProfileFailedError as error:
                self._require_late(error)
                session.heard(Note(text=_UNPROFILED, warning=True))
                return None
        session.heard(event)
        return event.spec

    def _run_profile(self, session: _Session) -> ModelProfiled:
        first = self._prepared.found.candidates[0]
        return run_profile(
            lambda: session.files.plan_profile(self._trial(0, first), uuid.uuid4().hex),
            session.backend,
            pool=SlotPool.of_shares(WHOLE),
            journal=session.opened.journal,
            limits=TrialLimits(
                timeout_s=self._request.trial_timeout_s, stall_s=self._request.stall_timeout_s
            ),
            listener=session.heard,
        )

    def _require_late(self, error: ProfileFailedError) -> None:
        """See that a profile run only lacked time: then candidates can still be tried."""
        failure = error.failure
        if failure.kind is not FailureKind.TIMED_OUT:
            raise NothingFeasibleError(
                f"{self._prepared.question.name} cannot be trained here ({failure.kind.value}: "
                f"{failure.detail}); the output of its first run is in "
                f"{self._folder.runs.profile}.",
                failure.log_tail,
            ) from error

    def _order(self, workload: Workload) -> tuple[_Some, _Some]:
        """Candidates to run and too slow candidates; NVIDIA's grid keeps NVIDIA's order.

        Ours is by what the profile run lets predict, and what may lack time comes last.
        """
        found, train = self._prepared.found.candidates, self._prepared.settings.train
        priced = order_candidates(found, self.candidate, workload, self._cluster)
        if self._prepared.settings.grid is GridKind.NEMO:
            times = {one.name: one.step_s for one in priced}
            priced = tuple(replace(one, step_s=times[one.name]) for one in found)
        else:
            priced = in_time_first(priced, train.max_minutes)
        too_slow = tuple(one for one in priced if is_too_slow(one, train.max_minutes))
        kept = tuple(one for one in priced if one not in too_slow)
        return kept[: train.limit_runs or None], too_slow

    def _study(self, trials: list[Trial]) -> ListedStudy:
        train = self._prepared.settings.train
        return ListedStudy(
            trials,
            most_steps=train.max_steps,
            most_s=steps_limit_s(train.max_minutes),
        )

    def _trial(self, number: int, one: SearchCandidate) -> Trial:
        candidate = self.candidate(one)
        space = f"z{candidate.layout.zero_stage}"
        return Trial(number=number, name=one.name, candidate=candidate, space=space)

    def candidate(self, one: SearchCandidate) -> Candidate:
        """A candidate as the runtime reads it, with the knobs that its ZeRO stage brings."""
        layout = one.layout
        edits = (
            (keys.MICRO_BATCH, layout.micro_batch),
            (keys.ACCUMULATION, layout.accumulation),
            (keys.TRAIN_BATCH_SIZE, layout.global_batch),
            (keys.ZERO_STAGE, layout.zero_stage),
            (keys.RECOMPUTE, layout.recompute.value),
        )
        document = self._source.config.with_values(edits)
        resolved = resolve(document, world_size=len(self._cluster.devices))
        return Candidate(layout=resolved.layout, extras=resolved.extras)

    def _limits(self) -> TrialLimits:
        minutes = self._prepared.settings.train.max_minutes
        return TrialLimits(
            timeout_s=run_limit_s(minutes),
            stall_s=self._request.stall_timeout_s,
            timeout_by="max_minutes_per_run",
        )
