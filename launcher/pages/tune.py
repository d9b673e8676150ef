"""A tune's results folder as one page. Not: how charts are drawn (charts, page)."""

from __future__ import annotations

import json
from pathlib import Path

from autoconf_launch.autotuner.space import Conditions, Record
from autoconf_launch.core import ResultsFolderError

from ..launch import file_tail, read_log_tail
from ..report import (
    label,
    launch_label,
    memory_size,
    results_answer,
    seconds_text,
    shown_name,
)
from ..results import Results, read_file
from .page import Cell, HtmlPage, Table
from .tune_charts import tune_charts

_HEADERS = (
    *("launch", "configuration", "name", "predicted", "measured", "samples/s"),
    *("memory", "outcome"),
)


def tune_page(results: Results) -> HtmlPage:
    """What ``show`` prints, as charts, and every trial with its command and its log's end."""
    summary = results.summary()
    contents = results.contents
    launches = (*contents.records, *contents.repeats, *contents.finals, *contents.soaks)
    winner = summary.decision.winner
    best = winner.trial.candidate if winner else None
    return HtmlPage(
        title=f"autoconf-launch: {Path(results.folder).resolve().name}",
        answer=results_answer(results, summary),
        charts=tune_charts(results, summary),
        tables=(
            Table(
                title="Every launch",
                headers=_HEADERS,
                rows=tuple(map(_row, launches)),
                more=tuple(_more(results, record) for record in launches),
                marked=tuple(record.trial.candidate == best for record in launches),
            ),
        ),
        texts=tuple(_texts(results)),
    )


def _row(record: Record) -> tuple[Cell, ...]:
    measured, memory = record.measurement, record.outcome.memory
    predicted_s = record.prediction.step_s if record.prediction else None
    step_s = measured.mean_step_s if measured else None
    speed = measured.throughput_per_s if measured else None
    peak = memory.peak_bytes if memory else None
    return (
        Cell(launch_label(record.trial)),
        Cell(label(record.trial.candidate)),
        Cell(shown_name(record.trial)),
        Cell(seconds_text(predicted_s), predicted_s) if predicted_s else Cell("-"),
        Cell(seconds_text(step_s), step_s) if step_s else Cell("-"),
        Cell(f"{speed:.2f}", speed) if speed else Cell("-"),
        Cell(memory_size(peak, 2), float(peak)) if peak else Cell("-"),
        Cell(record.failure.kind.value if record.failure else "measured"),
    )


def _more(results: Results, record: Record) -> str:
    """The command, what else the machine did, why it failed, and the end of its log."""
    folder, failure = results.paths.trial(record.trial.name), record.failure
    parts = (
        "\n".join(file_tail(folder / "cmd.txt")),
        _conditions(record.conditions) if record.conditions else "",
        f"{failure.kind.value}: {failure.detail}" if failure else "",
        "\n".join(read_log_tail(folder)),
    )
    return "\n\n".join(part for part in parts if part)


def _conditions(conditions: Conditions) -> str:
    loads = (conditions.load_before, conditions.load_after)
    words = [f"{load:.2f}" for load in loads if load is not None]
    lines = [f"load of the machine: {' -> '.join(words)}"] if words else []
    for gpu in conditions.gpus:
        known = (
            "" if gpu.sm_clock_mhz is None else f"{gpu.sm_clock_mhz} MHz",
            "" if gpu.temperature_c is None else f"{gpu.temperature_c} °C",
            "throttled" if gpu.throttle_reasons else "",
        )
        lines.append(f"GPU {gpu.slot}: {', '.join(filter(None, known)) or 'no reading'}")
    return "\n".join(lines)


def _texts(results: Results) -> list[tuple[str, str]]:
    try:
        text = read_file(results.paths.environment).decode(errors="replace")
        return [("Environment and command", json.dumps(json.loads(text), indent=2))]
    except (
        OSError,
        ValueError,
        RecursionError,
        ResultsFolderError,
    ):  # an interrupted start leaves none
        return []
