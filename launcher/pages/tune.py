"""A tune's results folder as one page, and the charts of its launches."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.measurement import Noise, relative_error, t_quantile
from autoconf_launch.autotuner.playoff import Summary
from autoconf_launch.autotuner.space import Conditions, Measurement, Record
from autoconf_launch.core import ResultsFolderError

from ..launch import file_tail, read_log_tail
from ..report import (
    TRIAL_COLUMNS,
    each,
    finished_row,
    label,
    launch_label,
    measured_waterfall,
    memory_unit,
    predicted_waterfall,
    results_answer,
    shown_name,
)
from ..results import Earlier, Results, read_file
from .page import (
    Chart,
    HtmlPage,
    Table,
    Traces,
    agreement_chart,
    axis,
    chart,
    line_trace,
    marker_trace,
    memory_chart,
    table_rows,
    waterfall_chart,
)

_COLUMNS = (
    *(column for column in TRIAL_COLUMNS if column.header),
    each("", lambda a, row: shown_name(row.record.trial), "name", is_left=True),
)
_Measured = tuple[Record, Measurement]
_Launch = tuple[float, Record]
"""A launch and the minutes after which it came back."""


def tune_page(results: Results) -> HtmlPage:
    """The output of ``show`` as charts, and every trial with its command and its log's end."""
    summary = results.summary()
    contents = results.contents
    launches = (*contents.records, *contents.repeats, *contents.finals, *contents.soaks)
    launched = [finished_row(record) for record in launches]
    winner = summary.decision.winner
    best = winner.trial.candidate if winner else None
    return HtmlPage(
        title=f"autoconf-launch: {Path(results.folder).resolve().name}",
        answer=results_answer(results, summary),
        charts=_charts(results, summary),
        tables=(
            Table(
                title="Every launch",
                headers=tuple(column.header for column in _COLUMNS),
                rows=table_rows(_COLUMNS, launched),
                more=tuple(_more(results, record) for record in launches),
                marked=tuple(record.trial.candidate == best for record in launches),
            ),
        ),
        texts=tuple(_texts(results)),
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
            "throttled" if gpu.is_throttled else "",
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


def _charts(results: Results, summary: Summary) -> tuple[Chart, ...]:
    """Every chart that these launches have something to show in."""
    records = results.contents.records
    measured = [(r, r.measurement) for r in summary.shown if r.measurement]
    if not measured:
        return ()
    charts = (
        _throughput(results, summary),
        _micro_batches(measured),
        _predicted_times(measured),
        _predicted_memory(records),
        _memory(records),
        *_step_parts(summary),
    )
    return tuple(filter(None, charts))


def _throughput(results: Results, summary: Summary) -> Chart:
    """Samples per second over the time when each launch came back, failed ones at 0."""
    launches = tuple(_launches(results))
    winner = summary.decision.winner
    kinds = {
        "trial": [p for p in launches if launch_label(p[1].trial).startswith("trial")],
        "re-measured": [p for p in launches if p[1].trial.again],
        "playoff": [p for p in launches if p[1].trial.final],
        "verification run": [p for p in launches if p[1].trial.is_soak],
    }
    traces: Traces = [
        _speeds(name, found, summary.noise)
        for name, group in kinds.items()
        if (found := [(at, r, r.measurement) for at, r in group if r.measurement])
    ]
    if failed := [(at, r) for at, r in launches if r.failure]:
        traces.append(_crosses(failed))
    best = f" The best configuration is {label(winner.trial.candidate)}." if winner else ""
    return chart(
        "Throughput of each launch",
        f"Over the time when it came back, with 95 % intervals.{best}",
        traces,
        x=axis("minutes since the search began", rangemode="tozero"),
        y="samples/s",
    )


def _launches(results: Results) -> Iterator[_Launch]:
    """Search, rounds and verification runs, each with the minutes after which it came back."""
    contents = results.contents
    after_s = 0.0
    for part in (contents.search, contents.rounds, contents.soaking):
        yield from _minutes(part, after_s)
        after_s += part.spent_s


def _minutes(part: Earlier, after_s: float) -> Iterator[_Launch]:
    for record, at_s in zip(part.records, part.times_s, strict=True):
        yield (after_s + at_s) / 60.0, record


def _speeds(
    name: str, launches: Sequence[tuple[float, Record, Measurement]], noise: Noise
) -> Mapping[str, Any]:
    minutes = [at for at, _, _ in launches]
    speeds = [m.throughput_per_s for _, _, m in launches]
    texts = [f"{launch_label(r.trial)}<br>{label(r.trial.candidate)}" for _, r, _ in launches]
    widths = [_width(m, noise) for _, _, m in launches]
    return {
        **marker_trace(name, minutes, speeds, texts),
        "error_y": {"type": "data", "array": widths, "thickness": 1},
    }


def _crosses(failed: Sequence[_Launch]) -> Mapping[str, Any]:
    kinds = [r.failure.kind.value for _, r in failed if r.failure]
    texts = [
        f"{kind}<br>{label(r.trial.candidate)}" for kind, (_, r) in zip(kinds, failed, strict=True)
    ]
    crosses = marker_trace("failed", [at for at, _ in failed], [0.0] * len(failed), texts)
    return {**crosses, "marker": {"symbol": "x", "size": 10, "color": "#cf222e"}}


def _width(measured: Measurement, noise: Noise) -> float:
    """Half of the 95 % interval of a trial's samples per second."""
    error = math.hypot(relative_error(measured, noise), noise.between)
    return measured.throughput_per_s * error * t_quantile(0.975, noise.between_freedom)


def _micro_batches(measured: Sequence[_Measured]) -> Chart | None:
    """Samples per second over the micro-batch, a line for each ZeRO stage."""
    stages = sorted({r.trial.candidate.layout.zero_stage for r, _ in measured})
    lines = [_stage_line(stage, measured) for stage in stages]
    if all(len(each["x"]) < 2 for each in lines):
        return None
    return chart(
        "Throughput over the micro-batch",
        "The best trial of each micro-batch, a line for each ZeRO stage.",
        lines,
        x=axis("micro-batch of a rank", type="log", dtick=math.log10(2)),
        y="samples/s",
    )


def _stage_line(stage: int, measured: Sequence[_Measured]) -> dict[str, Any]:
    best: dict[int, float] = {}
    for record, found in measured:
        layout = record.trial.candidate.layout
        if layout.zero_stage == stage:
            speed = found.throughput_per_s
            best[layout.micro_batch] = max(best.get(layout.micro_batch, 0.0), speed)
    x, y = zip(*sorted(best.items()), strict=True)
    return line_trace(f"ZeRO {stage}", x, y)


def _predicted_times(measured: Sequence[_Measured]) -> Chart | None:
    known = [
        ((r.prediction.step_s, m.mean_step_s), label(r.trial.candidate))
        for r, m in measured
        if r.prediction and r.prediction.step_s
    ]
    if not known:
        return None
    pairs, names = zip(*known, strict=True)
    return agreement_chart("Step time, predicted and measured", "s", pairs, names)


def _predicted_memory(records: Sequence[Record]) -> Chart | None:
    """Failed trials, too: what did not fit was predicted to."""
    known = [
        ((float(r.prediction.peak_bytes), float(r.outcome.memory.peak_bytes)), r)
        for r in records
        if r.prediction and r.prediction.peak_bytes and r.outcome.memory
    ]
    if not known:
        return None
    unit, size = memory_unit(max(max(pair) for pair, _ in known))
    pairs = [(predicted / size, measured / size) for (predicted, measured), _ in known]
    names = [label(r.trial.candidate) for _, r in known]
    return agreement_chart("Peak memory, predicted and measured", unit, pairs, names)


def _memory(records: Sequence[Record]) -> Chart | None:
    """Predicted parts, the measured peak, and what a rank may use."""
    used = {r.trial.name: (m, r.prediction) for r in records if (m := r.outcome.memory)}
    if not used:
        return None
    found = [
        dict(prediction.memory_parts) if prediction else {} for _, prediction in used.values()
    ]
    parts = dict.fromkeys(part for each in found for part in each)
    limits = [memory.limit_bytes for memory, _ in used.values() if memory.limit_bytes]
    return memory_chart(
        [*used],
        [(part, [float(each.get(part, 0)) for each in found]) for part in parts],
        min(limits, default=None),
        [float(memory.peak_bytes) for memory, _ in used.values()],
    )


def _step_parts(summary: Summary) -> Iterator[Chart]:
    winner, soak = summary.decision.winner, summary.decision.soak
    prediction = winner.prediction if winner else None
    if prediction and (steps := predicted_waterfall(prediction)):
        yield waterfall_chart(
            "A step of the best configuration, predicted",
            f"Milliseconds of each part; {prediction.how}.",
            steps,
        )
    if steps := measured_waterfall(soak):
        yield waterfall_chart(
            "A step of the best configuration, measured",
            "Milliseconds of each phase in the verification run, one after the other.",
            steps,
        )
