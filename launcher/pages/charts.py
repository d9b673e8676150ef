"""Kinds of charts that several pages have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from ..report import WaterfallStep, memory_size, memory_unit
from .page import Chart

Traces: TypeAlias = list[Mapping[str, Any]]
_FAR = 3.0
"""A limit that is so many times the largest bar would flatten all bars; only the note has it."""


def line_trace(name: str, x: Sequence[float | str], y: Sequence[float]) -> dict[str, Any]:
    """A line with a marker at each point."""
    return {"type": "scatter", "mode": "lines+markers", "name": name, "x": [*x], "y": [*y]}


def marker_trace(
    name: str, x: Sequence[float | str], y: Sequence[float], texts: Sequence[str]
) -> dict[str, Any]:
    """Markers that show their text under the mouse."""
    return {
        **line_trace(name, x, y),
        "mode": "markers",
        "hovertext": [*texts],
        "marker": {"size": 9},
    }


def bar_trace(name: str, x: Sequence[str | float], y: Sequence[str | float]) -> dict[str, Any]:
    """A bar for each name."""
    return {"type": "bar", "name": name, "x": [*x], "y": [*y]}


def waterfall_chart(title: str, note: str, steps: Sequence[WaterfallStep]) -> Chart:
    """Parts of a step, one after the other, and their sum."""
    fall = {
        "type": "waterfall",
        "x": [*(step.name for step in steps), "step"],
        "y": [*(1e3 * step.seconds for step in steps), 0.0],
        "measure": [*("relative" for _ in steps), "total"],
    }
    layout = {"yaxis": {"title": {"text": "ms"}}, "showlegend": False}
    return Chart(title=title, note=note, traces=(fall,), layout=layout)


def agreement_chart(
    title: str, unit: str, pairs: Sequence[tuple[float, float]], names: Sequence[str]
) -> Chart:
    """Measured values over predicted ones, with the line on which both are equal."""
    predicted, measured = zip(*pairs, strict=True)
    longest = max(*predicted, *measured)
    equal = {**line_trace("equal", (0.0, longest), (0.0, longest)), "mode": "lines"}
    return Chart(
        title=title,
        note="Each point is the prediction made before its trial ran; on the line, both agree.",
        traces=(marker_trace("trials", predicted, measured, names), equal),
        layout={
            "xaxis": {"title": {"text": f"predicted {unit}"}, "rangemode": "tozero"},
            "yaxis": {"title": {"text": f"measured {unit}"}},
            "showlegend": False,
        },
    )


def memory_chart(
    names: Sequence[str],
    parts: Sequence[tuple[str, Sequence[float]]],
    limit_bytes: float | None,
    peaks: Sequence[float] = (),
) -> Chart:
    """Bytes of each name's parts on top of each other, measured peaks, and the limit."""
    sums = [sum(sizes) for sizes in zip(*(sizes for _, sizes in parts), strict=True)]
    largest = max((*sums, *peaks), default=0.0)
    unit, size = memory_unit(largest)
    traces: Traces = [
        bar_trace(part, names, [value / size for value in sizes])
        for part, sizes in parts
        if any(value >= largest / 1000 for value in sizes)
    ]
    if peaks:
        traces.append(marker_trace("measured peak", names, [peak / size for peak in peaks], names))
    if limit_bytes is not None and limit_bytes <= _FAR * largest:
        traces.append(_limit_line(names, limit_bytes / size))
    what = "Parts that were predicted" if parts else "Peaks that were measured"
    limit = f"; a rank may use {memory_size(limit_bytes, 2)}" if limit_bytes is not None else ""
    return Chart(
        title="Memory",
        note=f"{what}, for the rank that needs most{limit}.",
        traces=tuple(traces),
        layout={
            "barmode": "stack",
            "xaxis": {"type": "category"},
            "yaxis": {"title": {"text": unit}},
            "showlegend": True,
        },
    )


def _limit_line(names: Sequence[str], height: float) -> dict[str, Any]:
    limit = line_trace("limit", (names[0], names[-1]), (height, height))
    return {**limit, "mode": "lines", "line": {"dash": "dash", "color": "#cf222e"}}
