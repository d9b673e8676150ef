"""Answers of ``plan`` as one page. Not: their text (report), how charts are drawn (charts)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from autoconf_launch.autotuner.cost import LayoutColumns, estimate
from autoconf_launch.autotuner.planner import Planned
from autoconf_launch.core import GIB, pareto_front

from ..estimates import PlanAnswer
from ..report import cluster_text, name_of, nodes_text, seconds_text, step_waterfall
from .charts import Traces, bar_trace, marker_trace, memory_chart, waterfall_chart
from .page import Chart, HtmlPage

_MOST_DRAWN = 12
_MOST_NAMED = 12
_MOST_PIPELINES = 3
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
    first = answers[0]
    if len(answers) > 1:
        rows = [(one, one.plan.best[0]) for one in answers if one.plan.best]
        charts = _front(rows, "The best layout on each cluster")
    else:
        charts = _charts(first)
    return HtmlPage(
        title=f"autoconf-launch: layouts of {first.script or first.workload.architecture.name}",
        answer=text,
        charts=tuple(charts),
    )


def _charts(answer: PlanAnswer) -> Iterator[Chart]:
    """Steps and memory, or the front of all parts and stages of the first rows with several."""
    best = answer.plan.best[:_MOST_DRAWN]
    if answer.parts is not None:
        rows = [(answer, row) for row in answer.parts.every]
        yield from _front(rows, "The best layout on each part of the cluster")
        pipelines = [(n, row) for n, row in enumerate(answer.plan.best, 1) if len(row.stages) > 1]
        for number, row in pipelines[:_MOST_PIPELINES]:
            yield _partition(answer, number, row)
            yield _stage_memory(number, row)
    elif best:
        yield _step_times(best)
        yield waterfall_chart(
            "A step of #1", "Milliseconds of each part, predicted.", step_waterfall(best[0].parts)
        )
        if not answer.script:
            yield _memory(answer, best)


def _step_times(best: Sequence[Planned]) -> Chart:
    """Seconds of each layout's step, part on part."""
    names = _numbers(best)
    columns = zip(*(step_waterfall(one.parts) for one in best), strict=True)
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


def _front(rows: Sequence[tuple[PlanAnswer, Planned]], what: str) -> Iterator[Chart]:
    """Time and money of rows with their answers, if two have a price."""
    points = [
        _point(answer, row, usd) for answer, row in rows if (usd := row.usd_per_step) is not None
    ]
    is_training = all(answer.steps is not None for answer, _ in rows)
    if len(points) < 2:
        return
    best = {one[:2] for one in pareto_front(points, lambda one: one[:2])}
    front = sorted(one for one in points if one[:2] in best)
    others = [one for one in points if one[:2] not in best]
    line = {**_trace("no other is both faster and cheaper", front), "mode": "lines+markers+text"}
    rest = _trace("slower, or dearer", others) if others else {}
    if len(others) > _MOST_NAMED:  # their names would cover each other
        rest["mode"] = "markers"
    yield Chart(
        title="Time and money",
        note=f"{what}; lower and further left is better.",
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


def _point(answer: PlanAnswer, row: Planned, usd: float) -> Point:
    """Days and USD of the training where its tokens are known, else seconds and USD of a step."""
    steps = answer.steps
    nodes = nodes_text(answer.kinds, row.counts) if row.counts else cluster_text(answer)
    text = "<br>".join((nodes, name_of(row.layout), seconds_text(row.step_s)))
    if steps is None:
        return row.step_s, usd, text
    return steps * row.step_s / _S_PER_DAY, steps * usd, text


def _trace(name: str, points: Sequence[Point]) -> dict[str, Any]:
    x, y, texts = zip(*points, strict=True)
    clusters = [text.partition("<br>")[0] for text in texts]
    words = {"mode": "markers+text", "text": clusters, "textposition": "top center"}
    return {**marker_trace(name, x, y, texts), **words}


def _partition(answer: PlanAnswer, number: int, row: Planned) -> Chart:
    """Layers of each stage, coloured by the nodes that it lies on."""
    stages = [str(stage) for stage in range(len(row.stages))]
    names = [" + ".join(answer.kinds[kind].name for kind in one.kinds) for one in row.stages]
    traces: Traces = []
    for name in dict.fromkeys(names):
        mine = [i for i, own in enumerate(names) if own == name]
        bars = bar_trace(name, [stages[i] for i in mine], [row.stages[i].layers for i in mine])
        times = [f"{seconds_text(row.stages[i].micro_batch_s)} a micro-batch" for i in mine]
        traces.append({**bars, "hovertext": times})
    return Chart(
        title=f"Stages of #{number}",
        note=f"{nodes_text(answer.kinds, row.counts)}: layers of each stage, first stage left.",
        traces=tuple(traces),
        layout={
            "barmode": "stack",
            "xaxis": {"type": "category", "categoryarray": stages, "title": {"text": "stage"}},
            "yaxis": {"title": {"text": "layers"}},
            "showlegend": True,
        },
    )


def _stage_memory(number: int, row: Planned) -> Chart:
    """What the fullest rank of each stage needs, beside what its GPU has."""
    stages = [str(stage) for stage in range(len(row.stages))]
    limits = [stage.limit_bytes / GIB for stage in row.stages]
    needed = bar_trace("needed", stages, [stage.peak_bytes / GIB for stage in row.stages])
    return Chart(
        title=f"Memory of the stages of #{number}",
        note="Of the fullest rank of each stage, and what its smallest GPU has.",
        traces=(needed, marker_trace("limit", stages, limits, ["limit"] * len(stages))),
        layout={
            "xaxis": {"type": "category", "title": {"text": "stage"}},
            "yaxis": {"title": {"text": "GiB"}},
            "showlegend": True,
        },
    )
