"""From records of runs to the values that the report is made of. Not: the report."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace

from autoconf_launch.autotuner.noise import FINAL_SUFFIX
from autoconf_launch.autotuner.recommend.model_flops import SampleShape
from autoconf_launch.autotuner.trial import Measurement, Record
from autoconf_launch.core import Failure, FailureKind

from ..search_report.outcome import SearchOutcome, SearchRun
from ..views.duration import duration_text
from .candidate_file import knobs_of, training_document
from .candidates import SearchCandidate
from .described import decoder_tokens
from .done_runs import DoneRuns
from .prepare import Prepared
from .run_time import least_run_s

_NOT_STARTED = "not started"


def outcome_of(prepared: Prepared, done: DoneRuns) -> SearchOutcome:
    """Every candidate, measured, failed or not started, in the order in which they were to run."""
    question, settings = prepared.question, prepared.settings
    sequence = settings.train.sequence
    return SearchOutcome(
        family=question.family,
        size_b=question.size_b,
        nodes=prepared.found.nodes,
        gpus_per_node=question.gpus_per_node,
        tokens_b=settings.train.tokens_b,
        shape=SampleShape(
            layers=question.model.layers,
            hidden=question.model.hidden,
            ffn=question.model.ffn,
            vocabulary=settings.train.vocabulary,
            sequence=sequence,
            decoder_sequence=decoder_tokens(question.base, sequence),
        ),
        base=question.base,
        runs=tuple(_runs(prepared, done)),
        usd_per_gpu_hour=settings.cluster.usd_per_gpu_hour,
        price="as given" if settings.cluster.usd_per_gpu_hour is not None else "",
        notes=prepared.notes,
    )


def _runs(prepared: Prepared, done: DoneRuns) -> Iterator[SearchRun]:
    last = {record.trial.name: record for record in done.records}
    finals = _by_name(done.finals)
    ruled_out = dict(done.ruled_out)
    for one in done.candidates:
        if one.name in last:
            yield _run(prepared, one, last[one.name], finals.get(one.name, ()))
        elif one.name in ruled_out:
            yield _not_run(prepared, one, _needs_more(ruled_out[one.name]))
    for one in done.too_slow:
        yield _not_run(prepared, one, _too_slow(one))
    for other in prepared.found.rejected:
        detail = f"{_NOT_STARTED}: {other.why}"
        yield _not_run(
            prepared, other.candidate, Failure(kind=FailureKind.BAD_CONFIG, detail=detail)
        )


def _by_name(finals: tuple[Record, ...]) -> dict[str, tuple[Measurement, ...]]:
    found: dict[str, tuple[Measurement, ...]] = {}
    for record in finals:
        if record.measurement is not None:
            name = record.trial.name.removesuffix(FINAL_SUFFIX)
            found[name] = (*found.get(name, ()), record.measurement)
    return found


def _run(
    prepared: Prepared, one: SearchCandidate, record: Record, again: tuple[Measurement, ...]
) -> SearchRun:
    made = record.measurement
    if made is None:
        assert record.failure is not None
        minutes = prepared.settings.train.max_minutes
        return _not_run(prepared, one, _in_our_words(record.failure, minutes))
    steps = [step_s for m in (made, *again) for step_s in m.step_s]
    peaks = [m.memory.peak_bytes for m in (made, *again) if m.memory]
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
        peak_bytes=max(peaks, default=None),
        loss=made.losses[-1] if made.losses else None,
    )


def _not_run(prepared: Prepared, one: SearchCandidate, failure: Failure) -> SearchRun:
    return SearchRun(
        name=one.name,
        point=one.point,
        global_batch=one.layout.global_batch,
        config=training_document(prepared.question, one),
        knobs=knobs_of(one),
        failure=failure,
    )


def _needs_more(record: Record) -> Failure:
    return Failure(
        kind=FailureKind.OUT_OF_MEMORY,
        detail=f"{_NOT_STARTED}: needs more memory than {record.trial.name}, which ran out of it",
    )


def _too_slow(one: SearchCandidate) -> Failure:
    return Failure(
        kind=FailureKind.TIMED_OUT,
        detail=f"{_NOT_STARTED}: a few micro-batches are predicted to take "
        f"{duration_text(least_run_s(one))}, more than max_minutes_per_run",
    )


def _in_our_words(failure: Failure, minutes: float) -> Failure:
    """A search's limit of time has another name than a tune's.

    A run ends by itself once it has a step, or a few micro-batches of one.
    """
    if failure.kind is not FailureKind.TIMED_OUT:
        return failure
    detail = f"no step, nor enough micro-batches of one, within {minutes:g} minutes"
    return replace(failure, detail=f"{detail} (max_minutes_per_run)")
