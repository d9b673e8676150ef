"""A tune's results folder as one page. Not: how charts are drawn (charts, page)."""

from __future__ import annotations

import json
from pathlib import Path

from autoconf_launch.autotuner.space import Record

from ..launch import file_tail, read_log_tail
from ..report import label, results_answer, seconds_text, size_text
from ..results import Results
from .charts import tune_charts
from .page import Cell, HtmlPage, Table

_HEADERS = ("trial", "configuration", "predicted", "measured", "samples/s", "memory", "outcome")


def tune_page(results: Results) -> HtmlPage:
    """What ``show`` prints, as charts, and every trial with its command and its log's end."""
    summary = results.summary()
    contents = results.contents
    launches = (*contents.records, *contents.repeats, *contents.finals, *contents.soaks)
    return HtmlPage(
        title=f"autoconf-launch: {Path(results.folder).resolve().name}",
        answer=results_answer(results, summary),
        charts=tune_charts(contents.records, summary),
        tables=(_launches(results, launches),),
        texts=tuple(_texts(results)),
    )


def _launches(results: Results, records: tuple[Record, ...]) -> Table:
    return Table(
        title="All launches",
        headers=_HEADERS,
        rows=tuple(_row(record) for record in records),
        more=tuple(_more(results, record) for record in records),
    )


def _row(record: Record) -> tuple[Cell, ...]:
    measured, memory = record.measurement, record.outcome.memory
    predicted_s = record.prediction.step_s if record.prediction else None
    step_s = measured.mean_step_s if measured else None
    speed = measured.throughput_per_s if measured else None
    peak = memory.peak_bytes if memory else None
    return (
        Cell(record.trial.name),
        Cell(label(record.trial.candidate)),
        Cell(seconds_text(predicted_s), predicted_s) if predicted_s else Cell("-"),
        Cell(seconds_text(step_s), step_s) if step_s else Cell("-"),
        Cell(f"{speed:.2f}", speed) if speed else Cell("-"),
        Cell(size_text(peak), float(peak)) if peak else Cell("-"),
        Cell(record.failure.kind.value if record.failure else "measured"),
    )


def _more(results: Results, record: Record) -> str:
    """The command, why it failed, and the end of its log."""
    folder, failure = results.paths.trial(record.trial.name), record.failure
    parts = (
        "\n".join(file_tail(folder / "cmd.txt")),
        f"{failure.kind.value}: {failure.detail}" if failure else "",
        "\n".join(read_log_tail(folder)),
    )
    return "\n\n".join(part for part in parts if part)


def _texts(results: Results) -> list[tuple[str, str]]:
    try:
        text = results.paths.environment.read_text(encoding="utf-8", errors="replace")
        return [("Environment and command", json.dumps(json.loads(text), indent=2))]
    except (OSError, ValueError):  # an interrupted start leaves none
        return []
