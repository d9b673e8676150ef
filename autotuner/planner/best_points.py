"""The best layout of each mesh and micro-batch, all other knobs at their best.

A search measures these one after the other; layouts that differ only in recomputation or ZeRO
would take the place of others.
Shapes: C as in ``grids``, P = points.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from autoconf_launch.core import Degrees

from ..cost import MEMORY_BAND, STEP_TIME_BAND, LayoutColumns, LayoutRule, estimate
from ..measurement import chance_below
from ..space import Bools, Floats, Ints
from .calibration import NINE_OF_TEN
from .mesh_grids import LayoutGrid, count_layouts, grids, parts, rule_mask
from .search import Training, has_host_memory

MEMORY = "memory"
_CELLS = 1 << 16
_MEMORY_SPREAD = MEMORY_BAND / NINE_OF_TEN
_RISK = 0.8 * STEP_TIME_BAND / NINE_OF_TEN
_LEAST_CHANCE = 1e-9
_MOST_MEMORY = 1.05
"""Predicted need over a GPU's memory up to which a layout is worth a trial."""
_POINT = ("tensor_C", "pipeline_C", "context_C", "expert_C", "micro_batch_C")
_RECOMPUTED = ("recompute_C", "recompute_layers_C")


@dataclass(frozen=True, slots=True, kw_only=True)
class PointQuestion:
    """Rules and limits of a search for points.

    Attributes:
        rules: in the order of their checks.
        are_recomputed_apart: layouts that differ in recomputation are different points.
    """

    training: Training
    world: int
    memory_bytes: float
    degrees: Degrees
    rules: tuple[LayoutRule, ...]
    are_recomputed_apart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Points:
    """Points as rows, the most promising first.

    Attributes:
        chance_P: to fit into memory, between 0 and 1.
        considered: layouts that satisfy the equations of mesh and batch.
        dropped: rule and how many of them broke it first, ``memory`` last.
    """

    rows: LayoutColumns | None
    step_s_P: Floats
    peak_bytes_P: Floats
    chance_P: Floats
    considered: int
    dropped: tuple[tuple[str, int], ...]


@dataclass(slots=True, kw_only=True)
class _Found:
    rows: list[LayoutColumns] = field(default_factory=list)
    considered: int = 0
    too_large: int = 0
    dropped: dict[str, int] = field(default_factory=dict)


def points(question: PointQuestion) -> Points:
    """Enumerate, rule out, price, and keep the best of each point."""
    found = _Found()
    workload = question.training.workload
    model, sequence = workload.architecture, workload.sequence_length
    for grid in grids(question.world, workload.global_batch, model, question.degrees):
        found.considered += count_layouts(grid)
        kept = rule_mask(grid, model, sequence, found.dropped, question.rules)
        for piece, kept_C in parts(grid, kept, _CELLS):
            _look(piece, kept_C, question, found)
    if found.too_large:
        found.dropped[MEMORY] = found.too_large
    return _points(question, found)


def predicted_chance_to_fit(peak_bytes_C: Floats, limit_bytes: float) -> Floats:
    """Chance to fit before anything was measured, from the memory model's error."""
    return chance_below(np.log(limit_bytes / peak_bytes_C) / _MEMORY_SPREAD)


def risked_s(step_s_C: Floats, chance_C: Floats) -> Floats:
    """Seconds by which a search orders layouts: longer if it is doubtful that they fit.

    The gain to expect of trying a layout grows with its chance to fit (Gardner et al. 2014,
    "Bayesian Optimization with Inequality Constraints") and falls by e if its time grows by 0.8
    times the spread of predictions (expected improvement over the fastest: Jones et al. 1998,
    equation 15). A chance of one half so weighs as much as 5 % of time.
    """
    return np.asarray(step_s_C * np.maximum(chance_C, _LEAST_CHANCE) ** -_RISK)


def _look(grid: LayoutGrid, kept_C: Bools, question: PointQuestion, found: _Found) -> None:
    costs = estimate(grid.columns, question.training.workload, question.training.machine)
    peak_C, step_s_C, limit = costs.peak_bytes_C, costs.step_s_C, question.memory_bytes
    kept_C = np.broadcast_to(kept_C, grid.shape)
    kept_C = has_host_memory(costs, kept_C, question.training, found.dropped)
    good_C = np.broadcast_to(kept_C & (peak_C <= _MOST_MEMORY * limit), grid.shape)
    found.too_large += int(np.count_nonzero(kept_C))
    found.too_large -= int(np.count_nonzero(good_C))
    order_C = np.where(good_C, risked_s(step_s_C, predicted_chance_to_fit(peak_C, limit)), np.inf)
    numbers = _best_cells(order_C, question.are_recomputed_apart)
    if len(numbers):
        found.rows.append(grid.rows(numbers))


def _best_cells(order_C: Floats, are_recomputed_apart: bool) -> Ints:
    """Flat numbers of the best cell for each mesh and micro-batch, and recomputation if apart."""
    numbers_C = np.arange(order_C.size).reshape(order_C.shape)
    axes = (0, 1, 3, 2, 4, 5) if are_recomputed_apart else (0, 1, 2, 3, 4, 5)
    merged = 3 if are_recomputed_apart else 4
    rest = tuple(order_C.shape[axis] for axis in axes[merged:])
    order = order_C.transpose(axes).reshape(-1, *rest)
    numbers = numbers_C.transpose(axes).reshape(-1, *rest)
    best = order.argmin(axis=0)[None]
    is_any = np.isfinite(np.take_along_axis(order, best, axis=0)[0])
    return np.asarray(np.take_along_axis(numbers, best, axis=0)[0][is_any])


def _points(question: PointQuestion, found: _Found) -> Points:
    """Meshes that differ only in virtual stages are one point; then all are sorted."""
    dropped = tuple(found.dropped.items())
    if not found.rows:
        none = np.zeros(0)
        return Points(
            rows=None,
            step_s_P=none,
            peak_bytes_P=none,
            chance_P=none,
            considered=found.considered,
            dropped=dropped,
        )
    rows = LayoutColumns.join(found.rows)
    costs = estimate(rows, question.training.workload, question.training.machine)
    peak_C, step_s_C = costs.peak_bytes_C, costs.step_s_C
    chance_C = predicted_chance_to_fit(peak_C, question.memory_bytes)
    kept = _one_each(rows, risked_s(step_s_C, chance_C), question.are_recomputed_apart)
    return Points(
        rows=rows.take(kept),
        step_s_P=step_s_C[kept],
        peak_bytes_P=peak_C[kept],
        chance_P=chance_C[kept],
        considered=found.considered,
        dropped=dropped,
    )


def _one_each(rows: LayoutColumns, order_C: Floats, are_recomputed_apart: bool) -> Ints:
    """Numbers of the first row of each point, in order; of equal ones the simplest first."""
    names = (*_POINT, *_RECOMPUTED) if are_recomputed_apart else _POINT
    ties = [getattr(rows, name) for name in ("micro_batch_C", "virtual_C", "context_C")]
    ties += [rows.tensor_C, rows.pipeline_C]
    sorted_C = np.lexsort((*ties, order_C))
    keys = np.column_stack([getattr(rows, name)[sorted_C] for name in names])
    _, first = np.unique(keys, axis=0, return_index=True)
    return np.asarray(sorted_C[np.sort(first)])
