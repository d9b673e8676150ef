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
from autoconf_launch.autotuner.stop import StopReason
from autoconf_launch.autotuner.trial import Record, Trial
from autoconf_launch.core import Candidate, ModelSpec, NothingFeasibleError, resolve
from autoconf_launch.core import config_keys as keys
from autoconf_launch.core.rank import MODEL_INFO_FILE

from ..backends import load_backend, released
from ..backends.base import Backend
from ..controller import Controller, TrialLimits
from ..dialects.native import NativeDialect
from ..discover import find_cluster
from ..endgame import Search, play
from ..events import Listener, ModelProfiled, Note
from ..fingerprint import environment_document, fingerprint
from ..interrupts import stopping_on_signals
from ..profile_run import read_model_info, run_profile
from ..results_folder import OpenFolder, open_folder
from ..script_source import find_script_source
from ..slots import WHOLE
from ..trackers.feed import Feed
from ..trackers.listening import tracked
from ..trial_files import TrialFiles, write_json
from ..views.duration import duration_text
from .candidates import SearchCandidate
from .folder import SearchFolder
from .local_order import ordered
from .prepare import Prepared
from .pretraining import request_of
from .settings import GridKind

_STEPS_SHARE = 0.9
"""Of a run's minutes for its steps; the rest is for its start."""
_GRACE_S = 30.0
_SURELY = 2.0
"""Times the minutes of a run that a step must be predicted to take to be surely too slow."""
_Some: TypeAlias = tuple[SearchCandidate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneRuns:
    """What came back.

    Attributes:
        candidates: that were to be run, in order.
        records: of the search; ``finals`` of the best, measured again in turn.
        ruled_out: names that were not started, each with the failure that rules it out.
        too_slow: not started, as one step would surely overrun the minutes of a run.
    """

    candidates: tuple[SearchCandidate, ...]
    records: tuple[Record, ...]
    finals: tuple[Record, ...]
    ruled_out: tuple[tuple[str, Record], ...]
    too_slow: tuple[SearchCandidate, ...]
    stop: StopReason


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
                return self._search(opened, backend, heard, write_files)

    def _search(
        self,
        opened: OpenFolder,
        backend: Backend,
        heard: Listener,
        write_files: Callable[[tuple[SearchCandidate, ...]], None],
    ) -> DoneRuns:
        files = self._files()
        spec = self._profile(files, opened, backend, heard)
        facts = TrainingFacts.from_config(
            resolve(self._source.config, world_size=len(self._cluster.devices))
        )
        files.describe_model(spec, facts)
        candidates, too_slow = self._ordered(spec, facts)
        if not candidates:
            raise NothingFeasibleError(self._all_too_slow(too_slow))
        write_files(candidates)
        trials = [self._trial(number, one) for number, one in enumerate(candidates)]
        study = self._study(trials)
        limits = self._limits()

        def control(decider: Decider, listener: Listener, limits: TrialLimits) -> Controller:
            return Controller(
                decider,
                backend,
                files,
                journal=opened.journal,
                listener=listener,
                limits=limits,
            )

        controller = control(study, heard, limits)
        known = {trial.name: trial.candidate for trial in trials}
        records = opened.contents.records
        ours = tuple(one for one in records if known.get(one.trial.name) == one.trial.candidate)
        controller.resume(replace(opened.contents, records=ours))
        stop = controller.run(WHOLE)
        end = None
        if not stop.is_error:
            end = play(
                Search(
                    records=study.records,
                    objective=study.objective,
                    elapsed_s=controller.elapsed_s,
                    takes_turns=True,
                ),
                control,
                listener=heard,
                limits=limits,
                earlier=opened.contents,
                soak_asked=0,
            )
        return DoneRuns(
            candidates=candidates,
            records=study.records,
            finals=end.finals if end else (),
            ruled_out=study.ruled_out,
            too_slow=too_slow,
            stop=stop,
        )

    def _files(self) -> TrialFiles:
        files = TrialFiles(
            self._request,
            self._cluster,
            self._folder.runs,
            source=self._source,
            dialect=NativeDialect(),
            settings=self._settings,
        )
        files.bound_steps(self._prepared.settings.train.max_steps)
        return files

    def _profile(
        self, files: TrialFiles, opened: OpenFolder, backend: Backend, heard: Listener
    ) -> ModelSpec | None:
        path = self._folder.runs.profile / MODEL_INFO_FILE
        event = ModelProfiled(spec=read_model_info(path), wall_s=None)
        if not opened.contents.profiled:
            first = self._prepared.found.candidates[0]
            plan = files.plan_profile(self._trial(0, first), uuid.uuid4().hex)
            event = run_profile(
                plan, backend, journal=opened.journal, timeout_s=self._request.trial_timeout_s
            )
        heard(event)
        return event.spec

    def _ordered(self, spec: ModelSpec | None, facts: TrainingFacts) -> tuple[_Some, _Some]:
        """What is run, and what is too slow; NVIDIA's grid keeps NVIDIA's order.

        Ours is by what the profile run lets predict.
        """
        found, train = self._prepared.found.candidates, self._prepared.settings.train
        priced = ordered(found, self.candidate, spec, self._cluster, facts)
        if self._prepared.settings.grid is GridKind.NEMO:
            times = {one.name: one.step_s for one in priced}
            priced = tuple(replace(one, step_s=times[one.name]) for one in found)
        limit_s = _SURELY * 60.0 * train.max_minutes
        too_slow = tuple(one for one in priced if (one.step_s or 0.0) > limit_s)
        kept = tuple(one for one in priced if (one.step_s or 0.0) <= limit_s)
        return kept[: train.limit_runs or None], too_slow

    def _all_too_slow(self, found: _Some) -> str:
        fastest = min(one.step_s or 0.0 for one in found)
        minutes = self._prepared.settings.train.max_minutes
        return (
            f"No candidate can make a step here within max_minutes_per_run = {minutes:g}: the "
            f"fastest is predicted to take {duration_text(fastest)}; give a smaller model, "
            "global_batch_size or seq_length, or more minutes."
        )

    def _study(self, trials: list[Trial]) -> ListedStudy:
        train = self._prepared.settings.train
        return ListedStudy(
            trials,
            most_steps=train.max_steps,
            most_s=_STEPS_SHARE * 60.0 * train.max_minutes,
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
            (keys.ZERO_STAGE, layout.zero_stage),
            (keys.RECOMPUTE, layout.recompute.value),
        ):
            document = document.with_value(path, value)
        resolved = resolve(document, world_size=len(self._cluster.devices))
        return Candidate(layout=resolved.layout, extras=resolved.extras)

    def _limits(self) -> TrialLimits:
        minutes = self._prepared.settings.train.max_minutes
        return TrialLimits(
            timeout_s=60.0 * minutes + _GRACE_S, stall_s=self._request.stall_timeout_s
        )
