"""Tune, and on request train with the winner. Not: any single step of it.

The order of things: read, profile, build the space, predict, run the study and the playoff, write
the results.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from autoconf_launch.autotuner.playoff import (
    Decider,
    TimeParts,
    predicted_outlook,
    summarise,
    time_left,
)
from autoconf_launch.autotuner.search import (
    MARGIN,
    SearchLimits,
    StopKind,
    StopReason,
    Study,
    at_last_level,
    baseline_trial,
)
from autoconf_launch.autotuner.space import Record
from autoconf_launch.core import NothingFeasibleError, result_file, take_in_all

from ..engines import Backend, LaunchEngine
from ..estimates import choose_price, profiled_format_gains
from ..events import Finished, Listener, Note, TuneBegun
from ..hosts import (
    engine_for,
    find_pool,
    pool_text,
    require_one_start,
    trial_engine,
    why_not_in_turn,
)
from ..interrupts import stopping_on_signals
from ..launch import forked_imports, plan_launch, printed_error
from ..report import (
    TF32_SWITCH,
    crash_text,
    format_gains_text,
    no_trial_text,
    planned_tune_text,
    refused_text,
    room_text,
    stop_sentence,
)
from ..request import LaunchRequest, TrackingChoice
from ..results import (
    JournalContents,
    OpenFolder,
    fingerprint,
    open_folder,
    read_result,
    render_unsearched,
    write_environment,
)
from ..spelling import Rendered
from ..trackers import feed_of, track_events
from ..tuning import (
    BudgetSpentError,
    Checkpoints,
    Controller,
    Endgame,
    OtherStartError,
    Search,
    Site,
    TimeBudget,
    TrialFiles,
    TrialLimits,
    TuningJob,
    check_start,
    datasheet_times,
    find_model,
    find_past_times,
    first_that_starts,
    impossible_flops,
    job_crash,
    known_refusal,
    late_crash,
    make_study,
    open_space,
    play,
    read_job,
    read_measured,
    recall_start,
    remember_times,
    render_winner,
    said_by_probes,
    search_limits,
    trial_time,
    watching_checkpoints,
    with_outlook,
    write_results,
)
from .launch import run_to_end

_T = TypeVar("_T")
_TF32_SWITCHES = {"hf_trainer": "--tf32 true"}
"""Words of dialects whose scripts have some for it."""
_MUCH = 0.25
"""Share of a budget that is worth another trial after the playoff."""


def run_tune(request: LaunchRequest, listener: Listener, began_s: float | None = None) -> int:
    """Find the best configuration; with ``--autotuning=run`` then train with it.

    With ``--dry-run`` only list the candidates, after the profile run.

    Args:
        request: the user's request.
        listener: receiver of each event.
        began_s: start of the command and of its time budget on ``time.monotonic``; None:
            now.

    Returns:
        0, or the training's own exit code.

    Raises:
        NothingFeasibleError: the baseline fails, nothing fits, or the script crashes after its
            trials.
    """
    require_one_start(request.hosts)
    if request.dry_run:
        request = replace(request, tracking=TrackingChoice())
    job = read_job(request, listener, began_s)
    given = render_unsearched(job.dialect, job.source, job.user)
    print_ = fingerprint(job.request, job.cluster, job.source, job.user.settings, given)
    fresh = request.fresh or job.user.settings.overwrite
    with stopping_on_signals(), open_folder(job.paths, print_, fresh=fresh) as folder:
        for text in folder.notes:
            listener(Note(text=text))
        write_environment(job.paths, request, job.cluster, job.user.settings)
        with (
            track_events(
                request.tracking, feed_of(request), job.paths.tracking, listener
            ) as heard,
            closing(_trial_engine(job, heard)) as backend,
        ):
            own = (job.paths.results, job.paths.exps)
            heard = watching_checkpoints(heard, Checkpoints(Path.cwd(), own))
            job = replace(job, listener=heard)
            if request.dry_run:
                _as_it_starts(job, folder, partial(_forecast, backend=backend))
                return 0
            job, found = _as_it_starts(job, folder, partial(_search, backend=backend))
    if found.crash is not None:
        raise found.crash
    if request.autotuning == "tune":
        return 0
    plan = plan_launch(job.request, job.cluster, found.winner)
    return run_to_end(plan, engine_for(job.request, job.cluster, listener))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The winner as a launch spells it; ``crash``: reason not to train with it as it is."""

    winner: Rendered
    crash: NothingFeasibleError | None


