"""The profile run: one launch that describes the model, and the baseline as it was applied.

A second profile run with another micro-batch shows whether a script that computes its accumulation
from a total keeps the samples of a step.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from autoconf_launch.autotuner.search import baseline_trial
from autoconf_launch.autotuner.space import FailedTrial
from autoconf_launch.core import (
    MODEL_INFO_FILE,
    STEPS_FILE,
    AppliedStrategy,
    Candidate,
    DecodeError,
    Failure,
    FailureKind,
    HardwareError,
    Layout,
    MemoryUse,
    ModelSpec,
    NothingFeasibleError,
    RankResult,
    ResultsFolderError,
    decode,
    result_file,
)

from ..engines import Backend, Job, JobEnd
from ..events import Listener, ModelProfiled, Note
from ..hosts import SlotPool
from ..launch import compile_time
from ..plan import LaunchPlan
from ..report import no_second_profile_text, profile_cut_text
from ..results import HEARTBEAT_S, OpenFolder, StepsTail, read_file, read_result
from ..spelling import MEASURED, UNSET, may_derive_accumulation
from .job import TuningJob
from .running import (
    MOST_LOSSES,
    BudgetSpentError,
    TrialLimits,
    launch_loss,
    lost_too_often,
    out_of_time,
    timed_out_text,
)
from .trial_io import TrialFiles, clear_saved

_SLOW_S = 20.0
"""After this a profile run reports its log: DeepSpeed's first one compiles for minutes."""
_BROKE_OFF = (FailureKind.CRASHED, FailureKind.BAD_CONFIG)
"""Failures of a script that had described its model before."""
_WORDS = {"micro_batch": "micro-batch", "zero_stage": "ZeRO stage"}


class ProfileFailedError(NothingFeasibleError):
    """The profile run failed for another reason than memory."""

    def __init__(self, message: str, failure: Failure) -> None:
        super().__init__(message, failure.log_tail)
        self.failure = failure


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The engine, the slots and the open results folder of a tune's launches."""

    backend: Backend
    pool: SlotPool
    folder: OpenFolder


def run_profile(
    make_plan: Callable[[], LaunchPlan], site: Site, limits: TrialLimits, listener: Listener
) -> ModelProfiled:
    """Run a plan and read its report; no model if it does not fit in memory.

    If a host is lost it runs again, on the pool's other hosts. ``listener`` is informed once while
    a long one goes on. ``limits`` end it: their time or the budget's deadline.

    Raises:
        BudgetSpentError: it did not end before the deadline.
        ProfileFailedError: the script fails for another reason than memory.
        NothingFeasibleError: it describes no model.
        HardwareError: no launch kept its hosts.
    """
    losses, pool, journal = list[tuple[str, ...]](), site.pool, site.folder.journal
    while True:
        plan = pool.first_share.place(make_plan(), alone=True)
        folder = Path(plan.folder or ".")
        job = site.backend.submit(plan)
        end = wait_for_end(site, job, limits, partial(listener, _slow_note(folder)))
        clear_saved(folder)
        if isinstance(end.outcome, FailedTrial) and limits.budget.left_s <= 0.0:
            raise BudgetSpentError(_cut_text(folder, limits))
        if (loss := launch_loss(end)) is None:
            break
        losses.append(end.lost_hosts)
        pool.blame(end.lost_hosts)
        if len(losses) == MOST_LOSSES or not pool.can_hold(pool.usual):
            why = lost_too_often(losses, loss).detail
            raise HardwareError(f"The profile run failed: {why}; repair or exclude the hosts.")
        listener(Note(text=f"The profile run is launched again: {loss.detail}.", warning=True))
    spec = read_model_info(folder / MODEL_INFO_FILE)
    _require_end(end, folder, described=spec is not None)
    journal.write_profiled(end.wall_s)
    return ModelProfiled(spec=spec, wall_s=end.wall_s)


def _cut_text(folder: Path, limits: TrialLimits) -> str:
    steps = StepsTail(folder / STEPS_FILE).new()
    is_first = bool(steps) and all(step.step == 1 for step in steps)
    return profile_cut_text(
        limits.budget.whole_s,
        folder,
        first_step_s=max(step.wall_s for step in steps) if is_first else None,
        timeout_s=limits.timeout_s,
    )


def _slow_note(folder: Path) -> Note:
    text = f"The profile run has taken {_SLOW_S:g} s so far; its output is in {folder}."
    return Note(text=text)


