"""The fastest layouts of many grids, kept as they come. Not: their prices, nor their reports."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

import numpy as np

from ..cost.memory_layouts import MemoryLayouts
from ..table import Bools, Floats, Ints
from .grids import Grid

_TIES = (
    "micro_batch_C",
    "sequence_parallel_C",
    "recompute_layers_C",
    "recompute_C",
    "offload_C",
    "zero_stage_C",
    "virtual_C",
    "expert_C",
    "context_C",
    "tensor_C",
    "pipeline_C",
)
"""What orders layouts of equal time, the last one weighing most: fewer kinds of parallelism first.
Data parallelism and accumulation follow from these."""


@dataclass(slots=True, kw_only=True)
class Ranking:
    """The ``most`` fastest rows; all of them where that is None."""

    most: int | None
    slowest_s: float = np.inf
    _rows: list[MemoryLayouts] = field(default_factory=list)
    _step_s: list[Floats] = field(default_factory=list)
    _count: int = 0

    def add(self, grid: Grid, wanted_C: Bools, step_s_C: Floats) -> None:
        """Look at the wanted cells; both arrays have the shape of the grid."""
        good = np.flatnonzero(wanted_C & (step_s_C <= self.slowest_s))
        if not len(good):
            return
        seconds = step_s_C.reshape(-1)[good]
        if self.most is not None and len(good) > self.most:
            last = np.partition(seconds, self.most - 1)[self.most - 1]
            good, seconds = good[seconds <= last], seconds[seconds <= last]
        self._rows.append(grid.rows(good))
        self._step_s.append(seconds)
        self._count += len(good)
        if self.most is not None and self._count > 2 * self.most:
            self._settle()

    def best(self) -> MemoryLayouts:
        """The rows in order, the fastest first."""
        self._settle()
        return self._rows[0]

    def __len__(self) -> int:
        return self._count if self.most is None else min(self._count, self.most)

    def _settle(self) -> None:
        """Sort what has come, and leave out what is too slow."""
        rows, seconds = joined(self._rows), np.concatenate(self._step_s)
        order = np.lexsort((*(getattr(rows, name) for name in _TIES), seconds))[: self.most]
        self._rows, self._step_s = [taken(rows, order)], [seconds[order]]
        self._count = len(order)
        if self._count == self.most:
            self.slowest_s = float(seconds[order[-1]])


def joined(rows: list[MemoryLayouts]) -> MemoryLayouts:
    """Flat columns, one set after the other."""
    names = [f.name for f in fields(MemoryLayouts)]
    return MemoryLayouts(
        **{name: np.concatenate([getattr(one, name) for one in rows]) for name in names}
    )


def taken(rows: MemoryLayouts, numbers: Ints) -> MemoryLayouts:
    """Some rows of flat columns."""
    return MemoryLayouts(**{f.name: getattr(rows, f.name)[numbers] for f in fields(MemoryLayouts)})
