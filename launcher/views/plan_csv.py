"""Ranked layouts as a table of comma-separated values. Not: where it is written."""

from __future__ import annotations

import csv
from typing import Any, TextIO

from autoconf_launch.autotuner.layouts.search import Planned

from ..planner.answers import PlanAnswer
from .plan_rows import row_document

_UNEQUAL = frozenset({"placement", "pipeline_split", "micro_batch_split"})


def plan_csv(answer: PlanAnswer, file: TextIO) -> None:
    """Write a header and a line for each ranked layout, the fastest first."""
    writer = csv.writer(file, lineterminator="\n")
    for rank, one in enumerate(answer.plan.best, start=1):
        row = _flat(rank, answer, one)
        if rank == 1:
            writer.writerow(row)
        writer.writerow(row.values())


def _flat(rank: int, answer: PlanAnswer, one: Planned) -> dict[str, Any]:
    document = row_document(answer, one)
    candidate, parts = document.pop("candidate"), document.pop("parts")
    knobs = {name: value for name, value in candidate.items() if name not in _UNEQUAL}
    return {"rank": rank, **knobs, **document, "fits": one.verdict.value, **parts}
