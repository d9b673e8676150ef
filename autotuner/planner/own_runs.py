"""Real runs of a training, and their correction of its predictions.

Runs may be smaller than the training: fewer GPUs, fewer layers. Read in the launcher; more runs
are chosen in :mod:`.run_choice`.
Shapes: M = runs, C = layouts, R = layouts and then runs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from autoconf_launch.core import Architecture, Layout, Workload

from ..cost import LayoutColumns, Machine, estimate
from ..space import Bools, Floats, Ints
from .calibration import (
    LARGEST_ERROR,
    NOISE,
    SURPRISE,
    Corrections,
    ErrorBelief,
    Likeness,
    corrections,
    likeness,
)

if TYPE_CHECKING:
    from .mesh_grids import LayoutGrid


_WIDEST = 5.0
"""Beyond it a band says no more than that nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnRuns:
    """Measured steps of one model by one software on one kind of machines.

    Attributes:
        layouts: layout of each run.
        model: the trained model; runs may have fewer layers.
        sequence_length: tokens of a sample.
        scale: variances of effects over the variances of the published tables.
        noise: spread of two runs of one setting.
        widening: factor of the band, at least 1, for runs that contradicted each other or the
            prediction.
    """

    layouts: LayoutColumns
    model: Architecture
    sequence_length: int
    predicted_s_M: Floats
    measured_s_M: Floats
    scale: float
    noise: float = NOISE
    widening: float = 1.0

    @staticmethod
    def none(workload: Workload, scale: float) -> OwnRuns:
        """No runs yet of a training, with the ``scale`` of its errors."""
        return OwnRuns(
            layouts=LayoutColumns.from_layouts([Layout()]).take(np.zeros(0, np.int64)),
            model=workload.architecture,
            sequence_length=workload.sequence_length,
            predicted_s_M=np.zeros(0),
            measured_s_M=np.zeros(0),
            scale=scale,
        )

    def surprises(self, workload: Workload, machine: Machine) -> Floats:
        """Distance of each run from the expectation by all others, in spreads; (M,).

        Runs that are farther off are not among the others, so that only they are named.
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

    def spreads_off(self, workload: Workload, machine: Machine) -> Floats:
        """Distance of each run from its prediction, in spreads; (M,)."""
        belief = self._belief(self.likeness(self.layouts, workload, machine))
        spreads_M = np.sqrt(np.diag(belief.covariance_RR)[-len(self.layouts) :] + self.noise**2)
        return np.asarray(np.log(self.measured_s_M / self.predicted_s_M) / spreads_M)

    def without_contradicting(self, surprises_M: Floats, spreads_off_M: Floats) -> OwnRuns:
        """Keep only the runs that agree; if none do, keep all.

        The band is wider for runs that contradict each other, or that agree with each other but
        not with the prediction.
        """
        kept = np.flatnonzero(np.abs(surprises_M) <= SURPRISE)
        kept = kept if len(kept) else np.arange(len(surprises_M))
        off = max(np.abs(surprises_M).max(), np.abs(spreads_off_M[kept]).max())
        return replace(
            self,
            layouts=self.layouts.take(kept),
            predicted_s_M=self.predicted_s_M[kept],
            measured_s_M=self.measured_s_M[kept],
            widening=float(np.clip(off / SURPRISE, 1.0, _WIDEST)),
        )

    def corrections(
        self, layouts: LayoutColumns, workload: Workload, machine: Machine
    ) -> Corrections:
        """Corrections of layouts by the runs; contradictions leave more uncertainty; (C,)."""
        alike = self.likeness(layouts, workload, machine)
        rows, count = self._rows(alike), len(layouts)
        found = corrections(alike, rows, self._likely_logs(), self.scale, self.noise)
        return Corrections(
            factor_R=found.factor_R[:count],
            before_R=found.before_R[:count],
            left_R=found.left_R[:count] * self.widening,
        )

    def factors(self, layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
        """Factors for the predicted seconds of layouts; (C,)."""
        return self.corrections(layouts, workload, machine).factor_R

    def narrowing(self, layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
        """Spread of the errors that are left, over the one before the runs; (C,)."""
        found = self.corrections(layouts, workload, machine)
        return np.asarray(found.left_R / found.before_R)

    def belief(self, layouts: LayoutColumns, workload: Workload, machine: Machine) -> ErrorBelief:
        """Errors of layouts, and of the runs after them, once these were measured; (R,)."""
        alike = self.likeness(layouts, workload, machine)
        return self._belief(alike).after(self._rows(alike), self._likely_logs())

    def likeness(self, layouts: LayoutColumns, workload: Workload, machine: Machine) -> Likeness:
        """Effects that layouts of a training and the runs after them share; (R,)."""
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
        """Logarithm of measured over predicted seconds, cut off beyond errors of predictions.

        Several runs that agree count as far as they widen the band, a single run does not.
        """
        largest = LARGEST_ERROR * max(1.0, np.sqrt(self.scale))
        if len(self.layouts) > 1:
            largest *= self.widening
        return np.log(self.measured_s_M / self.predicted_s_M).clip(-largest, largest)

    def _rows(self, alike: Likeness) -> Ints:
        count = len(alike.levels_RL)
        return np.arange(count - len(self.layouts), count)

    def _belief(self, alike: Likeness) -> ErrorBelief:
        return ErrorBelief.before(alike, self.scale, self.noise)


def cut_model(model: Architecture, layers: int) -> Architecture:
    """A model with fewer layers of the same kind."""
    experts = model.experts
    if experts is not None and experts.first_dense > layers:
        experts = replace(experts, first_dense=layers)
    return replace(model, layers=layers, experts=experts)


def is_same_model(one: Architecture, other: Architecture) -> bool:
    """True if they differ only in the number of layers, the vocabulary and the name."""
    return one == replace(other, name=one.name, layers=one.layers, vocabulary=one.vocabulary)


def predicted_steps_s(
    layouts: LayoutColumns, models: list[Architecture], workload: Workload, machine: Machine
) -> Floats:
    """Seconds of layouts, each with its own model, for example with fewer layers."""
    steps_s = np.full(len(layouts), np.nan)
    for model in dict.fromkeys(models):
        rows = np.array([row for row, one in enumerate(models) if one == model])
        found = estimate(layouts.take(rows), replace(workload, model=model), machine)
        steps_s[rows] = found.step_s_C
    return steps_s


def cell_factors(
    grid: LayoutGrid, kept_C: Bools, runs: OwnRuns | None, workload: Workload, machine: Machine
) -> tuple[Floats | float, Floats | float]:
    """Factors of a grid's cells in a shape that broadcasts to it; 1 without runs.

    Sequence parallelism and offload, the first two axes, share all of their errors.

    Returns:
        What the runs multiply seconds by, and what a ranking multiplies these by: up to the end
        of one spread, so that a layout of which the runs say little does not get before a measured
        one because nothing corrected it.
    """
    if runs is None:
        return 1.0, 1.0
    columns = grid.columns.map_columns(lambda column: column[:1, :1])
    shape = columns.shape
    kept = np.broadcast_to(kept_C, grid.shape).any(axis=(0, 1), keepdims=True)
    cells = np.nonzero(np.broadcast_to(kept, shape))
    factors_C, caution_C = np.ones(shape), np.ones(shape)
    if len(cells[0]):
        flat = columns.map_columns(lambda column: np.broadcast_to(column, shape)[cells])
        found = runs.corrections(flat, workload, machine)
        factors_C[cells], caution_C[cells] = found.factor_R, np.exp(found.left_R)
    return factors_C, caution_C
