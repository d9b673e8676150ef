"""Meshes crossed with all other knobs, as columns that broadcast.

A grid has one axis for each of ``offload, sequence parallel, recompute, zero, micro-batch, mesh``;
a column is long only on its own axis, which keeps formulas cheap. The mesh is last, since it is
the longest. Shapes: C = that grid, or columns that broadcast to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, TypeAlias

import numpy as np

from autoconf_launch.core import Architecture, Degrees, Offload, Recompute, divisors

from ..cost import (
    ALL_LAYERS,
    OFFLOAD_CODES,
    RECOMPUTE_CODES,
    RULES,
    LayoutColumns,
    LayoutRule,
    can_cut,
)
from ..space import Bools, Ints

Mesh: TypeAlias = tuple[int, int, int, int, int]
OFFLOAD, SEQUENCE, RECOMPUTE, ZERO, MICRO, MESH = range(6)
_AXES = 6
_QUARTERS = 4
_MOST_UNEVEN = 4
"""Most virtual stages of unequal layers to look at, as published; more shorten the step less than
they lengthen the search."""
PLAN_RULES: tuple[LayoutRule, ...] = (
    *RULES,
    LayoutRule(
        name="zero_ranks",
        knob="zero_stage_C",
        flag="zero",
        why="has nothing to shard over dp x cp = {ranks} ranks",
        keep=lambda x, a, _: (x.zero_stage_C == 0) | (x.shards_C > 1) | x.are_weights_away_C,
    ),
)
"""In the order of their checks: the rules of every layout, and that ZeRO on one rank is a
duplicate."""


_STATES_AWAY = (Offload.NONE, Offload.OPTIMIZER, Offload.PARAMETERS)
"""Kinds of offload that a question considers if it names none."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LayoutGrid:
    """Layouts as axes; ``exists_C`` omits duplicates."""

    columns: LayoutColumns
    exists_C: Bools

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        return self.columns.shape

    def with_meshes(self, selection: Any) -> LayoutGrid:
        """Some of the meshes, as a slice or a mask."""
        return LayoutGrid(
            columns=self.columns.map_columns(lambda column: _take_meshes(column, selection)),
            exists_C=_take_meshes(self.exists_C, selection),
        )

    def rows(self, numbers: Ints) -> LayoutColumns:
        """Flat columns of some cells."""
        where = np.unravel_index(numbers, self.shape)
        return self.columns.map_columns(lambda column: np.broadcast_to(column, self.shape)[where])


