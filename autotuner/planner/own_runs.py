"""Real runs of a training, and by how much they correct what is predicted of its layouts.

Runs may be smaller than the training: fewer GPUs, fewer layers. Not: reading them (launcher), nor
which further ones pay (run_choice).
Shapes: M = runs, C = layouts, R = layouts and then runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from autoconf_launch.core import Architecture, Workload

from ..cost import (
    LARGEST_ERROR,
    NOISE,
    SURPRISE,
    ErrorBelief,
    LayoutColumns,
    Likeness,
    Machine,
    correction_factors,
    estimate,
    likeness,
    spreads_left,
)
from ..space import Bools, Floats, Ints

if TYPE_CHECKING:
    from .mesh_grids import LayoutGrid


_WIDEST = 5.0
"""Beyond it a band says no more than that nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnRuns:
    """Measured steps of one model by one software on one kind of machines.

    Attributes:
        layouts: of each run.
        model: trained, whatever number of its layers a run had.
        sequence_length: tokens of a sample.
        scale: variances of effects over those of the published tables.
        noise: spread of two runs of one setting.
        widening: by how much the band is wider for runs that contradicted these; at least 1.
    """

    layouts: LayoutColumns
    model: Architecture
    sequence_length: int
    predicted_s_M: Floats
    measured_s_M: Floats
    scale: float
    noise: float = NOISE
    widening: float = 1.0

    def surprises(self, workload: Workload, machine: Machine) -> Floats:
        """By how many spreads each run is off what all the others let expect; (M,).

        Others than those that are further off themselves, so that these alone are named.
        """
        alike = self.likeness(self.layouts, workload, machine)
        logs_M = np.log(self.measured_s_M / self.predicted_s_M)
        belief, rows_M = self._belief(alike), self._rows(alike)
        surprises_M, kept = np.zeros(len(rows_M)), np.arange(len(rows_M))
        while len(kept):
            surprises_M[kept] = belief.surprises(rows_M[kept], logs_M[kept])
            worst = int(np.abs(surprises_M[kept]).argmax())
            if abs(surprises_M[kept[worst]]) <= SURPRISE:
                break
            kept = np.delete(kept, worst)
        return surprises_M

    def without_contradicting(self, surprises_M: Floats) -> OwnRuns:
        """Only runs that agree correct; where none does, all, as nothing tells which is right."""
        off_M = np.abs(surprises_M)
        kept = np.flatnonzero(off_M <= SURPRISE)
        kept = kept if len(kept) else np.arange(len(off_M))
        return replace(
            self,
            layouts=self.layouts.take(kept),
            predicted_s_M=self.predicted_s_M[kept],
            measured_s_M=self.measured_s_M[kept],
            widening=float(np.clip(off_M.max() / SURPRISE, 1.0, _WIDEST)),
        )

    def factors(self, layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
        """By how much predicted seconds of layouts are to be multiplied; (C,)."""
        alike = self.likeness(layouts, workload, machine)
        rows = self._rows(alike)
        found = correction_factors(alike, rows, self._likely_logs(), self.scale, self.noise)
        return found[: rows[0]]

    def narrowing(self, layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
        """Spread of the errors that are left, over the one before the runs; (C,).

        It is larger where a run contradicted the others.
        """
        alike = self.likeness(layouts, workload, machine)
        rows = self._rows(alike)
        left_R = spreads_left(alike, rows, self.scale, self.noise)
        return left_R[: rows[0]] * self.widening

    def belief(self, layouts: LayoutColumns, workload: Workload, machine: Machine) -> ErrorBelief:
        """What is known of layouts, and of the runs after them, once these were measured; (R,)."""
        alike = self.likeness(layouts, workload, machine)
        return self._belief(alike).after(self._rows(alike), self._likely_logs())

    def likeness(self, layouts: LayoutColumns, workload: Workload, machine: Machine) -> Likeness:
        """What layouts of a training and the runs after them share; (R,)."""
        model = workload.architecture
        counts = (len(layouts), len(self.layouts))
        shapes = [
            (model.hidden, workload.sequence_length),
            (self.model.hidden, self.sequence_length),
        ]
        number = 0 if is_same_model(model, self.model) else 1
        return likeness(
            LayoutColumns.join([layouts, self.layouts]),
            np.zeros(sum(counts), np.int64),
            np.repeat([0, number], counts),
            np.repeat(np.array(shapes, np.float64), counts, axis=0),
            np.full(sum(counts), machine.gpus_per_node),
        )

    def _likely_logs(self) -> Floats:
        """Logarithm of measured over predicted seconds, cut off beyond errors of predictions."""
        largest = LARGEST_ERROR * max(1.0, np.sqrt(self.scale))
        return np.log(self.measured_s_M / self.predicted_s_M).clip(-largest, largest)

    def _rows(self, alike: Likeness) -> Ints:
        count = len(alike.levels_RL)
        return np.arange(count - len(self.layouts), count)

    def _belief(self, alike: Likeness) -> ErrorBelief:
        return ErrorBelief.before(alike, self.scale, self.noise)


def is_same_model(one: Architecture, other: Architecture) -> bool:
    """Whether they differ in the number of layers, the vocabulary and the name alone."""
    return one == replace(other, name=one.name, layers=one.layers, vocabulary=one.vocabulary)


def predicted_steps_s(
    layouts: LayoutColumns, models: list[Architecture], workload: Workload, machine: Machine
) -> Floats:
    """Seconds of layouts, each with a model of its own, such as one with fewer layers."""
    steps_s = np.full(len(layouts), np.nan)
    for model in dict.fromkeys(models):
        rows = np.array([row for row, one in enumerate(models) if one == model])
        found = estimate(layouts.take(rows), replace(workload, model=model), machine)
        steps_s[rows] = found.step_s_C
    return steps_s


def cell_factors(
    grid: LayoutGrid, kept_C: Bools, runs: OwnRuns | None, workload: Workload, machine: Machine
) -> Floats | float:
    """Factors of a grid's cells in a shape that broadcasts to it; 1 without runs.

    Sequence parallelism and offload, the first two axes, share all of their errors.
    """
    if runs is None:
        return 1.0
    columns = grid.columns.map_columns(lambda column: column[:1, :1])
    shape = columns.shape
    kept = np.broadcast_to(kept_C, grid.shape).any(axis=(0, 1), keepdims=True)
    cells = np.nonzero(np.broadcast_to(kept, shape))
    factors_C = np.ones(shape)
    if len(cells[0]):
        flat = columns.map_columns(lambda column: np.broadcast_to(column, shape)[cells])
        factors_C[cells] = runs.factors(flat, workload, machine)
    return factors_C
