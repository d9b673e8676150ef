"""Peak memory and seconds of every cell of a grid. Not: the formulas (cost), nor ranking."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from autoconf_launch.core import Architecture, Layout, Offload, Recompute, Workload

from ..cost import (
    RECOMPUTE_CODES,
    LayoutColumns,
    Machine,
    StepParts,
    all_layers,
    between,
    peak_bytes,
    recomputed_share,
    step_parts,
)
from ..space import Floats
from .mesh_grids import RECOMPUTE, LayoutGrid

_NONE, _FULL = RECOMPUTE_CODES[Recompute.NONE], RECOMPUTE_CODES[Recompute.FULL]


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What is trained on which machines."""

    workload: Workload
    machine: Machine


def grid_costs(grid: LayoutGrid, training: Training) -> tuple[Floats, Floats]:
    """Bytes of the fullest rank and seconds of a step, in shapes that broadcast to the grid's."""
    peak_C = peak_bytes(grid.columns, training.workload)
    return peak_C, _grid_seconds(grid, training)


def row_costs(rows: LayoutColumns, training: Training) -> tuple[Floats, StepParts]:
    """The same of flat columns, time part by part."""
    timed = step_parts(rows, training.workload, training.machine)
    whole = {f.name: np.broadcast_to(getattr(timed, f.name), len(rows)) for f in fields(timed)}
    return peak_bytes(rows, training.workload), StepParts(**whole)


def _grid_seconds(grid: LayoutGrid, training: Training) -> Floats:
    """Each kind of recomputation is timed once; some layers of a stage lie between two kinds."""
    kinds_C = step_parts(grid.with_kinds(), training.workload, training.machine).step_s_C
    code = grid.columns.recompute_C.reshape(-1)
    seconds_C = np.take(kinds_C, code, axis=RECOMPUTE)
    some = (grid.columns.recompute_layers_C >= 0).any(axis=(0, 1, 3, 4, 5))
    if some.any():
        wide = grid.columns.recompute_layers_C[:, :, some]
        share_C = recomputed_share(
            wide, grid.columns.pipeline_C, all_layers(training.workload.architecture)
        )
        seconds_C[:, :, some] = between(
            share_C, kinds_C[:, :, _FULL, None], kinds_C[:, :, _NONE, None]
        )
    return seconds_C


STEP_TIME_BAND = 0.16
"""Nine of ten of the 1065 timed settings in the published tables that the model was fitted on lie
within it (``benchmarks/planner_accuracy.py``; models that were left out of the fit are about one
point worse)."""
UNMEASURED_BAND = 2 * STEP_TIME_BAND
"""A guess for what no table has: experts, and states in host memory."""


def time_band(architecture: Architecture, layout: Layout) -> float:
    """Relative error of a predicted step that nine of ten layouts like this one stay within."""
    unmeasured = architecture.experts is not None or layout.offload is not Offload.NONE
    return UNMEASURED_BAND if unmeasured else STEP_TIME_BAND