def _search(job: TuningJob, folder: OpenFolder, backend: Backend) -> tuple[TuningJob, _Found]:
    return job, search_for_winner(job, folder, backend)


def _as_it_starts(
    job: TuningJob, folder: OpenFolder, run: Callable[[TuningJob, OpenFolder], _T]
) -> _T:
    """Run with the script as it must be started, which a launch of it may change."""

    def attempt(request: LaunchRequest) -> _T:
        nonlocal folder
        try:
            return run(job.with_start(request), folder)
        except BudgetSpentError as error:
            settings = job.user.settings
            write_environment(job.paths, job.request, job.cluster, settings, refused=str(error))
            raise
        except OtherStartError as other:
            if other.keeps_profile:
                folder = replace(folder, contents=folder.journal.read(), profiled_now=True)
            else:
                folder = folder.restart()
            raise

    known = recall_start(job.request, job.paths) if folder.contents.profiled else job.request
    return first_that_starts(known, attempt, job.paths, job.listener)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """Everything before the first trial; ``profile_s`` is None if an earlier profile was read."""

    job: TuningJob
    files: TrialFiles
    site: Site
    study: Study
    profile_s: float | None
    at_once: int


def _prepare(job: TuningJob, backend: Backend, folder: OpenFolder) -> _Prepared:
    """The profile run, or the findings of an earlier one, and the study that follows from it."""
    pool = find_pool(job.request, job.cluster)
    site = Site(backend=backend, pool=pool, folder=folder)
    at_once = pool.room(pool.usual)
    began_s, is_known = time.monotonic(), folder.contents.profiled
    job = find_model(job, site)
    profile_s = None if is_known else time.monotonic() - began_s
    if folder.profiled_now:
        profile_s = folder.contents.profile_s
    if at_once > 1:  # said only here: the profile run may ask for another start
        job.listener(Note(text=pool_text(pool)))
    job = read_measured(job, site)
    untimed = datasheet_times(job)
    _say_faster_formats(job)
    return _Prepared(
        job=job,
        files=TrialFiles.of_job(job, untimed),
        site=site,
        at_once=at_once,
        study=make_study(job, find_past_times(job, folder), untimed),
        profile_s=profile_s,
    )


def _say_faster_formats(job: TuningJob) -> None:
    """Report the gain of TF32 or 16 bits, which no candidate changes."""
    profile = read_result(job.paths.profile / result_file(0))
    precision = job.user.workload.precision
    gains = profiled_format_gains(job.cluster, precision, profile, job.spec)
    switch = _TF32_SWITCHES.get(job.dialect.name, TF32_SWITCH)
    if text := format_gains_text(gains, switch):
        job.listener(Note(text=text))


def _forecast(job: TuningJob, folder: OpenFolder, backend: Backend) -> None:
    """Report the candidates, their duration and their cost."""
    ready = _prepare(job, backend, folder)
    baseline = baseline_trial(ready.study.space.baseline)
    planned = ((baseline.candidate, ready.files.predict(baseline)), *ready.study.untried)
    effort = job.effort
    limits = search_limits(job.request, job.budget, effort)
    seen = predicted_outlook(
        [prediction for _, prediction in planned[: limits.trials]],
        effort,
        profile_s=ready.profile_s,
        at_once=ready.at_once,
        verifies=job.request.verifies,
    )
    whole = time_left(seen) if seen else None
    price = choose_price(None, job.cluster)
    text = planned_tune_text(
        planned,
        job.cluster.least_memory_bytes,
        whole.within(limits.whole_s or math.inf) if whole else None,
        usd_per_hour=price.usd_per_gpu_hour * len(job.cluster.devices) if price else None,
    )
    job.listener(Finished(text=text))


