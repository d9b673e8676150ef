"""``fit`` for a script whose model is known by its pieces. Not: for known architectures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autoconf_launch.autotuner.cost.fitting import Verdict
from autoconf_launch.core import ConfigError, Layout

from ..planner.fit_flags import FitRequest
from .rooms import Room, rooms
from .rows import Asked, TracedRow, peak_bytes, recomputations, traced_rows

_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class PiecesFit:
    """The answer; ``remedies`` fit, the fastest first."""

    asked: Asked
    row: TracedRow
    rooms: tuple[Room, ...]
    remedies: tuple[TracedRow, ...]


def fit_by_pieces(request: FitRequest, asked: Asked) -> PiecesFit:
    """Whether the layout asked for fits.

    Raises:
        ConfigError: the global batch does not divide.
    """
    layout = _layout(request, len(asked.cluster.devices))
    row = traced_rows(asked, [layout])[0]
    remedies: list[TracedRow] = []
    if row.verdict is Verdict.NO:
        found = traced_rows(asked, list(_changed(layout, asked)))
        remedies = [one for one in found if one.verdict is not Verdict.NO]
        remedies.sort(key=lambda one: (one.verdict is not Verdict.YES, one.step_s or 0.0))
    return PiecesFit(
        asked=asked,
        row=row,
        rooms=rooms(
            layout,
            recomputations(asked.script),
            lambda one: peak_bytes(asked, one),
            asked.limit_bytes,
        ),
        remedies=tuple(remedies[:_SHOWN]),
    )


def _layout(request: FitRequest, world: int) -> Layout:
    once = request.micro_batch * world
    if request.training.global_batch % once:
        raise ConfigError(
            f"--global-batch {request.training.global_batch} is not a multiple of micro-batch "
            f"{request.micro_batch} x {world} GPUs = {once}; "
            f"valid: {once}, {2 * once}, {3 * once}, …"
        )
    return Layout(
        data_parallel=world,
        zero_stage=request.zero,
        micro_batch=request.micro_batch,
        accumulation=request.training.global_batch // once,
        recompute=request.recompute,
    )


def _changed(layout: Layout, asked: Asked) -> Iterator[Layout]:
    """The same global batch with other stages, recomputation and smaller micro-batches."""
    stages = range(4) if layout.data_parallel > 1 else (layout.zero_stage,)
    samples = layout.micro_batch * layout.accumulation
    sizes = [size for size in range(layout.micro_batch, 0, -1) if samples % size == 0]
    for size in sizes:
        for stage in stages:
            for kind in recomputations(asked.script):
                changed = replace(
                    layout,
                    zero_stage=stage,
                    recompute=kind,
                    micro_batch=size,
                    accumulation=samples // size,
                )
                if changed != layout:
                    yield changed
