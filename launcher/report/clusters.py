"""One training on several clusters as a table. Not: the layouts of one cluster (plan)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from ..estimates import PlanAnswer
from .cells import dense_table, write_csv
from .fit import cluster_name
from .plan import (
    PLAN_SCHEMA_VERSION,
    doubts,
    flat_row,
    number_cells,
    row_document,
    training_text,
)
from .plan_reasons import name_of, why_nothing

_LEFT = frozenset({"cluster", "layout"})


def clusters_text(answers: Sequence[PlanAnswer]) -> str:
    """Head, a row for each cluster, notes on its numbers, and why a cluster has no row's numbers.

    Args:
        answers: of one training, in the order of the rows.
    """
    rows = [_cells(rank, answer) for rank, answer in enumerate(answers, start=1)]
    names = [
        name
        for name in max(rows, key=lambda row: len(row))
        if any(row.get(name, "-") != "-" for row in rows)
    ]
    align = ["left" if name in _LEFT else "right" for name in names]
    table = dense_table([[row.get(name, "-") for name in names] for row in rows], names, align)
    return "\n\n".join((training_text(answers[0]), table, "\n".join(_notes(answers))))


def clusters_document(answers: Sequence[PlanAnswer]) -> dict[str, Any]:
    """A document; ``best`` is the best layout of each cluster, None where it has none."""
    return {
        "schema_version": PLAN_SCHEMA_VERSION,
        "clusters": [
            {
                "cluster": _name(answer),
                "gpus": len(answer.cluster.devices),
                "nodes": len(answer.cluster.nodes),
                "usd_per_gpu_hour": answer.price and answer.price.usd_per_gpu_hour,
                "best": row_document(answer, answer.plan.best[0]) if answer.plan.best else None,
                "why": None if answer.plan.best else why_nothing(answer),
            }
            for answer in answers
        ],
    }


def clusters_csv(answers: Sequence[PlanAnswer], file: TextIO) -> None:
    """Write a header and a line for each cluster that has a layout."""
    for rank, answer in enumerate((one for one in answers if one.plan.best), start=1):
        cluster = {"cluster": _name(answer), "gpus": len(answer.cluster.devices)}
        row = {**cluster, **flat_row(rank, answer, answer.plan.best[0])}
        if rank == 1:
            write_csv(file, [tuple(row)])
        write_csv(file, [tuple(row.values())])


def _name(answer: PlanAnswer) -> str:
    return answer.request.training.cluster_text or cluster_name(answer.cluster)


def _cells(rank: int, answer: PlanAnswer) -> dict[str, str]:
    best = next(iter(answer.plan.best), None)
    start = {
        "#": str(rank) if best else "-",
        "cluster": _name(answer),
        "GPUs": f"{len(answer.cluster.devices):,}",
    }
    if best is None:
        return start
    return {**start, "layout": name_of(best.layout), **number_cells(answer, best)}


def _notes(answers: Sequence[PlanAnswer]) -> Iterator[str]:
    """Doubts, prices, and why a cluster has no layout."""
    best = [(answer, answer.plan.best[0]) for answer in answers if answer.plan.best]
    if best:
        yield from doubts(best)
    prices = [
        f"{_name(one)} ${one.price.usd_per_gpu_hour:.2f} ({one.price.how.partition(';')[0]})"
        for one in answers
        if one.price is not None
    ]
    if prices:
        yield f"Prices per GPU hour: {', '.join(prices)}."
    for answer in answers:
        if not answer.plan.best:
            yield f"{_name(answer)}: {why_nothing(answer)}"