def search_for_winner(job: TuningJob, folder: OpenFolder, backend: Backend) -> _Found:
    """Search from the profile run to the results.

    Raises:
        NothingFeasibleError: the baseline fails, or nothing fits.
    """
    ready = _prepare(job, backend, folder)
    job, files, site, study = ready.job, ready.files, ready.site, ready.study
    limits = job.limits
    budget = search_limits(job.request, job.budget, job.effort)

    def control(decider: Decider, listener: Listener, limits: TrialLimits) -> Controller:
        return Controller(
            decider, backend, files, journal=folder.journal, listener=listener, limits=limits
        )

    def confirm(earlier: JournalContents) -> Endgame:
        return play(
            _searched_by(study, ready, elapsed_s=controller.elapsed_s),
            control,
            listener=job.listener,
            limits=limits,
            earlier=earlier,
            soak_asked=job.request.soak_steps,
        )

    _say_begun(ready, budget)
    before_s = job.budget.spent_s
    controller = control(study, with_outlook(study, job.listener), limits)
    contents = open_space(folder, study.space, job.listener)
    controller.resume(contents.search)
    if (refusal := known_refusal(job, contents)) is not None:
        controller.take_known(baseline_trial(study.space.baseline), refusal)
    elif not contents.history:
        _plan_budget(ready, budget)
    stop = controller.run(site.pool)
    failed = _baseline_error(job, study, stop)
    searched_s = job.budget.spent_s
    end = Endgame(elapsed_s=controller.elapsed_s) if stop.is_error else confirm(contents)
    confirmation_s = job.budget.spent_s - searched_s
    if _goes_on(job.budget, study, confirmation_s):
        known, stop = folder.journal.read(), controller.run(site.pool)
        searched_s, end = job.budget.spent_s, confirm(known)
        confirmation_s += job.budget.spent_s - searched_s
    if (crash := late_crash(study, (*end.playoff, *end.soaks))) is not None:
        check_start(job, crash, site)
    if len(study.records) > len(contents.records):
        remember_times(job, at_last_level(study.records, study.repeats))
    parts = TimeParts(
        profile_s=before_s,
        trials_s=job.budget.spent_s - before_s - confirmation_s,
        confirmation_s=confirmation_s,
    )
    return _conclude(job, study, end, stop, parts, failed)


def _say_begun(ready: _Prepared, limits: SearchLimits) -> None:
    job = ready.job
    job.listener(
        TuneBegun(
            effort=job.effort,
            budget_s=limits.whole_s,
            trials=limits.trials,
            at_once=ready.at_once,
            verifies=job.request.verifies,
        )
    )


def _goes_on(budget: TimeBudget, study: Study, confirmation_s: float) -> bool:
    is_much = math.isfinite(budget.whole_s) and budget.left_s > _MUCH * budget.whole_s
    until_s = budget.end_s - confirmation_s
    return is_much and study.extend(until_s, elapsed_s=budget.spent_s)


def _baseline_error(job: TuningJob, study: Study, stop: StopReason) -> Exception | None:
    """The error if the baseline failed; None: it ran.

    Raises:
        OtherStartError: the script may have to be started in another way.
    """
    failure = study.records[-1].failure if study.records else None
    if stop.kind is not StopKind.BASELINE_FAILED or failure is None:
        return None
    error = job_crash(job, NothingFeasibleError(stop_sentence(stop), stop.log_tail), failure)
    if isinstance(error, OtherStartError):
        raise error
    return error


