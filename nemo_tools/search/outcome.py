"""From records of runs to the values that the report is made of."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from autoconf_launch.autotuner.measurement import FINAL_SUFFIX
from autoconf_launch.autotuner.sizing import SampleShape
from autoconf_launch.autotuner.space import Measurement, Record
from autoconf_launch.core import Failure, FailureKind
from autoconf_launch.launcher.report import duration_text
from autoconf_launch.launcher.tuning import TrialLimits

from ..report import NOT_STARTED, SearchOutcome, SearchRun, without_impossible
from .candidate_file import knobs_of, training_document
from .candidates import CandidateList, SearchCandidate, gpu_peak_flops_per_s
from .hp_search import HpRuns, RunLimits
from .question import SearchQuestion, decoder_tokens

_STEPS_SHARE = 0.9
"""Share of a run's minutes for its steps; the rest is for its start."""
_GRACE_S = 30.0
_SURELY = 2.0
"""A prediction is taken to be off by this factor at most."""
_FEWEST_MICRO_BATCHES = 2
"""Micro-batches that a run must make of its first step: one, and one with the gradient sync."""
_SAME_TIME = 0.95
"""Share of a run's minutes above which an earlier run had as many."""


def training_limits(question: SearchQuestion, stall_s: float, spare_s: float = 0.0) -> RunLimits:
    """Limits of a training run; ``spare_s`` is for a scheduler that ends it first."""
    scope = question.scope
    return RunLimits(
        steps=scope.max_steps,
        steps_s=_steps_limit_s(scope.max_minutes),
        launch=TrialLimits(
            timeout_s=_run_limit_s(scope.max_minutes) + spare_s,
            stall_s=stall_s,
            timeout_by="max_minutes_per_run",
        ),
    )


def _steps_limit_s(minutes: float) -> float:
    return _STEPS_SHARE * 60.0 * minutes


def _run_limit_s(minutes: float) -> float:
    return 60.0 * minutes + _GRACE_S


def least_run_s(one: SearchCandidate) -> float:
    """Predicted seconds of the least that a run must make: a step, or the start of a long one."""
    share = min(1.0, _FEWEST_MICRO_BATCHES / one.layout.accumulation)
    return share * (one.step_s or 0.0)


def is_too_slow(one: SearchCandidate, minutes: float) -> bool:
    """True if a run cannot make its least work in time, even if twice as fast as predicted."""
    return least_run_s(one) > _SURELY * 60.0 * minutes


def in_time_first(found: Sequence[SearchCandidate], minutes: float) -> tuple[SearchCandidate, ...]:
    """Candidates in time though half as fast as predicted, before the others."""
    limit_s = _steps_limit_s(minutes)
    return tuple(sorted(found, key=lambda one: _SURELY * least_run_s(one) > limit_s))


def all_too_slow(found: Sequence[SearchCandidate], minutes: float) -> str:
    """A sentence for a search whose candidates are all too slow."""
    fastest_s = min(least_run_s(one) for one in found)
    return (
        f"No candidate can make {_FEWEST_MICRO_BATCHES} micro-batches here within "
        f"max_minutes_per_run = {minutes:g}: the fastest is predicted to take "
        f"{duration_text(fastest_s)} for them; give a smaller model or seq_length, or more "
        "minutes."
    )


def counts(record: Record, minutes: float) -> bool:
    """True if an earlier outcome still counts: its run had at least as much time."""
    failure = record.failure
    is_late = failure is not None and failure.kind is FailureKind.TIMED_OUT
    return not is_late or record.wall_s >= _SAME_TIME * _run_limit_s(minutes)


def are_extrapolated(records: Sequence[Record]) -> bool:
    """True if no whole step fitted; then there is no time to measure the best again."""
    made = [record.measurement for record in records if record.measurement]
    return any(one.extrapolated_from is not None for one in made)


def why_too_slow(one: SearchCandidate) -> Failure:
    """The reason for which a candidate that cannot make its least work is not started."""
    detail = (
        f"{NOT_STARTED}: a few micro-batches are predicted to take "
        f"{duration_text(least_run_s(one))}, more than max_minutes_per_run"
    )
    return Failure(kind=FailureKind.TIMED_OUT, detail=detail)


