"""A layout whose nodes, order and layers are given: what each stage takes and needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoconf_launch.core import Workload

from ..cost import LayoutColumns, memory_bytes
from .kinds import MachineKind
from .places import place_stages
from .rows import StagePlan, stage_kinds
from .times import stage_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenStages:
    """Its stages, and seconds of an optimizer step."""

    stages: tuple[StagePlan, ...]
    step_s: float


def given_stages(
    columns: LayoutColumns,
    workload: Workload,
    kinds: Sequence[MachineKind],
    order: Sequence[int],
    layers: Sequence[int],
) -> GivenStages:
    """Price one layout.

    Args:
        columns: the layout as one row.
        workload: a model known by its shapes.
        kinds: of nodes.
        order: the kind of each node, in the order of ranks; the layout fills them all.
        layers: of each stage.
    """
    gpus, split = sum(kinds[kind].gpus for kind in order), np.array([layers])
    places = place_stages(
        np.array([order], np.int64), kinds, stages=len(layers), stage_ranks=gpus // len(layers)
    )
    times = stage_seconds(columns, places, np.zeros(1, np.int64), workload, kinds)
    numbers = np.arange(len(layers))[:, None]
    peaks = memory_bytes(columns, workload, numbers, split.T).total[:, 0].tolist()
    busy = times.busy_s(split)[0].tolist()
    here = stage_kinds(order, kinds, len(layers))
    return GivenStages(
        stages=tuple(
            StagePlan(
                kinds=some,
                layers=count,
                micro_batch_s=seconds,
                peak_bytes=peak,
                limit_bytes=min(kinds[kind].memory_bytes for kind in some),
            )
            for some, count, seconds, peak in zip(here, layers, busy, peaks, strict=True)
        ),
        step_s=float(times.step_s(split)[0]),
    )
