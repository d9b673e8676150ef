"""Tune, and on request train with the winner. Not: any single step of it.

The order of things: read, profile, build the space, predict, run the study and the finals, write
the results.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.autotuner.cluster import ClusterSpec
from autoconf_launch.autotuner.decider import Decider
from autoconf_launch.autotuner.planner import knob_rules, memory_rule, predict
from autoconf_launch.autotuner.settings import AutotuningSettings
from autoconf_launch.autotuner.settle import settled
from autoconf_launch.autotuner.space import build_space
from autoconf_launch.autotuner.strategies import load_strategy
from autoconf_launch.autotuner.study import StopReason, Study, baseline_trial
from autoconf_launch.autotuner.study_findings import study_findings
from autoconf_launch.autotuner.summary import summarise
from autoconf_launch.core import ModelSpec, NothingFeasibleError
from autoconf_launch.core.rank import MODEL_INFO_FILE

from ..backends import load_backend, released
from ..backends.base import Backend
from ..dialects import Dialect, Rendered, ScriptSource, UserSettings, choose_dialect
from ..dialects.native import NativeDialect
from ..events import Finished, Listener, ModelProfiled, Note, SpaceBuilt
from ..interrupts import stopping_on_signals
from ..machine.beside import why_not_in_turn
from ..machine.discover import find_cluster
from ..machine.slots import Share, find_shares, shares_text
from ..planning import plan_launch, require_script
from ..request import LaunchRequest
from ..results.fingerprint import environment_document, fingerprint, unsearched
from ..results.paths import ResultsPaths
from ..results.results_folder import OpenFolder, open_folder
from ..scripts.foreign import as_script_expects, config_stem, told
from ..scripts.plain_start import (
    as_script_starts,
    check_ranks,
    first_that_starts,
    profile_failed,
    remembered,
)
from ..scripts.script_source import find_script_source
from ..scripts.wrapped_launch import unwrapped
from ..trackers import check_tracking
from ..trackers.feed import feed_of
from ..trackers.listening import tracked
from ..tuning.controller import Controller, TrialLimits
from ..tuning.endgame import Endgame, Search, play
from ..tuning.measured_batch import as_measured
from ..tuning.outlook import with_outlook
from ..tuning.profile_run import ProfileFailedError, read_model_info, run_profile
from ..tuning.said_by_probe import said_by_probes
from ..tuning.search_limits import search_limits
from ..tuning.space_change import of_space
from ..tuning.trial_files import TrialFiles, write_json
from ..tuning.winner import render_winner, write_results
from .launch import run_to_end


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningJob:
    """Everything that was read before anything runs."""

    request: LaunchRequest
    source: ScriptSource
    dialect: Dialect
    cluster: ClusterSpec
    user: UserSettings
    paths: ResultsPaths
    listener: Listener


def tune(request: LaunchRequest, listener: Listener) -> int:
    """Find the best configuration; with ``--autotuning=run`` then train with it.

    Returns:
        0, or the training's own exit code.

    Raises:
        NothingFeasibleError: the baseline fails, or nothing fits.
    """
    job = read_job(request, listener)
    given = unsearched(job.dialect, job.source, job.user)
    print_ = fingerprint(request, job.cluster, job.source, job.user.settings, given)
    fresh = request.fresh or job.user.settings.overwrite
    with stopping_on_signals(), open_folder(job.paths, print_, fresh=fresh) as folder:
        for text in folder.notes:
            listener(Note(text=text))
        write_json(
            job.paths.environment, environment_document(request, job.cluster, job.user.settings)
        )
        with (
            tracked(request.tracking, feed_of(request), job.paths.tracking, listener) as heard,
            released(load_backend(_trial_backend(job))) as backend,
        ):
            job, winner = _searched(replace(job, listener=heard), backend, folder)
    if request.autotuning == "tune":
        return 0
    plan = told(plan_launch(job.request, job.cluster, winner.script_args), winner)
    return run_to_end(plan, load_backend(request.backend))


def read_job(request: LaunchRequest, listener: Listener) -> TuningJob:
    """Read the command line, the configuration and the machine; warn of what is odd.

    Raises:
        ConfigError: one of them cannot mean anything.
    """
    request = unwrapped(request)
    require_script(request)
    source = find_script_source(request)
    choice = choose_dialect(source)
    dialect = choice.dialect
    request = as_script_starts(as_script_expects(request, dialect, source), dialect, source)
    cluster = find_cluster(request, listener)
    user = dialect.read(
        source,
        world_size=request.started or len(cluster.devices),
        overrides=request.overrides,
        allow_global_batch_change=request.allow_global_batch_change,
    )
    load_strategy(user.settings.tuner_type)  # a wrong name is said before anything runs
    search_limits(request, cluster)  # and money where there is no price
    check_tracking(request.tracking)
    for warning in (*choice.notes, *user.warnings):
        listener(Note(text=warning, warning=True))
    return TuningJob(
        request=request,
        source=source,
        dialect=dialect,
        cluster=cluster,
        user=user,
        paths=_paths(user.settings, config_stem(dialect, source)),
        listener=listener,
    )


def _searched(job: TuningJob, backend: Backend, folder: OpenFolder) -> tuple[TuningJob, Rendered]:
    """The search of the script as it is to be started, which a profile run may change."""

    def attempt(request: LaunchRequest) -> tuple[TuningJob, Rendered]:
        started = _started(job, request)
        return started, search(started, backend, folder)

    known = remembered(job.request, job.paths) if folder.contents.profiled else job.request
    return first_that_starts(known, attempt, job.paths, job.listener)


def _started(job: TuningJob, request: LaunchRequest) -> TuningJob:
    """The same job, read anew where the script is started in another way."""
    if request == job.request:
        return job
    known = read_job(request, lambda event: None)
    return replace(known, listener=job.listener)


def search(job: TuningJob, backend: Backend, folder: OpenFolder) -> Rendered:
    """From the profile run to the results; the winner as a launch spells it.

    Raises:
        NothingFeasibleError: the baseline fails, or nothing fits.
    """
    files = TrialFiles(
        job.request,
        job.cluster,
        job.paths,
        source=job.source,
        dialect=job.dialect,
        settings=job.user.settings,
    )
    shares = find_shares(job.request, job.cluster)
    spec = _profile(job, files, backend, folder, shares[0])
    if len(shares) > 1:  # said only here: the profile run may ask for another start
        job.listener(Note(text=shares_text(shares)))
    job = replace(job, user=as_measured(job.user, job.paths.profile, job.listener))
    files.describe_model(spec, job.user.facts)
    study = _study(job, spec)
    limits = TrialLimits(
        timeout_s=job.request.trial_timeout_s, stall_s=job.request.stall_timeout_s
    )

    def control(decider: Decider, listener: Listener, limits: TrialLimits) -> Controller:
        return Controller(
            decider, backend, files, journal=folder.journal, listener=listener, limits=limits
        )

    controller = control(study, with_outlook(study, job.listener), limits)
    contents = of_space(folder, study.space, job.listener)
    controller.resume(contents.search)
    stop = controller.run(shares)
    end = Endgame(elapsed_s=controller.elapsed_s)
    if not stop.is_error:
        end = play(
            Search(
                records=study.compared,
                objective=study.objective,
                elapsed_s=controller.elapsed_s,
                apart=why_not_in_turn(job.request, job.cluster, job.source, job.paths.results),
                side_by_side=len(shares) > 1,
                noise=study.noise,
            ),
            control,
            listener=job.listener,
            limits=limits,
            earlier=contents,
            soak_asked=job.request.soak_steps,
        )
    return _conclude(job, study, end, stop)


def _trial_backend(job: TuningJob) -> str:
    """Ranks of our own runtime in Python are forked; who names another backend gets that."""
    ours = isinstance(job.dialect, NativeDialect) and job.request.kind != "program"
    return "zygote" if ours and job.request.backend == "local" else job.request.backend


def _conclude(job: TuningJob, study: Study, end: Endgame, stop: StopReason) -> Rendered:
    found = study_findings(study, end.finals, end.soaks)
    for text in (*found, *said_by_probes(job.paths.results, Path.cwd(), job.paths.exps)):
        job.listener(Note(text=text, warning=True))
    facts, settings = job.user.facts, job.user.settings
    searched = replace(summarise(study, duration_s=end.elapsed_s, facts=facts), findings=found)
    summary = settled(searched, study.compared, end.finals, settings, facts, end.soaks)
    winner = render_winner(summary, job.dialect, job.source, job.paths)
    text = write_results(
        job.paths,
        study.records,
        summary,
        request=job.request,
        source=job.source,
        winner=winner,
    )
    if winner is None:
        reason = summary.soak.sentence if summary.soak else stop.sentence
        raise NothingFeasibleError(reason, stop.log_tail)
    job.listener(Finished(text=text, winner=summary.winner))
    return winner


def _profile(
    job: TuningJob, files: TrialFiles, backend: Backend, folder: OpenFolder, share: Share
) -> ModelSpec | None:
    given = job.user.settings.known_model()
    if given is not None:
        text = "The model is what autotuning.model_info says of it; there is no profile run."
        job.listener(Note(text=text))
        return given
    event = ModelProfiled(spec=read_model_info(job.paths.profile / MODEL_INFO_FILE), wall_s=None)
    if not folder.contents.profiled:
        plan = files.plan_profile(baseline_trial(job.user.baseline), uuid.uuid4().hex)
        try:
            event = run_profile(
                share.place(plan, alone=True),
                backend,
                journal=folder.journal,
                timeout_s=job.request.trial_timeout_s,
            )
        except ProfileFailedError as error:
            ranks = len(job.cluster.devices)
            raise profile_failed(job.request, job.dialect, ranks, error) from error
        check_ranks(job.request, job.cluster, plan.task)
    job.listener(event)
    return event.spec


def _study(job: TuningJob, spec: ModelSpec | None) -> Study:
    user = job.user
    space = build_space(user.baseline, user.choices, user.batch_rule, user.settings)
    for text in space.notes:
        job.listener(Note(text=text))
    predictions = predict(space.table, spec, job.cluster, user.facts)
    rules = [memory_rule(predictions, job.cluster), *knob_rules(spec)]
    study = Study(
        space,
        predictions,
        user.settings,
        rules=rules,
        limits=search_limits(job.request, job.cluster),
    )
    rejected = sum(count for _, count in study.rejected)
    considered = len(space.table) + sum(count for _, count in space.rejected)
    job.listener(
        SpaceBuilt(considered=considered, left=considered - rejected, rejected=study.rejected)
    )
    return study


def _paths(settings: AutotuningSettings, stem: str) -> ResultsPaths:
    here = Path.cwd()
    return ResultsPaths(
        results=here / (settings.results_dir or "autotuning_results"),
        exps=here / (settings.exps_dir or "autotuning_exps"),
        config_stem=stem,
    )