def outcome_of(
    question: SearchQuestion,
    found: CandidateList,
    runs: HpRuns[SearchCandidate],
    notes: tuple[str, ...],
) -> SearchOutcome:
    """Every candidate, measured, failed or not started, in the order of the search."""
    usd = question.scope.usd_per_gpu_hour
    rejected = ((one.candidate, one.failure) for one in found.rejected)
    return question_outcome(
        question,
        _runs(question, runs, (*runs.outcomes(), *rejected)),
        nodes=found.nodes,
        gpu=runs.device,
        usd_per_gpu_hour=usd,
        price="" if usd is None else "as given",
        notes=notes,
    )


def question_outcome(
    question: SearchQuestion,
    runs: Iterable[SearchRun],
    *,
    nodes: int,
    gpu: str | None = None,
    **others: Any,
) -> SearchOutcome:
    """Runs of a question, without step times that its GPU, or the named one, cannot reach."""
    asked, shape = question.model.asked, question.model.shape
    found = SearchOutcome(
        size_b=question.size_b,
        nodes=nodes,
        gpus_per_node=question.gpus_per_node,
        tokens_b=question.tokens_b,
        shape=SampleShape(
            family=question.family,
            layers=shape.layers,
            hidden=shape.hidden,
            ffn=shape.ffn,
            vocabulary=asked.vocabulary,
            sequence=asked.sequence,
            decoder_sequence=decoder_tokens(question.base, asked.sequence),
        ),
        base=question.base,
        runs=tuple(runs),
        gpu_peak_flops_per_s=gpu_peak_flops_per_s(question, gpu),
        **others,
    )
    return without_impossible(found)


def _runs(
    question: SearchQuestion,
    runs: HpRuns[SearchCandidate],
    outcomes: Iterable[tuple[SearchCandidate, Record | Failure]],
) -> Iterator[SearchRun]:
    finals: dict[str, list[Measurement]] = {}
    for record in runs.finals:
        if record.measurement is not None:
            name = record.trial.name.removesuffix(FINAL_SUFFIX)
            finals.setdefault(name, []).append(record.measurement)
    for one, found in outcomes:
        run = SearchRun(
            name=one.name,
            point=one.point,
            global_batch=one.layout.global_batch,
            config=training_document(question, one),
            knobs=knobs_of(one),
        )
        if isinstance(found, Failure):
            yield replace(run, failure=found)
        elif found.failure is not None:
            yield replace(run, failure=_in_our_words(found.failure, question.scope.max_minutes))
        elif found.measurement is not None:
            made = (found.measurement, *finals.get(one.name, ()))
            whole = replace(run, whole_micro_batches=one.layout.accumulation)
            yield measured_run(whole, made)


def measured_run(run: SearchRun, made: Sequence[Measurement]) -> SearchRun:
    """A run with its measurements, of which the first is the search's."""
    steps = [step_s for m in made for step_s in m.step_s]
    fullest = max((m.memory for m in made if m.memory), key=lambda m: m.peak_bytes, default=None)
    return replace(
        run,
        global_batch=made[0].samples_per_step,
        steps=len(steps),
        extrapolated_from=made[0].extrapolated_from,
        step_s=statistics.fmean(steps),
        step_spread_s=statistics.stdev(steps) if len(steps) > 1 else None,
        peak_bytes=fullest.peak_bytes if fullest else None,
        memory_bytes=fullest.limit_bytes if fullest else None,
        loss=made[0].losses[-1] if made[0].losses else None,
    )


def _in_our_words(failure: Failure, minutes: float) -> Failure:
    """A search's limit of time has another name than a tune's.

    A run ends by itself once it has a step, or a few micro-batches of one.
    """
    if failure.kind is not FailureKind.TIMED_OUT:
        return failure
    detail = f"no step, nor enough micro-batches of one, within {minutes:g} minutes"
    return replace(failure, detail=f"{detail} (max_minutes_per_run)")
