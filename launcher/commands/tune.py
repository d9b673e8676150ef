"""Tune, and on request train with the winner. Not: any single step of it.

The order of things: read, profile, build the space, predict, run the study and the finals, write
the results.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.autotuner.budget import SearchBudget
from autoconf_launch.autotuner.cluster import ClusterSpec
from autoconf_launch.autotuner.decider import Decider
from autoconf_launch.autotuner.limits import SearchLimits
from autoconf_launch.autotuner.planner import knob_rules, memory_rule, predict
from autoconf_launch.autotuner.settings import AutotuningSettings
from autoconf_launch.autotuner.settle import findings, settled
from autoconf_launch.autotuner.space import build_space
from autoconf_launch.autotuner.strategies import load_strategy
from autoconf_launch.autotuner.study import StopReason, Study, baseline_trial
from autoconf_launch.autotuner.summary import summarise
from autoconf_launch.core import ModelSpec, NothingFeasibleError
from autoconf_launch.core.rank import MODEL_INFO_FILE

from ..backends import load_backend, released
from ..backends.base import Backend
from ..controller import Controller, TrialLimits
from ..dialects import Dialect, Rendered, ScriptSource, UserSettings, choose_dialect
from ..dialects.native import NativeDialect
from ..discover import find_cluster
from ..endgame import Endgame, Search, play
from ..events import Finished, Listener, ModelProfiled, Note, SpaceBuilt
from ..fingerprint import environment_document, fingerprint
from ..foreign import as_script_expects, told
from ..interrupts import stopping_on_signals
from ..paths import ResultsPaths
from ..planner.price_choice import choose_price
from ..planning import plan_launch, require_script
from ..profile_run import read_model_info, run_profile
from ..request import LaunchRequest
from ..results_folder import OpenFolder, open_folder
from ..script_source import find_script_source
from ..slots import Share, find_shares, shares_text
from ..trackers import check_tracking
from ..trackers.feed import feed_of
from ..trackers.listening import tracked
from ..trial_files import TrialFiles, write_json
from ..winner import render_winner, write_results
from ..wrapped_launch import unwrapped
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
    print_ = fingerprint(request, job.cluster, job.source, job.user.settings)
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
            winner = search(replace(job, listener=heard), backend, folder)
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
    request = as_script_expects(request, dialect, source)
    cluster = find_cluster(request, listener)
    user = dialect.read(
        source,
        world_size=len(cluster.devices),
        overrides=request.overrides,
        allow_global_batch_change=request.allow_global_batch_change,
    )
    load_strategy(user.settings.tuner_type)  # a wrong name is said before anything runs
    check_tracking(request.tracking)
    for warning in (*choice.notes, *user.warnings):
        listener(Note(text=warning, warning=True))
    return TuningJob(
        request=request,
        source=source,
        dialect=dialect,
        cluster=cluster,
        user=user,
        paths=_paths(user.settings),
        listener=listener,
    )


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
    if len(shares) > 1:
        job.listener(Note(text=shares_text(shares)))
    spec = _profile(job, files, backend, folder, shares[0])
    files.describe_model(spec, job.user.facts)
    study = _study(job, spec)
    limits = TrialLimits(
        timeout_s=job.request.trial_timeout_s, stall_s=job.request.stall_timeout_s
    )

    def control(decider: Decider, listener: Listener, limits: TrialLimits) -> Controller:
        return Controller(
            decider, backend, files, journal=folder.journal, listener=listener, limits=limits
        )

    controller = control(study, job.listener, limits)
    controller.resume(folder.contents)
    stop = controller.run(shares)
    end = Endgame(elapsed_s=controller.elapsed_s)
    if not stop.is_error:
        end = play(
            Search(
                records=study.records,
                objective=study.objective,
                elapsed_s=controller.elapsed_s,
                takes_turns=isinstance(job.dialect, NativeDialect),
                side_by_side=len(shares) > 1,
            ),
            control,
            listener=job.listener,
            limits=limits,
            earlier=folder.contents,
            soak_asked=job.request.soak_steps,
        )
    return _conclude(job, study, end, stop)


def _trial_backend(job: TuningJob) -> str:
    """Ranks of our own runtime in Python are forked; who names another backend gets that."""
    ours = isinstance(job.dialect, NativeDialect) and job.request.kind != "program"
    return "zygote" if ours and job.request.backend == "local" else job.request.backend


def _conclude(job: TuningJob, study: Study, end: Endgame, stop: StopReason) -> Rendered:
    for text in findings(study.records, end.finals, study.objective, end.soaks):
        job.listener(Note(text=text, warning=True))
    facts, settings = job.user.facts, job.user.settings
    searched = summarise(study, duration_s=end.elapsed_s, facts=facts)
    summary = settled(searched, study.records, end.finals, settings, facts, end.soaks)
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
        event = run_profile(
            share.place(plan, alone=True),
            backend,
            journal=folder.journal,
            timeout_s=job.request.trial_timeout_s,
        )
    job.listener(event)
    return event.spec


def _study(job: TuningJob, spec: ModelSpec | None) -> Study:
    user = job.user
    space = build_space(user.baseline, user.choices, user.batch_rule, user.settings)
    for text in space.notes:
        job.listener(Note(text=text))
    predictions = predict(space.table, spec, job.cluster, user.facts)
    fits = memory_rule(predictions, job.cluster)
    rules = [fits, *knob_rules(spec)]
    study = Study(space, predictions, user.settings, rules=rules, limits=_limits(job))
    rejected = sum(count for _, count in study.rejected)
    considered = len(space.table) + sum(count for _, count in space.rejected)
    job.listener(
        SpaceBuilt(considered=considered, left=considered - rejected, rejected=study.rejected)
    )
    return study


def _limits(job: TuningJob) -> SearchLimits:
    """The user's, money as time at the price of the machine."""
    request = job.request
    budget, good_enough = request.budget or SearchBudget(), request.good_enough or None
    price = None if budget.usd is None else choose_price(None, job.cluster)
    usd_per_hour = price.usd_per_gpu_hour * len(job.cluster.devices) if price else None
    return SearchLimits(
        seconds=budget.limit_s(usd_per_hour), trials=budget.trials, good_enough=good_enough
    )


def _paths(settings: AutotuningSettings) -> ResultsPaths:
    here = Path.cwd()
    return ResultsPaths(
        results=here / (settings.results_dir or "autotuning_results"),
        exps=here / (settings.exps_dir or "autotuning_exps"),
    )
