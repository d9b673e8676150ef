"""Charts of a tune's trials, in plotly's terms. Not: where they stand on the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from autoconf_launch.autotuner.measurement import Noise, relative_error, t_quantile
from autoconf_launch.autotuner.playoff import Summary
from autoconf_launch.autotuner.space import Measurement, Record

from ..report import label
from .page import Chart

_GIB = 2**30
_Measured = tuple[Record, Measurement]


def tune_charts(records: Sequence[Record], summary: Summary) -> tuple[Chart, ...]:
    """Every chart that these records have something to show in."""
    measured = [(r, r.measurement) for r in records if r.measurement]
    if not measured:
        return ()
    charts = (
        _throughput(records, summary),
        _micro_batches(measured),
        _predicted_times(measured),
        _memory(records),
        _step_parts(summary),
    )
    return tuple(chart for chart in charts if chart)


def _throughput(records: Sequence[Record], summary: Summary) -> Chart:
    """Samples per second in the order of the trials, failed ones at 0."""
    best = summary.decision.winner.trial.name if summary.decision.winner else None
    measured = [(r, r.measurement) for r in records if r.measurement]
    failed = [r for r in records if r.failure]
    names = [r.trial.name for r in records]
    bars = {
        "type": "bar",
        "name": "measured",
        "x": [r.trial.name for r, _ in measured],
        "y": [m.throughput_per_s for _, m in measured],
        "error_y": {"type": "data", "array": [_width(m, summary.noise) for _, m in measured]},
        "hovertext": [label(r.trial.candidate) for r, _ in measured],
        "marker": {
            "color": ["#1a7f37" if r.trial.name == best else "#54aeff" for r, _ in measured]
        },
    }
    crosses = {
        "type": "scatter",
        "mode": "markers",
        "name": "failed",
        "x": [r.trial.name for r in failed],
        "y": [0.0] * len(failed),
        "hovertext": [r.failure.kind.value for r in failed if r.failure],
        "marker": {"symbol": "x", "size": 10, "color": "#cf222e"},
    }
    return Chart(
        title="Throughput of each trial",
        note="In the order in which they ran; the lines are 95 % intervals, the best is green.",
        traces=(bars, crosses) if failed else (bars,),
        layout={
            "xaxis": {"categoryorder": "array", "categoryarray": names},
            "yaxis": {"title": {"text": "samples/s"}},
            "showlegend": bool(failed),
        },
    )


def _width(measured: Measurement, noise: Noise) -> float:
    """Half of the 95 % interval of a trial's samples per second."""
    error = math.hypot(relative_error(measured, noise), noise.between)
    return measured.throughput_per_s * error * t_quantile(0.975, noise.between_freedom)


def _micro_batches(measured: Sequence[_Measured]) -> Chart | None:
    """Samples per second over the micro-batch, a line for each ZeRO stage."""
    stages = sorted({r.trial.candidate.layout.zero_stage for r, _ in measured})
    traces = []
    for stage in stages:
        points: dict[int, float] = {}
        for record, found in measured:
            layout = record.trial.candidate.layout
            if layout.zero_stage == stage:
                best = max(points.get(layout.micro_batch, 0.0), found.throughput_per_s)
                points[layout.micro_batch] = best
        x, y = zip(*sorted(points.items()), strict=True)
        traces.append(_line(f"ZeRO {stage}", x, y))
    if all(len(trace["x"]) < 2 for trace in traces):
        return None
    return Chart(
        title="Throughput over the micro-batch",
        note="The best trial of each micro-batch, a line for each ZeRO stage.",
        traces=tuple(traces),
        layout={
            "xaxis": {
                "title": {"text": "micro-batch of a rank"},
                "type": "log",
                "dtick": math.log10(2),
            },
            "yaxis": {"title": {"text": "samples/s"}},
            "showlegend": True,
        },
    )


def _line(name: str, x: Sequence[float | str], y: Sequence[float]) -> dict[str, Any]:
    return {"type": "scatter", "mode": "lines+markers", "name": name, "x": [*x], "y": [*y]}


def _predicted_times(measured: Sequence[_Measured]) -> Chart | None:
    """Measured seconds per step over predicted ones."""
    points = [
        (r.prediction.step_s, m.mean_step_s, r.trial.name)
        for r, m in measured
        if r.prediction and r.prediction.step_s
    ]
    if not points:
        return None
    predicted, found, names = zip(*points, strict=True)
    longest = max(*predicted, *found)
    dots = {
        "type": "scatter",
        "mode": "markers",
        "name": "trials",
        "x": [*predicted],
        "y": [*found],
        "hovertext": [*names],
    }
    equal = {**_line("equal", (0.0, longest), (0.0, longest)), "mode": "lines"}
    return Chart(
        title="Predicted and measured step times",
        note="Each point is the prediction made when its trial began; on the line, both agree.",
        traces=(dots, equal),
        layout={
            "xaxis": {"title": {"text": "predicted s"}, "rangemode": "tozero"},
            "yaxis": {"title": {"text": "measured s"}},
            "showlegend": False,
        },
    )


def _memory(records: Sequence[Record]) -> Chart | None:
    """Peak memory of the fullest rank, what was predicted of it, and the limit."""
    used = [(r, r.outcome.memory) for r in records if r.outcome.memory]
    if not used:
        return None
    names = [r.trial.name for r, _ in used]
    bars = {
        "type": "bar",
        "name": "measured peak",
        "x": names,
        "y": [memory.peak_bytes / _GIB for _, memory in used],
    }
    traces: list[Mapping[str, Any]] = [bars]
    known = [(r.trial.name, r.prediction.peak_bytes) for r, _ in used if r.prediction]
    if dots := [(name, peak / _GIB) for name, peak in known if peak]:
        x, y = zip(*dots, strict=True)
        traces.append({**_line("predicted", x, y), "mode": "markers"})
    if limits := [memory.limit_bytes / _GIB for _, memory in used if memory.limit_bytes]:
        limit = min(limits)
        traces.append({**_line("limit", (names[0], names[-1]), (limit, limit)), "mode": "lines"})
    return Chart(
        title="Memory of each trial",
        note="Of the fullest rank, against what a rank may use.",
        traces=tuple(traces),
        layout={"yaxis": {"title": {"text": "GiB"}}, "showlegend": True},
    )


def _step_parts(summary: Summary) -> Chart | None:
    """Where the best configuration's step goes: as measured, else as predicted."""
    winner, soak = summary.decision.winner, summary.decision.soak
    phases = soak.phases if soak else ()
    prediction = winner.prediction if winner else None
    parts = phases or (prediction.parts if prediction else ())
    if not parts:
        return None
    fall = {
        "type": "waterfall",
        "x": [*(name.replace("_", " ") for name, _ in parts), "step"],
        "y": [*(1e3 * seconds for _, seconds in parts), 0.0],
        "measure": [*("relative" for _ in parts), "total"],
    }
    how = "measured in the verification run" if phases else "as predicted"
    return Chart(
        title="Where a step of the best configuration goes",
        note=f"Milliseconds of each part, {how}.",
        traces=(fall,),
        layout={"yaxis": {"title": {"text": "ms"}}, "showlegend": False},
    )