def _plan_budget(ready: _Prepared, limits: SearchLimits) -> None:
    """Report the number of trials that the budget has room for.

    Raises:
        BudgetSpentError: it has room for none.
    """
    job, study = ready.job, ready.study
    trial_s = trial_time(job, ready.files.predict(baseline_trial(study.space.baseline)))
    if trial_s is None or limits.whole_s is None:
        return
    spent_s, trials = job.budget.spent_s, 1 + study.open_count
    if limits.trials is not None:
        trials = min(trials, limits.trials)
    room = limits.trials_in_time(trial_s, spent_s=spent_s, most=trials, at_once=ready.at_once)
    others = math.ceil((trials - 1) / ready.at_once) if room else 1
    share = job.effort.search_share
    enough_s = (spent_s + MARGIN * trial_s * (1 + others)) / share
    if not room:
        raise BudgetSpentError(
            no_trial_text(
                trial_s,
                profile_s=job.profile_s if ready.profile_s is not None else None,
                budget_s=limits.whole_s,
                enough_s=enough_s,
            )
        )
    text = room_text(trial_s, room=room, trials=trials, budget_s=limits.whole_s, enough_s=enough_s)
    job.listener(Note(text=text))


def _searched_by(study: Study, ready: _Prepared, *, elapsed_s: float) -> Search:
    job, pool = ready.job, ready.site.pool
    why_not = why_not_in_turn(job.request, job.cluster, job.source, job.paths.results)
    return Search(
        records=study.seen.compared,
        repeats=study.repeats,
        settings=study.settings,
        elapsed_s=elapsed_s,
        budget=job.budget,
        apart="they run on other hosts" if pool.is_on_hosts else why_not,
        hosts=pool if pool.is_on_hosts else None,
        side_by_side=ready.at_once > 1,
        noise=study.seen.noise,
    )


def _trial_engine(job: TuningJob, listener: Listener) -> LaunchEngine:
    """The engine of the trials; on this machine, ranks in Python are forked if they can be."""
    imports = forked_imports(job.request, is_ours=not job.dialect.is_external)
    return trial_engine(job.request, job.cluster, listener, imports=imports)


def _conclude(
    job: TuningJob,
    study: Study,
    end: Endgame,
    stop: StopReason,
    parts: TimeParts,
    failed: Exception | None,
) -> _Found:
    take_in_all(job.paths.results)
    said = said_by_probes(job.paths.results, Path.cwd(), job.paths.exps)
    notes = (*end.notes, *said)
    for text in notes:
        job.listener(Note(text=text, warning=True))
    summary = summarise(
        study,
        duration_s=parts.profile_s + end.elapsed_s,
        optimizer=job.user.workload.optimizer,
        playoff=end.playoff,
        soaks=end.soaks,
    )
    records = (*study.records, *study.repeats, *end.playoff, *end.soaks)
    impossible = impossible_flops(records, job.cluster)
    summary = replace(summary, notes=notes, parts=parts, impossible=impossible)
    winner = render_winner(summary, job.dialect, job.source, job.paths)
    text = write_results(
        job.paths,
        summary,
        request=job.request,
        source=job.source,
        winner=winner,
    )
    soak, best = summary.decision.soak, summary.decision.winner
    if winner is None or best is None:
        reason = refused_text(soak) if soak and not soak.passed else stop_sentence(stop)
        raise failed or NothingFeasibleError(reason, stop.log_tail)
    job.listener(
        Finished(
            text=text,
            winner=best,
            folder=job.paths.results,
            compared=tuple(summary.decision.compared.values()),
        )
    )
    return _Found(winner=winner, crash=_crash_error(job, end.soaks) if crash_text(soak) else None)


def _crash_error(job: TuningJob, soaks: Sequence[Record]) -> NothingFeasibleError:
    """The end of a tune whose script crashed in its last verification run."""
    last = soaks[-1]
    lines = printed_error(job.paths.trial(last.trial.name))
    if last.failure is not None:
        lines = last.failure.log_tail
    text = f"The script crashed; what was measured before is in {job.paths.results}."
    return NothingFeasibleError(text, lines)
