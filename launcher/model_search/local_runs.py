"""The runs of a search on this machine, by the study and backends of ``--autotuning``.

Not: what is written of them (local_search, search_report).
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from autoconf_launch.autotuner.cost.facts import TrainingFacts
from autoconf_launch.autotuner.decider import Decider
from autoconf_launch.autotuner.listed import ListedStudy
from autoconf_launch.autotuner.settings import AutotuningSettings
from autoconf_launch.autotuner.trial import Record, Trial
from autoconf_launch.core import Candidate, FailureKind, ModelSpec, NothingFeasibleError, resolve
from autoconf_launch.core import config_keys as keys
from autoconf_launch.core.rank import MODEL_INFO_FILE

from ..backends import load_backend, released
from ..backends.base import Backend
from ..dialects.native import NativeDialect
from ..events import Listener, ModelProfiled, Note
from ..interrupts import stopping_on_signals
from ..machine.discover import find_cluster
from ..machine.slots import WHOLE
from ..results.fingerprint import environment_document, fingerprint
from ..results.journal_contents import Earlier
from ..results.results_folder import OpenFolder, open_folder
from ..scripts.script_source import find_script_source
from ..trackers.feed import Feed
from ..trackers.listening import tracked
from ..tuning.controller import Controller, TrialLimits
from ..tuning.endgame import Search, play
from ..tuning.profile_run import ProfileFailedError, read_model_info, run_profile
from ..tuning.trial_files import TrialFiles, write_json
from .candidates import SearchCandidate
from .done_runs import DoneRuns
from .folder import SearchFolder
from .local_order import ordered
from .prepare import Prepared
from .pretraining import request_of
from .run_time import (
    all_too_slow,
    are_extrapolated,
    counts,
    in_time_first,
    is_too_slow,
    run_limit_s,
    steps_limit_s,
)
from .settings import GridKind

_UNPROFILED = (
    "The profile run did not end in time, so that nothing is predicted; candidates are tried in "
    "their own order."
)
_Some: TypeAlias = tuple[SearchCandidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """What the runs of a folder have in common while it is ours."""

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
        self._request = request_of(prepared, folder)
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
            env = environment_document(request, self._cluster, self._settings)
            write_json(paths.environment, env)
            question = self._prepared.question
            feed = Feed(question.family.name, f"{question.size_b:.10g}b")
            with (
                tracked(request.tracking, feed, paths.tracking, self._listener) as heard,
                released(load_backend("zygote")) as backend,
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
        stop = controller.run(WHOLE)
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
        )

    def _candidates(self, session: _Session) -> tuple[_Some, _Some]:
        """What is run and what is too slow, once the model has been profiled."""
        spec = self._profile(session)
        facts = TrainingFacts.from_config(
            resolve(self._source.config, world_size=len(self._cluster.devices))
        )
        session.files.describe_model(spec, facts)
        candidates, too_slow = self._ordered(spec, facts)
        if not candidates:
            minutes = self._prepared.settings.train.max_minutes
            raise NothingFeasibleError(all_too_slow(too_slow, minutes))
        return candidates, too_slow

    def _earlier(self, session: _Session, trials: list[Trial]) -> Earlier:
        """What an earlier search of the same wrote down, as far as it is one of today's runs."""
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
            objective=study.objective,
            elapsed_s=elapsed_s,
        )
        return play(
            search,
            session.control,
            listener=session.heard,
            limits=self._limits(),
            earlier=session.opened.contents,
            soak_asked=0,
        ).finals

    def _files(self) -> TrialFiles:
        files = TrialFiles(
            self._request,
            self._cluster,
            self._folder.runs,
            source=self._source,
            dialect=NativeDialect(),
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
            session.files.plan_profile(self._trial(0, first), uuid.uuid4().hex),
            session.backend,
            journal=session.opened.journal,
            timeout_s=self._request.trial_timeout_s,
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

    def _ordered(self, spec: ModelSpec | None, facts: TrainingFacts) -> tuple[_Some, _Some]:
        """What is run, and what is too slow; NVIDIA's grid keeps NVIDIA's order.

        Ours is by what the profile run lets predict, and what may lack time comes last.
        """
        found, train = self._prepared.found.candidates, self._prepared.settings.train
        priced = ordered(found, self.candidate, spec, self._cluster, facts)
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
        """As the runtime would read it, with the knobs that its ZeRO stage brings along."""
        layout, document = one.layout, self._source.config
        for path, value in (
            (keys.MICRO_BATCH, layout.micro_batch),
            (keys.ACCUMULATION, layout.accumulation),
            (keys.GLOBAL_BATCH, layout.global_batch),
            (keys.ZERO_STAGE, layout.zero_stage),
            (keys.RECOMPUTE, layout.recompute.value),
        ):
            document = document.with_value(path, value)
        resolved = resolve(document, world_size=len(self._cluster.devices))
        return Candidate(layout=resolved.layout, extras=resolved.extras)

    def _limits(self) -> TrialLimits:
        minutes = self._prepared.settings.train.max_minutes
        return TrialLimits(
            timeout_s=run_limit_s(minutes),
            stall_s=self._request.stall_timeout_s,
            timeout_by="max_minutes_per_run",
        )