def read_model_info(path: Path) -> ModelSpec | None:
    """The model's description; None if there is none that can be read."""
    try:
        return decode(ModelSpec, json.loads(read_file(path)))
    except (OSError, ValueError, RecursionError, DecodeError, ResultsFolderError):
        return None


def refused_weights(folder: Path) -> MemoryUse | None:
    """Memory of a rank whose weights were already too large in the profile run."""
    refused = (result.memory for result in _failed_ranks(folder))
    return next((memory for memory in refused if memory and memory.weights_alone), None)


def refused_baseline(folder: Path) -> FailedTrial | None:
    """The outcome of a profile run that ran out of memory with the baseline itself."""
    for result in _failed_ranks(folder):
        if result.failure and result.failure.kind is FailureKind.OUT_OF_MEMORY:
            return FailedTrial(failure=result.failure, memory=result.memory)
    return None


def is_on_gpu(folder: Path) -> bool:
    """True if rank 0 of the profile run measured a GPU's memory; True if it measured none."""
    result = read_result(folder / result_file(0))
    memory = result.memory if result else None
    return memory is None or memory.reserved_bytes is not None


def _failed_ranks(folder: Path) -> Iterator[RankResult]:
    results = map(read_result, sorted(folder.glob("result*.json")))
    return (result for result in results if result and result.failure)


def wait_for_end(
    site: Site, job: Job, limits: TrialLimits, say_slow: Callable[[], None] = lambda: None
) -> JobEnd:
    """Return when a job has ended, at the latest when its time or the budget is over."""
    backend = site.backend
    began_s, slow_s, is_cancelled = time.monotonic(), _SLOW_S, False
    reason = Failure(kind=FailureKind.PREEMPTED, detail="the launcher was interrupted")
    try:
        while True:
            if job.is_queued:  # its time begins when it has hosts
                began_s = time.monotonic()
            left_s = began_s + limits.timeout_s - time.monotonic()
            compiled_s = compile_time(job.plan.task).seconds if left_s <= 0 else 0.0
            left_s = min(left_s + min(compiled_s, limits.timeout_s), limits.budget.left_s)
            left_s = math.inf if is_cancelled else left_s
            backend.wait([job], min(max(left_s, 0.0), HEARTBEAT_S))
            site.folder.journal.heartbeat()
            end = backend.poll([job])[0]
            if end is not None:
                return end
            if time.monotonic() >= began_s + slow_s:
                say_slow()
                slow_s = float("inf")
            if left_s <= 0:
                backend.cancel(job, _overdue(limits, compiled_s))
                is_cancelled = True
    except BaseException:
        backend.cancel(job, reason)
        while backend.poll([job])[0] is None:
            backend.wait([job], HEARTBEAT_S)
        raise


def _overdue(limits: TrialLimits, compiled_s: float) -> Failure:
    if limits.budget.left_s <= 0.0:
        return out_of_time()
    detail = timed_out_text(limits.timeout_s, limits.timeout_by, compiled_s)
    return Failure(kind=FailureKind.TIMED_OUT, detail=detail)


def _require_end(end: JobEnd, folder: Path, *, described: bool) -> None:
    """Raise unless the run described the model and ended well, or ran out of memory."""
    failure = end.outcome.failure if isinstance(end.outcome, FailedTrial) else None
    if failure is None and not described:
        raise NothingFeasibleError(
            f"The script ended without describing its model; it must call "
            f"autoconf_launch.runtime.initialize and step. Its output is in {folder}."
        )
    if failure is None or failure.kind is FailureKind.OUT_OF_MEMORY:
        return
    if described and failure.kind not in _BROKE_OFF:
        return
    how = f"failed in its profile run ({failure.kind.value}: {failure.detail})"
    if failure.kind is FailureKind.NO_STEPS:
        how = f"ended without a measured step: {failure.detail}"
    text = f"The script {how.rstrip('.')}. Its output is in {folder}."
    raise ProfileFailedError(text, failure)


def read_measured(job: TuningJob, site: Site) -> TuningJob:
    """The job with the strategy that ran, maybe in an earlier session; differences are reported.

    Raises:
        ConfigError: the strategy leaves nothing to search, or was not seen.
    """
    applied = None if job.dialect.reads_document else _read_applied(job.paths.profile)
    if applied is None:
        return job
    keeps = _other_batch(job, applied, site)
    source = replace(job.source, applied=applied, keeps_batch=keeps is not None)
    measured = job.with_source(source)
    notes = (text for text in measured.user.notes if text not in job.user.notes)
    for text in (*_differences(job, measured, keeps), *notes):
        job.listener(Note(text=text))
    for text in measured.user.warnings:
        if text not in job.user.warnings:
            job.listener(Note(text=text, warning=True))
    return measured


