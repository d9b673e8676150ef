"""Answers of ``plan`` as one page. Not: their text (report), how charts are drawn (charts)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from autoconf_launch.autotuner.cost import LayoutColumns, estimate
from autoconf_launch.autotuner.planner import Planned
from autoconf_launch.core import pareto_front

from ..estimates import MixedAnswer, PlanAnswer
from ..report import cluster_text, name_of, planned_waterfall, seconds_text
from .charts import Traces, bar_trace, marker_trace, memory_chart, waterfall_chart
from .page import Chart, HtmlPage

_MOST_DRAWN = 12
_MOST_NAMED = 12
_S_PER_DAY = 86400.0
_ROOM = 1.15
"""An axis goes on for the name of its last point."""
Point: TypeAlias = tuple[float, float, str]
"""Time, money, and what is seen under the mouse."""


def plan_page(answers: Sequence[PlanAnswer], text: str) -> HtmlPage:
    """The text with charts: of the layouts of one cluster, or of the best ones of several.

    Args:
        answers: one for each cluster; the best cluster first where there are several.
        text: what the command prints of them.
    """
    found = [answer for answer in answers if answer.plan.best]
    charts: tuple[Chart | None, ...] = ()
    if len(answers) > 1:
        charts = (_front(found),)
    elif found:
        charts = _of_one_cluster(found[0])
    name = answers[0].workload.architecture.name
    return HtmlPage(
        title=f"autoconf-launch: layouts of {name}",
        answer=text,
        charts=tuple(chart for chart in charts if chart),
    )


def _of_one_cluster(answer: PlanAnswer) -> tuple[Chart, ...]:
    best = answer.plan.best[:_MOST_DRAWN]
    steps = waterfall_chart(
        "A step of #1", "Milliseconds of each part, predicted.", planned_waterfall(best[0])
    )
    return _step_times(best), steps, _memory(answer, best)


def _step_times(best: Sequence[Planned]) -> Chart:
    """Seconds of each layout's step, part on part."""
    names = _numbers(best)
    columns = zip(*(planned_waterfall(one) for one in best), strict=True)
    traces: Traces = [
        {
            **bar_trace(steps[0].name, names, [step.seconds for step in steps]),
            "hovertext": [name_of(one.layout) for one in best],
        }
        for steps in columns
        if any(step.seconds > 0 for step in steps)
    ]
    return Chart(
        title="Step time of each layout",
        note="By the number of its row; the parts add up to the step.",
        traces=tuple(traces),
        layout={
            "barmode": "stack",
            "xaxis": {"type": "category"},
            "yaxis": {"title": {"text": "s"}},
            "showlegend": True,
        },
    )


def _memory(answer: PlanAnswer, best: Sequence[Planned]) -> Chart:
    """Memory of the fullest rank of each layout, part on part."""
    columns = LayoutColumns.from_layouts(
        [one.layout for one in best], [one.recompute_layers for one in best]
    )
    stages = estimate(columns, answer.workload, answer.cluster).stage_parts
    fullest = np.sum([sizes for _, sizes in stages], axis=0).argmax(axis=0)
    parts = [(name, sizes[fullest, range(len(best))].tolist()) for name, sizes in stages]
    return memory_chart(_numbers(best), parts, answer.request.training.limit_bytes)


def _numbers(best: Sequence[Planned]) -> list[str]:
    return [f"#{row}" for row, _ in enumerate(best, start=1)]


def _front(found: Sequence[PlanAnswer]) -> Chart | None:
    """Time and money of each cluster, and those that no other beats in both."""
    points = [
        point
        for answer in found
        for point in point_of(answer, answer.plan.best[0], cluster_text(answer))
    ]
    is_training = all(answer.steps is not None for answer in found)
    note = "The best layout on each cluster; lower and further left is better."
    return front_chart(points, note, is_training=is_training)


def front_chart(points: Sequence[Point], note: str, *, is_training: bool) -> Chart | None:
    """Time and money of several clusters; None where there are fewer than two.

    Args:
        points: days and USD of a training, or seconds and USD of a step.
        note: what the points are.
        is_training: which of both.
    """
    if len(points) < 2:
        return None
    best = {one[:2] for one in pareto_front(points, lambda one: one[:2])}
    front = sorted(one for one in points if one[:2] in best)
    others = [one for one in points if one[:2] not in best]
    line = {**_trace("no other is both faster and cheaper", front), "mode": "lines+markers+text"}
    rest = _trace("slower, or dearer", others) if others else {}
    if len(others) > _MOST_NAMED:  # their names would cover each other
        rest["mode"] = "markers"
    return Chart(
        title="Time and money",
        note=note,
        traces=(line, rest) if others else (line,),
        layout={
            "xaxis": {
                "title": {"text": "days of the training" if is_training else "seconds of a step"},
                "range": [0.0, _ROOM * max(days for days, _, _ in points)],
            },
            "yaxis": {
                "title": {"text": "USD"},
                "range": [0.0, _ROOM * max(usd for _, usd, _ in points)],
            },
            "legend": {"orientation": "h", "y": 1.1},
            "showlegend": True,
        },
    )


def point_of(answer: PlanAnswer | MixedAnswer, row: Any, nodes: str) -> Iterator[Point]:
    """A point for the training where its tokens are known, else for a step; none if unpriced."""
    if (usd := answer.usd_per_step(row)) is not None:
        text = "<br>".join((nodes, name_of(row.layout), seconds_text(row.step_s)))
        if answer.steps is None:
            yield row.step_s, usd, text
        else:
            yield answer.steps * row.step_s / _S_PER_DAY, answer.steps * usd, text


def _trace(name: str, points: Sequence[Point]) -> dict[str, Any]:
    x, y, texts = zip(*points, strict=True)
    clusters = [text.partition("<br>")[0] for text in texts]
    words = {"mode": "markers+text", "text": clusters, "textposition": "top center"}
    return {**marker_trace(name, x, y, texts), **words}
