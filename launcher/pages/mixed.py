"""Answers of ``plan`` on mixed clusters as one page. Not: their text (report)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autoconf_launch.autotuner.mixed import MixedRow
from autoconf_launch.core import GIB

from ..estimates import MixedAnswer
from ..report import nodes_text, seconds_text
from .charts import Traces, bar_trace, marker_trace
from .page import Chart, HtmlPage
from .plan import front_chart, point_of

_MOST_DRAWN = 3


def mixed_page(answer: MixedAnswer, text: str) -> HtmlPage:
    """The text with time and money of all parts of the cluster, and the first rows' stages.

    Args:
        answer: with its rows.
        text: what the command prints of it.
    """
    points = [
        point
        for row in answer.plan.best
        for point in point_of(answer, row, nodes_text(answer, row.counts))
    ]
    note = "The best layout on each part of the cluster; lower and further left is better."
    front = front_chart(points, note, is_training=answer.steps is not None)
    stages = tuple(_charts(answer))
    return HtmlPage(
        title=f"autoconf-launch: layouts of {answer.workload.architecture.name}",
        answer=text,
        charts=(front, *stages) if front else stages,
    )


def _charts(answer: MixedAnswer) -> Iterator[Chart]:
    """Layers and memory of the stages of the first rows that are pipelines."""
    rows = [(n, row) for n, row in enumerate(answer.rows, start=1) if len(row.stages) > 1]
    for number, row in rows[:_MOST_DRAWN]:
        yield _partition(answer, number, row)
        yield _memory(number, row)


def _partition(answer: MixedAnswer, number: int, row: MixedRow) -> Chart:
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
        note=f"{nodes_text(answer, row.counts)}: layers of each stage, first stage left.",
        traces=tuple(traces),
        layout={
            "barmode": "stack",
            "xaxis": {"type": "category", "categoryarray": stages, "title": {"text": "stage"}},
            "yaxis": {"title": {"text": "layers"}},
            "showlegend": True,
        },
    )


def _memory(number: int, row: MixedRow) -> Chart:
    """What the fullest rank of each stage needs, beside what its GPU has."""
    stages = [str(stage) for stage in range(len(row.stages))]

    def gib(sizes: Sequence[float]) -> list[float]:
        return [size / GIB for size in sizes]

    limits = gib([stage.limit_bytes for stage in row.stages])
    needed = bar_trace("needed", stages, gib([stage.peak_bytes for stage in row.stages]))
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
