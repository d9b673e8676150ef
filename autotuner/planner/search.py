"""From a model and a cluster to the best layouts, and how many were ruled out by what.

Not: names and files (launcher), nor why a layout lost (reasons).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from autoconf_launch.core import Degrees, Layout, Workload

from ..cost import (
    MEMORY_BAND,
    LayoutColumns,
    LayoutRule,
    Machine,
    Verdict,
    estimate,
    fits,
    verdict,
)
from ..space import Bools, Floats
from .mesh_grids import PLAN_RULES, LayoutGrid, count_layouts, grids, obeying, parts

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
    _rows: list[LayoutColumns] = field(default_factory=list)
    _step_s: list[Floats] = field(default_factory=list)
    _count: int = 0

    def add(self, grid: LayoutGrid, wanted_C: Bools, step_s_C: Floats) -> None:
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

    def best(self) -> LayoutColumns:
        """The rows in order, the fastest first."""
        self._settle()
        return self._rows[0]

    def __len__(self) -> int:
        return self._count if self.most is None else min(self._count, self.most)

    def _settle(self) -> None:
        """Sort what has come, and skip what is too slow."""
        rows, seconds = LayoutColumns.join(self._rows), np.concatenate(self._step_s)
        order = np.lexsort((*(getattr(rows, name) for name in _TIES), seconds))[: self.most]
        self._rows, self._step_s = [rows.take(order)], [seconds[order]]
        self._count = len(order)
        if self._count == self.most:
            self.slowest_s = float(seconds[order[-1]])


MEMORY, DEADLINE, MAX_COST = "memory", "deadline", "max_cost"
_CELLS = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What is trained on which machines."""

    workload: Workload
    machine: Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a layout must keep within.

    Attributes:
        memory_bytes: of each rank.
        deadline_step_s: the longest step that a deadline allows.
        cost_step_s: the longest step that a budget of money allows.
    """

    memory_bytes: float
    deadline_step_s: float = np.inf
    cost_step_s: float = np.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked.

    Attributes:
        most: how many layouts to rank, None for all that fit.
        rules: in the order in which they are asked.
    """

    training: Training
    world: int
    limits: Limits
    degrees: Degrees = field(default_factory=Degrees)
    most: int | None = 10
    rules: tuple[LayoutRule, ...] = PLAN_RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One layout with its prices.

    Attributes:
        recompute_layers: layers of each stage that are recomputed in full; -1 for all.
        parts: seconds by name, in the order of ``StepParts``; they add up to ``step_s``.
    """

    layout: Layout
    recompute_layers: int
    peak_bytes: float
    step_s: float
    parts: tuple[tuple[str, float], ...]
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer.

    Attributes:
        considered: layouts that satisfy the equations of mesh and batch.
        valid: those of them that break no rule.
        fit: those of them that are not surely too large for memory.
        rejected: rule and layouts that broke it first, ``memory`` and limits of time last.
        best: the fastest ones in order.
        surely: the fastest one that fits even at the upper end of the memory's error band.
        smallest: where none fits, the valid one that needs least memory.
        fastest: where none is within the limits, the fastest one that fits.
    """

    considered: int
    valid: int
    fit: int
    rejected: tuple[tuple[str, int], ...]
    best: tuple[Planned, ...]
    surely: Planned | None = None
    smallest: Planned | None = None
    fastest: Planned | None = None


@dataclass(slots=True, kw_only=True)
class _Tally:
    """What has been seen so far."""

    best: Ranking
    surely: Ranking
    smallest: Ranking
    fastest: Ranking
    dropped: dict[str, int] = field(default_factory=dict)
    considered: int = 0
    valid: int = 0
    fit: int = 0


def plan(question: Question) -> Plan:
    """Enumerate, rule out, price and rank."""
    training = question.training
    workload = training.workload
    model, sequence = workload.architecture, workload.sequence_length
    tally = _Tally(
        best=Ranking(most=question.most),
        surely=Ranking(most=1),
        smallest=Ranking(most=1),
        fastest=Ranking(most=1),
    )
    limited: dict[str, int] = {}
    for grid in grids(question.world, workload.global_batch, model, question.degrees):
        tally.considered += count_layouts(grid)
        kept = obeying(grid, model, sequence, tally.dropped, question.rules)
        for piece, kept_C in parts(grid, kept, _CELLS):
            _look(piece, kept_C, question, tally, limited)
    return _plan(question, tally, limited)


def _look(
    grid: LayoutGrid, kept_C: Bools, question: Question, tally: _Tally, limited: dict[str, int]
) -> None:
    """Price the cells of a piece, and keep what is good of them."""
    limits = question.limits
    costs = estimate(grid.columns, question.training.workload, question.training.machine)
    peak_C, step_s_C = (
        np.broadcast_to(cost, grid.shape) for cost in (costs.peak_bytes_C, costs.step_s_C)
    )
    kept_C = np.broadcast_to(kept_C, grid.shape)
    fits_C = kept_C & fits(peak_C, limits.memory_bytes)
    valid, fit = int(np.count_nonzero(kept_C)), int(np.count_nonzero(fits_C))
    tally.valid += valid
    tally.fit += fit
    if not tally.fit:
        tally.smallest.add(grid, kept_C, peak_C)
        return
    tally.surely.add(grid, fits_C & (peak_C * (1 + MEMORY_BAND) <= limits.memory_bytes), step_s_C)
    wanted_C = fits_C
    for name, longest_s in ((DEADLINE, limits.deadline_step_s), (MAX_COST, limits.cost_step_s)):
        if np.isfinite(longest_s):
            within_C = wanted_C & (step_s_C <= longest_s)
            late = int(np.count_nonzero(wanted_C)) - int(np.count_nonzero(within_C))
            limited[name] = limited.get(name, 0) + late
            tally.fastest.add(grid, fits_C, step_s_C)
            wanted_C = within_C
    tally.best.add(grid, wanted_C, step_s_C)


def _plan(question: Question, tally: _Tally, limited: dict[str, int]) -> Plan:
    memory = {MEMORY: tally.valid - tally.fit}
    rejected = {**tally.dropped, **memory, **limited}
    found = {
        name: _best_plans(ranking, question)
        for name, ranking in (
            ("best", tally.best),
            ("surely", tally.surely),
            ("smallest", tally.smallest),
            ("fastest", tally.fastest),
        )
    }
    return Plan(
        considered=tally.considered,
        valid=tally.valid,
        fit=tally.fit,
        rejected=tuple((name, count) for name, count in rejected.items() if count),
        best=found["best"],
        surely=next(iter(found["surely"]), None),
        smallest=None if tally.fit else next(iter(found["smallest"]), None),
        fastest=None if found["best"] else next(iter(found["fastest"]), None),
    )


def _best_plans(ranking: Ranking, question: Question) -> tuple[Planned, ...]:
    if not len(ranking):
        return ()
    rows = ranking.best()
    costs = estimate(rows, question.training.workload, question.training.machine)
    names = [name for name, _ in costs.parts]
    parts = zip(*(seconds.tolist() for _, seconds in costs.parts), strict=True)
    found = zip(
        rows.layouts(),
        rows.recompute_layers_C.tolist(),
        costs.peak_bytes_C.tolist(),
        costs.step_s_C.tolist(),
        parts,
        strict=True,
    )
    return tuple(
        Planned(
            layout=layout,
            recompute_layers=layers,
            peak_bytes=peak,
            step_s=step_s,
            parts=tuple(zip(names, seconds, strict=True)),
            verdict=verdict(peak, question.limits.memory_bytes),
        )
        for layout, layers, peak, step_s, seconds in found
    )