def grids(
    world: int, global_batch: int, architecture: Architecture, degrees: Degrees
) -> Iterator[LayoutGrid]:
    """A grid for each number of data-parallel ranks."""
    for group in meshes(world, global_batch, architecture, degrees):
        micro = select_wanted(divisors(global_batch // group.data), degrees.micro_batch)
        if micro:
            yield _grid(group, np.array(micro, np.int64), global_batch, architecture, degrees)


def _grid(
    group: Meshes, micro: Ints, global_batch: int, a: Architecture, degrees: Degrees
) -> LayoutGrid:
    kind, layers, exists = _recompute_columns(
        a.layers + a.encoder_layers, group.pipeline_M, degrees
    )
    offload = [OFFLOAD_CODES[one] for one in degrees.offload or _STATES_AWAY]
    sequence = degrees.sequence_parallel or (False, True)
    micro_C = _on(MICRO, micro)
    columns = LayoutColumns(
        data_C=_on(MESH, np.array([group.data])),
        tensor_C=_on(MESH, group.tensor_M),
        pipeline_C=_on(MESH, group.pipeline_M),
        virtual_C=_on(MESH, group.virtual_M),
        context_C=_on(MESH, group.context_M),
        expert_C=_on(MESH, group.expert_M),
        zero_stage_C=_on(ZERO, np.array(degrees.zero_stage or (0, 1, 2, 3), np.int64)),
        micro_batch_C=micro_C,
        accumulation_C=global_batch // group.data // micro_C,
        recompute_C=_on(RECOMPUTE, kind),
        recompute_layers_C=layers[None, None, :, None, None, :],
        sequence_parallel_C=_on(SEQUENCE, np.array(sequence, np.bool_)),
        offload_C=_on(OFFLOAD, np.array(offload, np.int64)),
    )
    return LayoutGrid(columns=columns, exists_C=exists[None, None, :, None, None, :])


def _recompute_columns(
    layers: int, pipeline_M: Ints, degrees: Degrees
) -> tuple[Ints, Ints, Bools]:
    """Kind, layers of a stage by mesh, and whether this is not another one's equal."""
    kinds = tuple(Recompute) if degrees.recompute is None else degrees.recompute
    codes = [RECOMPUTE_CODES[kind] for kind in kinds]
    stage_M = -(-layers // pipeline_M)
    rows = [np.full_like(stage_M, ALL_LAYERS) for _ in codes]
    exists = [np.ones(len(stage_M), np.bool_) for _ in codes]
    if degrees.recompute_layers is None:
        counts = [-(-stage_M * part // _QUARTERS) for part in range(1, _QUARTERS)]
    else:
        counts = [np.full_like(stage_M, count) for count in degrees.recompute_layers]
    before = np.zeros_like(stage_M)
    for count_M in counts:
        rows.append(count_M)
        exists.append((count_M > before) & (count_M < stage_M))
        before = count_M
    codes += [RECOMPUTE_CODES[Recompute.FULL]] * len(counts)
    return np.array(codes, np.int64), np.stack(rows), np.stack(exists)


def _on(axis: int, values: Any) -> Any:
    line = [1] * _AXES
    line[axis] = -1
    return values.reshape(line)


def _take_meshes(column: Any, selection: Any) -> Any:
    return column[..., selection] if column.shape[MESH] > 1 else column


def count_layouts(grid: LayoutGrid) -> int:
    """Layouts of a grid."""
    return _cells(grid.exists_C, grid.shape)


def rule_mask(
    grid: LayoutGrid,
    architecture: Architecture,
    sequence: int,
    dropped: dict[str, int],
    rules: tuple[LayoutRule, ...] = PLAN_RULES,
) -> Bools:
    """Cells that exist and break no rule, in a shape that broadcasts to the grid's.

    ``dropped`` counts the others under the first rule that they break. The mask only grows along
    an axis when a rule looks at it.
    """
    kept = grid.exists_C
    before = count_layouts(grid)
    for rule in rules:
        if not before:
            break
        kept = kept & rule.keep(grid.columns, architecture, sequence)
        after = _cells(kept, grid.shape)
        if after < before:
            dropped[rule.name] = dropped.get(rule.name, 0) + before - after
        before = after
    return kept


def parts(grid: LayoutGrid, kept_C: Bools, cells: int) -> Iterator[tuple[LayoutGrid, Bools]]:
    """The grid in pieces of about ``cells`` cells, without meshes of which nothing is kept."""
    size = grid.shape[-1]
    kept_C = np.broadcast_to(kept_C, (*kept_C.shape[:-1], size))
    meshes_M = kept_C.any(axis=tuple(range(kept_C.ndim - 1)))
    if not meshes_M.any():
        return
    grid, kept_C = grid.with_meshes(meshes_M), kept_C[..., meshes_M]
    size = grid.shape[-1]
    pieces = math.ceil(math.prod(grid.shape) / cells)
    step = math.ceil(size / pieces)
    for first in range(0, size, step):
        piece = slice(first, first + step)
        yield grid.with_meshes(piece), kept_C[..., piece]


def _cells(kept_C: Bools, shape: tuple[int, ...]) -> int:
    return int(np.count_nonzero(kept_C)) * (math.prod(shape) // kept_C.size)


def select_wanted(found: tuple[int, ...], wanted: tuple[int, ...] | None) -> tuple[int, ...]:
    """The values found that are wanted, in order."""
    return found if wanted is None else tuple(value for value in found if value in wanted)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Meshes:
    """Meshes with the same data parallelism, those with the same tensor ranks together."""

    data: int
    tensor_M: Ints
    context_M: Ints
    expert_M: Ints
    pipeline_M: Ints
    virtual_M: Ints


def meshes(
    world: int, global_batch: int, architecture: Architecture, degrees: Degrees
) -> Iterator[Meshes]:
    """All that obey ``world = data x tensor x pipeline x context`` and divide the global batch.

    Virtual stages are those that divide the layers, embedding and head counted as two more layers
    or not, or nearly so; expert ranks are divisors of the experts.
    """
    for data in divisors(world):
        if global_batch % data:
            continue
        found = list(_of_ranks(world // data, architecture, degrees))
        if found:
            tensor, context, expert, pipeline, virtual = np.array(found, np.int64).T
            yield Meshes(
                data=data,
                tensor_M=tensor,
                context_M=context,
                expert_M=expert,
                pipeline_M=pipeline,
                virtual_M=virtual,
            )


def _of_ranks(ranks: int, a: Architecture, degrees: Degrees) -> Iterator[Mesh]:
    experts = select_wanted(
        divisors(a.experts.count) if a.experts else (1,), degrees.expert_parallel
    )
    layers = a.layers + a.encoder_layers
    for tensor in select_wanted(divisors(ranks), degrees.tensor_parallel):
        for context in select_wanted(divisors(ranks // tensor), degrees.context_parallel):
            pipeline = ranks // tensor // context
            if degrees.pipeline_parallel is not None and pipeline not in degrees.pipeline_parallel:
                continue
            virtual = select_wanted(_virtual(layers, pipeline), degrees.virtual_pipeline)
            for expert in experts:
                for pieces in virtual:
                    yield tensor, context, expert, pipeline, pieces


@cache
def _virtual(layers: int, pipeline: int) -> tuple[int, ...]:
    """Virtual stages that a pipeline's stages can be cut into; 1 is always among them."""
    if pipeline == 1 or pipeline > layers:
        return (1,)
    cuts = np.arange(2, (layers + 2) // pipeline + 1)
    pieces = pipeline * cuts
    few = (cuts <= _MOST_UNEVEN) | (layers % pieces == 0) | ((layers + 2) % pieces == 0)
    return (1, *cuts[can_cut(layers, pieces) & few].tolist())
