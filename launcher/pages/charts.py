"""Kinds of charts that several pages have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ..report import WaterfallStep, memory_size, memory_unit
from .page import Chart

Traces: TypeAlias = list[Mapping[str, Any]]
_FAR = 3.0
"""A limit that is so many times the largest bar would flatten all bars; only the note has it."""


def chart(
    title: str,
    note: str,
    traces: Iterable[Mapping[str, Any]],
    *,
    x: str | Mapping[str, Any] = "",
    y: str | Mapping[str, Any],
    legend: bool = True,
    **layout: Any,
) -> Chart:
    """A figure whose axes are titles, or have more than that."""
    axes = {
        name: {"title": {"text": axis}} if isinstance(axis, str) else axis
        for name, axis in (("xaxis", x), ("yaxis", y))
        if axis
    }
    full = {**layout, **axes, "showlegend": legend}
    return Chart(title=title, note=note, traces=tuple(traces), layout=full)


def titled(text: str, **more: Any) -> dict[str, Any]:
    """An axis with a title."""
    return {"title": {"text": text}, **more}


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
    return chart(title, note, (fall,), y="ms", legend=False)


def agreement_chart(
    title: str, unit: str, pairs: Sequence[tuple[float, float]], names: Sequence[str]
) -> Chart:
    """Measured values over predicted ones, with the line on which both are equal."""
    predicted, measured = zip(*pairs, strict=True)
    longest = max(*predicted, *measured)
    equal = {**line_trace("equal", (0.0, longest), (0.0, longest)), "mode": "lines"}
    return chart(
        title,
        "Each point is the prediction made before its trial ran; on the line, both agree.",
        (marker_trace("trials", predicted, measured, names), equal),
        x=titled(f"predicted {unit}", rangemode="tozero"),
        y=f"measured {unit}",
        legend=False,
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
    note = f"{what}, for the rank that needs most{limit}."
    return chart("Memory", note, traces, x={"type": "category"}, y=unit, barmode="stack")


def _limit_line(names: Sequence[str], height: float) -> dict[str, Any]:
    limit = line_trace("limit", (names[0], names[-1]), (height, height))
    return {**limit, "mode": "lines", "line": {"dash": "dash", "color": "#cf222e"}}
