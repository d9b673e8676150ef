"""Every number of a trial, one row each, for programs. Not: tables for people (trials_text)."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from autoconf_launch.autotuner.space import Record, candidate_name

CSV_COLUMNS = (
    *("number", "name", "space", "outcome", "throughput", "latency_ms", "flops_per_gpu"),
    *("peak_bytes", "predicted_step_s", "predicted_peak_bytes", "wall_s", "detail"),
)


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV, each line with its end."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def csv_row(record: Record) -> tuple[object, ...]:
    """Values in the order of ``CSV_COLUMNS``; None where there is none."""
    measured, failure, predicted = record.measurement, record.failure, record.prediction
    memory = record.outcome.memory
    return (
        record.trial.number,
        candidate_name(record.trial.candidate),
        record.trial.space,
        failure.kind.value if failure else "measured",
        measured.throughput_per_s if measured else None,
        measured.latency_ms if measured else None,
        measured.flops_per_gpu_per_s if measured else None,
        memory.peak_bytes if memory else None,
        predicted.step_s if predicted else None,
        predicted.peak_bytes if predicted else None,
        record.wall_s,
        failure.detail if failure else None,
    )


def trial_document(record: Record) -> dict[str, object]:
    """The same as a JSON object."""
    return dict(zip(CSV_COLUMNS, csv_row(record), strict=True))
