"""``plan`` for a script whose model is known by its pieces: ZeRO, micro-batch, recomputation.

Not: tensor or pipeline parallelism, which need a known architecture.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from autoconf_launch.autotuner.cost.fitting import Verdict
from autoconf_launch.core import Layout

from ..planner.plan_flags import PlanRequest
from .rows import Asked, TracedRow, recomputations, traced_rows

_MOST_SIZES = 64
_GB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class PiecesPlan:
    """The answer.

    Attributes:
        best: layouts that fit, the fastest first, as many as asked for.
        smallest: the one that needs least memory.
    """

    request: PlanRequest
    asked: Asked
    considered: int
    fit: int
    best: tuple[TracedRow, ...]
    smallest: TracedRow | None
    seconds: float


def plan_by_pieces(request: PlanRequest, asked: Asked) -> PiecesPlan:
    """Rank all layouts that keep the global batch."""
    started_s = time.perf_counter()
    rows = traced_rows(asked, list(_layouts(request.training.global_batch, asked)))
    fitting = [row for row in rows if row.verdict is not Verdict.NO]
    fitting.sort(key=_rank)
    return PiecesPlan(
        request=request,
        asked=asked,
        considered=len(rows),
        fit=len(fitting),
        best=tuple(fitting[: request.top]),
        smallest=min(rows, key=lambda row: row.peak_bytes, default=None),
        seconds=time.perf_counter() - started_s,
    )


def _rank(row: TracedRow) -> tuple[float, int, float]:
    """By time; of those as fast, the one that shards least stands first."""
    return row.step_s or 0.0, row.layout.zero_stage, row.peak_bytes


def why_no_pieces(answer: PiecesPlan) -> str:
    """One true sentence on a plan without a layout."""
    gpus = len(answer.asked.cluster.devices)
    batch = answer.request.training.global_batch
    if answer.smallest is None:
        return (
            f"--global-batch {batch} is not a multiple of {gpus} GPUs; valid: {gpus}, {2 * gpus}, "
            f"{3 * gpus}, …"
        )
    return (
        f"none of {answer.considered:,} layouts fits: the smallest need is "
        f"{answer.smallest.peak_bytes / _GB:.1f} GB of {answer.asked.limit_bytes / _GB:.1f} GB a "
        "GPU; take larger GPUs, or more of them, which ZeRO 3 shares the model among."
    )


def _layouts(global_batch: int, asked: Asked) -> Iterator[Layout]:
    world = len(asked.cluster.devices)
    if global_batch % world:
        return
    samples = global_batch // world
    for stage in range(4) if world > 1 else range(1):
        for size in _sizes(samples):
            for kind in recomputations(asked.script):
                yield Layout(
                    data_parallel=world,
                    zero_stage=stage,
                    micro_batch=size,
                    accumulation=samples // size,
                    recompute=kind,
                )


def _sizes(samples: int) -> list[int]:
    """Micro-batches that divide the samples of a rank; of very many the smallest ones."""
    found: list[int] = []
    for size in range(1, int(samples**0.5) + 1):
        if samples % size == 0:
            found += {size, samples // size}
    return sorted(found)[:_MOST_SIZES]
