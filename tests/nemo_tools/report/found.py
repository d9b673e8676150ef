"""Outcomes of searches that never ran, for tests of what is told of them."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.sizing import Family, SampleShape
from autoconf_launch.core import Failure, FailureKind, Layout, RawConfig
from autoconf_launch.nemo.candidate_grids import NemoCandidate
from autoconf_launch.nemo.report import SearchOutcome, SearchRun

GPT_5B = SampleShape(
    family=Family("gpt3"), layers=24, hidden=4096, ffn=16384, vocabulary=51200, sequence=2048
)
OUT_OF_MEMORY = Failure(kind=FailureKind.OUT_OF_MEMORY, detail="Rank 3 held 79 of 80 GiB.")


def point(*mesh: int, micro_batch: int = 4, **more: Any) -> NemoCandidate:
    names = ("tensor_parallel", "pipeline_parallel", "context_parallel", "expert_parallel")
    degrees: dict[str, Any] = dict(zip(names, mesh, strict=False))
    layout = Layout(**degrees, micro_batch=micro_batch)
    return NemoCandidate(layout=layout, **more)


def run(name: str, step_s: float | None = None, **more: Any) -> SearchRun:
    start: dict[str, Any] = {
        "point": point(),
        "global_batch": 2048,
        "config": RawConfig({"run": {"name": name}}),
        "steps": 45 if step_s else 0,
    }
    return SearchRun(name=name, step_s=step_s, **{**start, **more})


def outcome(*runs: SearchRun, **more: Any) -> SearchOutcome:
    start: dict[str, Any] = {
        "size_b": 5.0,
        "nodes": 16,
        "gpus_per_node": 8,
        "tokens_b": 300.0,
        "shape": GPT_5B,
        "base": RawConfig({}),
    }
    return SearchOutcome(runs=runs, **{**start, **more})


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))
