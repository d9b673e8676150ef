"""From records of runs to the values that the report is made of."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autoconf_launch.autotuner.measurement import FINAL_SUFFIX
from autoconf_launch.autotuner.sizing import SampleShape
from autoconf_launch.autotuner.space import Measurement, Record
from autoconf_launch.core import Failure, FailureKind
from autoconf_launch.launcher.report import duration_text

from ..report import NOT_STARTED, SearchOutcome, SearchRun, without_impossible
from .candidate_file import knobs_of, training_document
from .candidates import Rejected, SearchCandidate, gpu_peak_flops_per_s
from .hp_search import HpRuns
from .prepare import Prepared
from .question import SearchQuestion, decoder_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneRuns:
    """Finished runs of a training search.

    Attributes:
        candidates: that were to be run, in order.
        finals: of the best, measured again in turn.
        too_slow: not started, as a few micro-batches would surely overrun the minutes of a run.
        rejected: not started, as the profiled model does not allow them.
        gpu: name of the device that ran; None: the one of the settings.
    """

    candidates: tuple[SearchCandidate, ...]
    runs: HpRuns
    finals: tuple[Record, ...] = ()
    too_slow: tuple[SearchCandidate, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    gpu: str | None = None


_STEPS_SHARE = 0.9
"""Share of a run's minutes for its steps; the rest is for its start."""
_GRACE_S = 30.0
_SURELY = 2.0
"""A prediction is taken to be off by this factor at most."""
_FEWEST_MICRO_BATCHES = 2
"""Micro-batches that a run must make of its first step: one, and one with the gradient sync."""
_SAME_TIME = 0.95
"""Share of a run's minutes above which an earlier run had as many."""


def steps_limit_s(minutes: float) -> float:
    """Seconds for the steps of a run."""
    return _STEPS_SHARE * 60.0 * minutes


def run_limit_s(minutes: float) -> float:
    """Seconds after which a run is ended."""
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
    limit_s = steps_limit_s(minutes)
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
    return not is_late or record.wall_s >= _SAME_TIME * run_limit_s(minutes)


def are_extrapolated(records: Sequence[Record]) -> bool:
    """True if no whole step fitted; then there is no time to measure the best again."""
    made = [record.measurement for record in records if record.measurement]
    return any(one.extrapolated_from is not None for one in made)


def outcome_of(prepared: Prepared, done: DoneRuns) -> SearchOutcome:
    """Every candidate, measured, failed or not started, in the order in which they were to run."""
    usd = prepared.settings.cluster.usd_per_gpu_hour
    return question_outcome(
        prepared.question,
        _runs(prepared, done),
        nodes=prepared.found.nodes,
        gpu=done.gpu,
        usd_per_gpu_hour=usd,
        price="" if usd is None else "as given",
        notes=prepared.notes,
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
    train, shape = question.settings.train, question.model.shape
    found = SearchOutcome(
        size_b=question.size_b,
        nodes=nodes,
        gpus_per_node=question.gpus_per_node,
        tokens_b=train.tokens_b,
        shape=SampleShape(
            family=question.family,
            layers=shape.layers,
            hidden=shape.hidden,
            ffn=shape.ffn,
            vocabulary=train.vocabulary,
            sequence=train.sequence,
            decoder_sequence=decoder_tokens(question.base, train.sequence),
        ),
        base=question.base,
        runs=tuple(runs),
        gpu_peak_flops_per_s=gpu_peak_flops_per_s(question, gpu),
        **others,
    )
    return without_impossible(found)


def _runs(prepared: Prepared, done: DoneRuns) -> Iterator[SearchRun]:
    last = {record.trial.name: record for record in done.runs.records}
    finals: dict[str, list[Measurement]] = {}
    for record in done.finals:
        if record.measurement is not None:
            name = record.trial.name.removesuffix(FINAL_SUFFIX)
            finals.setdefault(name, []).append(record.measurement)
    ruled_out = dict(done.runs.ruled_out)
    for one in done.candidates:
        if one.name in last:
            yield _run(prepared, one, last[one.name], finals.get(one.name, []))
        elif one.name in ruled_out:
            detail = (
                f"needs more memory than {ruled_out[one.name].trial.name}, which ran out of it"
            )
            yield _not_started(prepared, one, FailureKind.OUT_OF_MEMORY, detail)
    for one in done.too_slow:
        detail = (
            f"a few micro-batches are predicted to take {duration_text(least_run_s(one))}, more "
            "than max_minutes_per_run"
        )
        yield _not_started(prepared, one, FailureKind.TIMED_OUT, detail)
    for rejected in (*done.rejected, *prepared.found.rejected):
        yield _not_started(prepared, rejected.candidate, FailureKind.BAD_CONFIG, rejected.why)


def _run(
    prepared: Prepared, one: SearchCandidate, record: Record, again: Sequence[Measurement]
) -> SearchRun:
    made = record.measurement
    if made is None:
        assert record.failure is not None
        minutes = prepared.settings.train.max_minutes
        return _not_run(prepared, one, _in_our_words(record.failure, minutes))
    steps = [step_s for m in (made, *again) for step_s in m.step_s]
    fullest = max(
        (m.memory for m in (made, *again) if m.memory), key=lambda m: m.peak_bytes, default=None
    )
    return SearchRun(
        name=one.name,
        point=one.point,
        global_batch=made.samples_per_step,
        config=training_document(prepared.question, one),
        knobs=knobs_of(one),
        steps=len(steps),
        extrapolated_from=made.extrapolated_from,
        whole_micro_batches=one.layout.accumulation,
        step_s=statistics.fmean(steps),
        step_spread_s=statistics.stdev(steps) if len(steps) > 1 else None,
        peak_bytes=fullest.peak_bytes if fullest else None,
        memory_bytes=fullest.limit_bytes if fullest else None,
        loss=made.losses[-1] if made.losses else None,
    )


def _not_started(
    prepared: Prepared, one: SearchCandidate, kind: FailureKind, why: str
) -> SearchRun:
    return _not_run(prepared, one, Failure(kind=kind, detail=f"{NOT_STARTED}: {why}"))


def _not_run(prepared: Prepared, one: SearchCandidate, failure: Failure) -> SearchRun:
    return SearchRun(
        name=one.name,
        point=one.point,
        global_batch=one.layout.global_batch,
        config=training_document(prepared.question, one),
        knobs=knobs_of(one),
        failure=failure,
    )


def _in_our_words(failure: Failure, minutes: float) -> Failure:
    """A search's limit of time has another name than a tune's.

    A run ends by itself once it has a step, or a few micro-batches of one.
    """
    if failure.kind is not FailureKind.TIMED_OUT:
        return failure
    detail = f"no step, nor enough micro-batches of one, within {minutes:g} minutes"
    return replace(failure, detail=f"{detail} (max_minutes_per_run)")
