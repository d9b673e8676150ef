"""Which cells of a grid break which rule first. Not: the rules of layouts (cost/layout_rules)."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from autoconf_launch.core import Architecture, Offload

from ..cost.layout_rules import RULES, LayoutRule
from ..cost.memory_layouts import OFFLOAD_CODES, MemoryLayouts
from ..table import Bools
from .grids import Grid


def _zero_ranks(x: MemoryLayouts, a: Architecture, sequence: int) -> Bools:
    away = x.offload_C == OFFLOAD_CODES[Offload.PARAMETERS]
    return np.asarray((x.zero_stage_C == 0) | (x.data_C * x.context_C > 1) | away)


PLAN_RULES = (
    *RULES,
    LayoutRule(
        name="zero_ranks",
        knob="zero_stage_C",
        flag="zero",
        why="has nothing to share among dp x cp = {ranks} ranks",
        keep=_zero_ranks,
    ),
)
"""In the order in which they are asked. Besides those that no layout may break: ZeRO on one rank
is what it is without, and would stand twice in a ranking."""


def counted(grid: Grid) -> int:
    """Layouts of a grid."""
    return _cells(grid.exists_C, grid.shape)


def obeying(
    grid: Grid,
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
    before = counted(grid)
    for rule in rules:
        if not before:
            break
        kept = kept & rule.keep(grid.columns, architecture, sequence)
        after = _cells(kept, grid.shape)
        if after < before:
            dropped[rule.name] = dropped.get(rule.name, 0) + before - after
        before = after
    return kept


def parts(grid: Grid, kept_C: Bools, cells: int) -> Iterator[tuple[Grid, Bools]]:
    """The grid in pieces of about so many cells, without meshes of which nothing is kept."""
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