def other_micro_batch(layout: Layout) -> int | None:
    """Another micro-batch that divides a step's samples, a smaller one first."""
    for whole, larger in ((layout.micro_batch, False), (layout.accumulation, True)):
        for factor in range(2, whole + 1):
            if whole % factor == 0:
                return layout.micro_batch * factor if larger else layout.micro_batch // factor
    return None


def _other_batch(job: TuningJob, applied: AppliedStrategy, site: Site) -> AppliedStrategy | None:
    """The strategy of a second profile run, if it kept the samples of a step."""
    unset = any((c.knob, c.origin) == ("accumulation", UNSET) for c in job.user.choices)
    wonders = applied.accumulation > 1 or may_derive_accumulation(job.source)
    layout = replace(
        job.user.baseline.layout,
        micro_batch=applied.micro_batch or 1,
        accumulation=applied.accumulation,
    )
    micro = other_micro_batch(layout)
    if not (unset and wonders and micro and applied.micro_batch):
        return None
    each = applied.micro_batch * applied.accumulation
    other = replace(layout, micro_batch=micro, accumulation=each // micro)
    found = _read_applied(job.paths.second_profile)
    if found is None:
        first_s = job.profile_s or 0.0
        if 2.0 * first_s > job.budget.left_s:  # a trial takes about as long
            text = no_second_profile_text(first_s, job.budget.spent_s, job.budget.whole_s)
            job.listener(Note(text=text, warning=True))
            return None
        files = TrialFiles.of_job(job)
        trial = baseline_trial(Candidate(layout=other, extras=job.user.baseline.extras))
        try:
            event = run_profile(
                lambda: files.plan_profile(trial, uuid.uuid4().hex, is_second=True),
                site,
                job.limits,
                job.listener,
            )
            text = f"A second profile run, with micro-batch {micro}, took {event.wall_s:.1f} s."
            job.listener(Note(text=text))
        except BudgetSpentError:
            raise
        except NothingFeasibleError as error:
            text = (
                f"With micro-batch {micro} the script fails, so whether it would keep its global "
                f"batch is not known: {error}"
            )
            job.listener(Note(text=text, warning=True))
        found = _read_applied(job.paths.second_profile)
    is_kept = found is not None and (found.micro_batch, found.accumulation) == (
        other.micro_batch,
        other.accumulation,
    )
    return found if is_kept else None


def _differences(
    before: TuningJob, after: TuningJob, other: AppliedStrategy | None
) -> Iterator[str]:
    old, new = before.user.baseline.layout, after.user.baseline.layout
    if other is not None:
        yield (
            f"The script sets its accumulation itself: {new.accumulation} with micro-batch "
            f"{new.micro_batch}, {other.accumulation} with {other.micro_batch}. Its global batch "
            f"of {new.global_batch} stays."
        )
    elif new.accumulation != old.accumulation:
        yield (
            f"The script makes {new.accumulation} micro-batches per optimizer step, as its "
            f"profile run shows, and no argument sets that: its global batch is "
            f"{new.global_batch}."
        )
    origins = [{c.knob: c.origin for c in job.user.choices} for job in (before, after)]
    is_total = old.micro_batch == new.micro_batch * new.data_parallel != new.micro_batch
    if is_total:
        yield (
            f"{origins[1]['micro_batch']} is {old.micro_batch} for all ranks together, as the "
            f"profile run shows: each of the {new.data_parallel} had {new.micro_batch}."
        )
    found = [
        f"{_WORDS.get(knob, knob)} {getattr(value, 'value', value)}"
        for knob in MEASURED
        if (value := getattr(new, knob)) != getattr(old, knob)
        and knob != "accumulation"
        and not (is_total and knob == "micro_batch")
        and origins[0].get(knob) == origins[1].get(knob)  # else what sets it was found
    ]
    if found:
        yield (
            f"The profile run ran with {' and '.join(found)}, which no argument sets: that is "
            "the baseline."
        )


def _read_applied(folder: Path) -> AppliedStrategy | None:
    result = read_result(folder / result_file(0))
    return result.applied if result else None
