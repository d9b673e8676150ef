"""The baseline as its profile run applied it, for what no argument sets.

A second profile run with another micro-batch tells whether a script that makes its accumulation
of a total keeps the samples of a step.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from autoconf_launch.autotuner.search import baseline_trial
from autoconf_launch.core import (
    AppliedStrategy,
    Candidate,
    Layout,
    NothingFeasibleError,
    result_file,
)

from ..engines import Backend
from ..events import Note
from ..hosts import SlotPool
from ..report import no_second_profile_text
from ..results import OpenFolder, read_result
from ..spelling import MEASURED, UNSET, may_derive_accumulation
from .job import TuningJob, read_again, trial_limits
from .profile_run import run_profile
from .time_budget import BudgetSpentError
from .trial_io import TrialFiles

_WORDS = {"micro_batch": "micro-batch", "zero_stage": "ZeRO stage"}


def read_measured(
    job: TuningJob, files: TrialFiles, backend: Backend, folder: OpenFolder, pool: SlotPool
) -> TuningJob:
    """The job with what ran; it is said what was not known before.

    Args:
        job: what the script's words say.
        files: make the plan of a second profile run.
        backend: runs it.
        folder: of the results; an earlier session's profile runs are read from it.
        pool: the slots of which a profile run takes some.

    Raises:
        ConfigError: what ran leaves nothing to search, or was not seen.
    """
    applied = None if job.dialect.reads_document else _read_applied(job.paths.profile)
    if applied is None:
        return job
    keeps = _other_batch(job, applied, files, backend, folder, pool)
    source = replace(job.source, applied=applied, keeps_batch=keeps is not None)
    measured = read_again(job, source)
    notes = (text for text in measured.user.notes if text not in job.user.notes)
    for text in (*_differences(job, measured, keeps), *notes):
        job.listener(Note(text=text))
    for text in measured.user.warnings:
        if text not in job.user.warnings:
            job.listener(Note(text=text, warning=True))
    return measured


def other_micro_batch(layout: Layout) -> int | None:
    """Another one of which a step's samples are a multiple, a smaller one first."""
    for whole, larger in ((layout.micro_batch, False), (layout.accumulation, True)):
        for factor in range(2, whole + 1):
            if whole % factor == 0:
                return layout.micro_batch * factor if larger else layout.micro_batch // factor
    return None


def _other_batch(
    job: TuningJob,
    applied: AppliedStrategy,
    files: TrialFiles,
    backend: Backend,
    folder: OpenFolder,
    pool: SlotPool,
) -> AppliedStrategy | None:
    """What a second profile run applied, where it kept the samples of a step."""
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
        trial = baseline_trial(Candidate(layout=other, extras=job.user.baseline.extras))
        try:
            event = run_profile(
                lambda: files.plan_profile(trial, uuid.uuid4().hex, is_second=True),
                backend,
                pool=pool,
                journal=folder.journal,
                limits=trial_limits(job),
                listener=job.listener,
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
    """What rank 0 applied; None where it did not say."""
    result = read_result(folder / result_file(0))
    return result.applied if result else None
