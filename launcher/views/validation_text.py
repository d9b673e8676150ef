"""What ``validate`` prints: a table of tables, or one JSON document. Not: the scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..planner.validation import Calibration, Validation
from ..recorded.measurements import MeasurementFile
from .tables import table_of

SCHEMA_VERSION = 1


def validation_document(
    scored: Sequence[tuple[MeasurementFile, Validation]],
    everything: Validation,
    calibration: Calibration | None,
) -> dict[str, object]:
    """The JSON document."""
    fitted: dict[str, object] = {}
    if calibration is not None:
        fitted["calibration"] = {"rows_per_model": calibration.count, "seed": calibration.seed}
    return {
        "schema_version": SCHEMA_VERSION,
        **fitted,
        "files": {
            file.name: {**_scores(one), "problems": _problems(file)} for file, one in scored
        },
        "all": _scores(everything),
    }


def problem_lines(files: Sequence[MeasurementFile]) -> Iterator[str]:
    """What is wrong in the tables, line by line."""
    for file in files:
        for problem in file.bad:
            yield f"{file.name}:{problem.line}: left out: {problem.text}."
        for problem in file.warnings:
            yield f"{file.name}:{problem.line}: warning: {problem.text}."


def validation_lines(
    scored: Sequence[tuple[MeasurementFile, Validation]], everything: Validation
) -> Iterator[str]:
    """A table with a row for each file."""
    rows = [(file.name.removesuffix(".csv"), one) for file, one in scored]
    if len(rows) > 1:
        rows.append(("all", everything))
    header: tuple[str, ...]
    header = ("table", "rows", "predicted", "assumed", "MAPE %", "median %", "Spearman")
    header += ("regret %", "worst %", "memory %", "flagged OOM", "false alarms")
    align = ("left", *["right"] * (len(header) - 1))
    yield table_of([_cells(name, one) for name, one in rows], header, align)
    for name, one in rows[: len(scored)]:
        for reason, count in one.skipped:
            yield f"{name}: {count} skipped: {reason}"


def _cells(name: str, one: Validation) -> tuple[str, ...]:
    times, fits = one.times, one.fits
    return (
        name,
        str(one.rows),
        str(one.predicted),
        str(one.assumed),
        _number(times.mape),
        _number(times.median_ape),
        _number(times.spearman, 2),
        _number(times.top1_regret_mean),
        _number(times.top1_regret_max),
        _number(one.memory_mape),
        f"{fits.failed_rows_flagged}/{fits.failed_rows}",
        f"{fits.ran_rows_flagged}/{fits.ran_rows}",
    )


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _scores(one: Validation) -> dict[str, object]:
    times, fits = one.times, one.fits
    return {
        "rows": one.rows,
        "predicted": one.predicted,
        "assumed": one.assumed,
        "skipped": dict(one.skipped),
        "step_time": {
            "mape": times.mape,
            "median_ape": times.median_ape,
            "spearman": times.spearman,
            "top1_regret_mean": times.top1_regret_mean,
            "top1_regret_max": times.top1_regret_max,
            "groups": times.groups,
        },
        "memory": {"rows": len(one.memory_R[0]), "mape": one.memory_mape},
        "fits": {
            "failed_rows": fits.failed_rows,
            "failed_rows_flagged": fits.failed_rows_flagged,
            "ran_rows": fits.ran_rows,
            "ran_rows_flagged": fits.ran_rows_flagged,
        },
    }


def _problems(file: MeasurementFile) -> list[dict[str, object]]:
    kinds = (("bad", file.bad), ("skipped", file.skipped), ("warning", file.warnings))
    return [
        {"line": problem.line, "kind": kind, "text": problem.text}
        for kind, problems in kinds
        for problem in problems
    ]
