"""Answers of ``plan`` as one page. Not: their text (report), how charts are drawn (charts)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from autoconf_launch.autotuner.cost import LayoutColumns, estimate
from autoconf_launch.autotuner.planner import Planned
from autoconf_launch.autotuner.sizing import Outlook
from autoconf_launch.core import GIB, pareto_front

from ..estimates import PlanAnswer, Recommendation
from ..report import cluster_text, name_of, nodes_text, seconds_text, step_waterfall
from .page import (
    Chart,
    HtmlPage,
    Traces,
    axis,
    bar_trace,
    chart,
    marker_trace,
    memory_chart,
    waterfall_chart,
)

_MOST_DRAWN = 12
_MOST_NAMED = 12
_MOST_PIPELINES = 3
_S_PER_DAY = 86400.0
_ROOM = 1.15
"""An axis goes on for the name of its last point."""
Point: TypeAlias = tuple[float, float, str]
"""Time, money, and what is seen under the mouse."""


def plan_page(answers: Sequence[PlanAnswer], text: str) -> HtmlPage:
    """The text with charts of a cluster's layouts, or of the best layout on each cluster.

    Args:
        answers: an answer for each cluster, the best cluster first.
        text: output of the command.
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
    note = "By the number of its row; the parts add up to the step."
    x = {"type": "category"}
    return chart("Step time of each layout", note, traces, x=x, y="s", barmode="stack")


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
    longest = _ROOM * max(days for days, _, _ in points)
    most = _ROOM * max(usd for _, usd, _ in points)
    unit = "days of the training" if is_training else "seconds of a step"
    yield chart(
        "Time and money",
        f"{what}; lower and further left is better.",
        (line, rest) if others else (line,),
        x=axis(unit, range=[0.0, longest]),
        y=axis("USD", range=[0.0, most]),
        legend={"orientation": "h", "y": 1.1},
    )


def _point(answer: PlanAnswer, row: Planned, usd: float) -> Point:
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
    stages = [str(stage) for stage in range(len(row.stages))]
    names = [" + ".join(answer.kinds[kind].name for kind in one.kinds) for one in row.stages]
    traces: Traces = []
    for name in dict.fromkeys(names):
        mine = [i for i, own in enumerate(names) if own == name]
        bars = bar_trace(name, [stages[i] for i in mine], [row.stages[i].layers for i in mine])
        times = [f"{seconds_text(row.stages[i].micro_batch_s)} a micro-batch" for i in mine]
        traces.append({**bars, "hovertext": times})
    return chart(
        f"Stages of #{number}",
        f"{nodes_text(answer.kinds, row.counts)}: layers of each stage, first stage left.",
        tuple(traces),
        x=axis("stage", type="category", categoryarray=stages),
        y="layers",
        barmode="stack",
    )


def _stage_memory(number: int, row: Planned) -> Chart:
    stages = [str(stage) for stage in range(len(row.stages))]
    limits = [stage.limit_bytes / GIB for stage in row.stages]
    needed = bar_trace("needed", stages, [stage.peak_bytes / GIB for stage in row.stages])
    return chart(
        f"Memory of the stages of #{number}",
        "Of the fullest rank of each stage, and what its smallest GPU has.",
        (needed, marker_trace("limit", stages, limits, ["limit"] * len(stages))),
        x=axis("stage", type="category"),
        y="GiB",
    )


def recommend_page(answer: Recommendation, text: str) -> HtmlPage:
    """The text with charts of the planner's answer; the formula has none."""
    outlook = answer.planner.outlook
    return HtmlPage(
        title=f"autoconf-launch: a model of family {answer.family.name}",
        answer=text,
        charts=(_days(answer, outlook), _sensitivity(outlook)) if outlook else (),
    )


def _days(answer: Recommendation, outlook: Outlook) -> Chart:
    bars = {
        **bar_trace("days", ["planner", "NVIDIA's formula"], [outlook.days, answer.exact_days]),
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [outlook.days_high - outlook.days, 0.0],
            "arrayminus": [outlook.days - outlook.days_low, 0.0],
        },
    }
    note = f"The line is the error band: {outlook.band.source}."
    return chart("Days of the training", note, (bars,), y="days", has_legend=False)


def _sensitivity(outlook: Outlook) -> Chart:
    found = outlook.sensitivities[::-1]
    names = [one.name.replace("_", " ") for one in found]
    sides = {
        "half": [one.days_at_half for one in found],
        "twice": [one.days_at_double for one in found],
    }
    traces: Traces = [
        {
            **bar_trace(name, [days - outlook.days for days in ends], names),
            "orientation": "h",
        }
        for name, ends in sides.items()
    ]
    note = "Days more or less where one assumption is half or twice as large."
    y = {"rangemode": "normal"}
    return chart("What the days depend on", note, traces, x="days more", y=y, barmode="overlay")
