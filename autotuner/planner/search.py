"""From a model and a cluster to the best layouts, and the number ruled out by each rule.

Not: names and files (launcher), nor why a layout lost (reasons).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from autoconf_launch.core import ALL_LAYERS, Degrees, Layout, Workload

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
from ..space import Bools, Floats, Ints, PredictionTable
from .layout_family import FAMILIES, family_numbers, shown_families
from .mesh_grids import PLAN_RULES, LayoutGrid, count_layouts, grids, parts, rule_mask
from .own_runs import OwnRuns, cell_factors
from .runnable import plan_only_by

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
"""Order of layouts of equal time, the last field weighing most: fewer kinds of parallelism first.
Data parallelism and accumulation follow from these."""
_CELLS = 1 << 16
_TIER_BITS = 64
"""Seconds times 2^64 are longer than the seconds of any layout of a better tier, and as exact."""


@dataclass(slots=True, kw_only=True)
class Ranking:
    """The ``most`` fastest rows; all rows if it is None.

    Attributes:
        one_each: only the fastest of each family.
        sequence_length: tokens of a sample, by which families are shown; None: all are.
    """

    most: int | None
    one_each: bool = False
    sequence_length: int | None = None
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
        if self.one_each:
            numbers = np.broadcast_to(family_numbers(grid.columns), grid.shape).reshape(-1)[good]
            fastest = np.full(FAMILIES, np.inf)
            np.minimum.at(fastest, numbers, seconds)
            good, seconds = _both(good, seconds, seconds <= fastest[numbers])
        elif self.most is not None and len(good) > self.most:
            last = np.partition(seconds, self.most - 1)[self.most - 1]
            good, seconds = _both(good, seconds, seconds <= last)
        self._rows.append(grid.rows(good))
        self._step_s.append(seconds)
        self._count += len(good)
        if self._count > 2 * (FAMILIES if self.one_each else self.most or self._count):
            self._settle()

    def best(self) -> LayoutColumns:
        """The rows in order, the fastest first."""
        self._settle()
        rows, seconds = self._rows[0], self._step_s[0]
        if self.one_each and self.sequence_length is not None:
            rows = rows.take(shown_families(rows, seconds, self.sequence_length))
        return rows.take(np.arange(min(len(rows), self.most))) if self.most else rows

    def __len__(self) -> int:
        return len(self.best()) if self._rows else 0

    def _settle(self) -> None:
        """Sort the rows so far, and drop those that are too slow."""
        rows, seconds = LayoutColumns.join(self._rows), np.concatenate(self._step_s)
        order = np.lexsort((*(getattr(rows, name) for name in _TIES), seconds))
        if self.one_each:
            _, first = np.unique(family_numbers(rows)[order], return_index=True)
            order = order[np.sort(first)]
        else:
            order = order[: self.most]
        self._rows, self._step_s = [rows.take(order)], [seconds[order]]
        self._count = len(order)
        if self._count == self.most and not self.one_each:
            self.slowest_s = float(seconds[order[-1]])


def _both(numbers: Ints, seconds: Floats, kept: Bools) -> tuple[Ints, Floats]:
    return numbers[kept], seconds[kept]


HOST_MEMORY, MEMORY, DEADLINE, MAX_COST = "host_memory", "memory", "deadline", "max_cost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """A workload on machines; ``runs`` correct the predicted seconds."""

    workload: Workload
    machine: Machine
    runs: OwnRuns | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a layout.

    Attributes:
        memory_bytes: of each rank.
        headroom: share of the memory that a layout should leave free; layouts that do rank first.
            None ranks only by time.
        deadline_step_s: the longest step that a deadline allows.
        cost_step_s: the longest step that a budget of money allows.
    """

    memory_bytes: float
    headroom: float | None = None
    deadline_step_s: float = np.inf
    cost_step_s: float = np.inf

    @property
    def safe_bytes(self) -> float:
        """Memory that a rank may need and leave the headroom free."""
        return (1.0 - (self.headroom or 0.0)) * self.memory_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Rules, limits and order of a search for layouts.

    Attributes:
        most: how many layouts to rank, None for all that fit.
        one_each: only the best layout of each family (:mod:`.layout_family`).
        rules: in the order of their checks.
        apart_rules: layouts that break one are ranked apart from the others.
        usd_per_gpu_hour: None if no price is known.
    """

    training: Training
    world: int
    limits: Limits
    degrees: Degrees = field(default_factory=Degrees)
    most: int | None = 10
    one_each: bool = False
    rules: tuple[LayoutRule, ...] = PLAN_RULES
    apart_rules: tuple[LayoutRule, ...] = ()
    usd_per_gpu_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """A pipeline stage.

    Attributes:
        ranks: their numbers.
        kinds: numbers of the kinds of node of its ranks, in the order of its ranks.
        layers: number of its layers.
        micro_batch_s: forward and backward of one micro-batch on its slowest rank, sends apart.
        peak_bytes: of its fullest rank.
        limit_bytes: memory of its smallest GPU.
    """

    ranks: range
    kinds: tuple[int, ...]
    layers: int
    micro_batch_s: float
    peak_bytes: float
    limit_bytes: float


def tightest_stage(stages: Iterable[StagePlan]) -> StagePlan:
    """The stage with the smallest share of memory left."""
    return max(stages, key=lambda stage: stage.peak_bytes / stage.limit_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A layout with its predicted times and memory.

    Ranks are numbered as Megatron-LM does (tensor, context, data, pipeline). On nodes that differ
    they fill the nodes in ``order``, so that stage s has the GPUs from ``s * tp * cp * dp`` on.

    Attributes:
        layout: on nodes that differ with ``pipeline_split`` if it has several stages, with
            ``micro_batch_split`` if replicas differ, without ``placement``.
        recompute_layers: layers of each stage that are recomputed in full; -1 for all.
        peak_bytes: need of the rank with the smallest share of memory left.
        limit_bytes: memory that this rank may use.
        host_bytes: host memory of a node for offloaded state.
        step_s: infinite if no time of the machine is known.
        parts: seconds by name that add up to ``step_s``.
        correction: factor by which measured runs lengthen all of these seconds.
        narrowing: spread of their error that these runs leave, over the one before.
        plan_only_by: name of the first rule by which our runtime does not run the layout.
        usd_per_hour: price of all nodes in use; None if a price is not known.
        counts: nodes of each kind in use if parts of a cluster are ranked, else empty; other nodes
            are neither used nor paid.
        order: the kind of each node, in the order of ranks; empty with ``counts``.
        stages: the first one first; empty with ``counts``.
    """

    layout: Layout
    recompute_layers: int = ALL_LAYERS
    peak_bytes: float
    limit_bytes: float
    step_s: float
    parts: tuple[tuple[str, float], ...]
    verdict: Verdict
    host_bytes: float = 0.0
    correction: float = 1.0
    narrowing: float = 1.0
    plan_only_by: str | None = None
    usd_per_hour: float | None = None
    counts: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    stages: tuple[StagePlan, ...] = ()

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization on equal nodes: recomputed operations do not count."""
        return dict(self.parts)["ideal"] / self.correction / self.step_s

    @property
    def usd_per_step(self) -> float | None:
        """Money of one optimizer step; None, too, if its time is not known."""
        if self.usd_per_hour is None or self.step_s == np.inf:
            return None
        return self.usd_per_hour * self.step_s / 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answer.

    Attributes:
        considered: layouts that satisfy the equations of mesh and batch; if parts of a cluster are
            ranked, on distinct orders of the nodes of all parts.
        valid: number of them that break no rule; 0 if parts of a cluster are ranked.
        fit: number of them that are predicted to fit; 0 likewise.
        safe: number of them that leave the headroom free; 0 without a headroom.
        rejected: rule and layouts that broke it first, ``memory`` and limits of time last.
        best: the fastest layouts in order, with runs by the end of one spread
            (:func:`.cell_factors`).
        apart: the fastest layouts that break a rule of ``apart_rules``.
        tightest: with a headroom, the fastest layout that fits, whatever it leaves free.
        surely: the fastest layout that fits even at the upper end of the memory's error band.
        smallest: if none fits, the valid layout that needs least memory.
        fastest: if none is within the limits, the fastest layout that fits.
        are_all_apart: the best break a rule of ``apart_rules``, as all do that fit.
    """

    considered: int
    valid: int = 0
    fit: int = 0
    rejected: tuple[tuple[str, int], ...] = ()
    best: tuple[Planned, ...]
    apart: tuple[Planned, ...] = ()
    safe: int = 0
    tightest: Planned | None = None
    surely: Planned | None = None
    smallest: Planned | None = None
    fastest: Planned | None = None
    are_all_apart: bool = False


@dataclass(slots=True, kw_only=True)
class _Tally:
    best: Ranking
    apart: Ranking
    tightest: Ranking = field(default_factory=lambda: Ranking(most=1))
    surely: Ranking = field(default_factory=lambda: Ranking(most=1))
    smallest: Ranking = field(default_factory=lambda: Ranking(most=1))
    fastest: Ranking = field(default_factory=lambda: Ranking(most=1))
    dropped: dict[str, int] = field(default_factory=dict)
    considered: int = 0
    valid: int = 0
    fit: int = 0
    safe: int = 0


def plan(question: Question) -> Plan:
    """Enumerate, rule out, price and rank.

    Short plans are kept: an answer with its alternatives repeats a third of its questions.
    """
    return _search(question) if question.most is None else _cached_plan(question)


@lru_cache(maxsize=256)
def _cached_plan(question: Question) -> Plan:
    return _search(question)


def _search(question: Question) -> Plan:
    training = question.training
    workload = training.workload
    model, sequence = workload.architecture, workload.sequence_length
    best, apart = (
        Ranking(most=question.most, one_each=question.one_each, sequence_length=sequence)
        for _ in range(2)
    )
    tally = _Tally(best=best, apart=apart)
    limited: dict[str, int] = {}
    for grid in grids(question.world, workload.global_batch, model, question.degrees):
        tally.considered += count_layouts(grid)
        kept = rule_mask(grid, model, sequence, tally.dropped, question.rules)
        for piece, kept_C in parts(grid, kept, _CELLS):
            _look(piece, kept_C, question, tally, limited)
    return _plan(question, tally, limited)


def _look(
    grid: LayoutGrid, kept_C: Bools, question: Question, tally: _Tally, limited: dict[str, int]
) -> None:
    limits, training = question.limits, question.training
    workload, machine = training.workload, training.machine
    costs = estimate(grid.columns, workload, machine)
    factors_C, caution_C = cell_factors(grid, kept_C, training.runs, workload, machine)
    peak_C, step_s_C, order_C = (
        np.broadcast_to(cost, grid.shape)
        for cost in (
            costs.peak_bytes_C,
            costs.step_s_C * factors_C,
            costs.step_s_C * factors_C * caution_C,
        )
    )
    kept_C = has_host_memory(costs, np.broadcast_to(kept_C, grid.shape), training, tally.dropped)
    fits_C = kept_C & fits(peak_C, limits.memory_bytes)
    tally.valid += int(np.count_nonzero(kept_C))
    tally.fit += int(np.count_nonzero(fits_C))
    if not tally.fit:
        tally.smallest.add(grid, kept_C, peak_C)
        return
    if limits.headroom is not None:
        tally.safe += int(np.count_nonzero(fits_C & (peak_C <= limits.safe_bytes)))
    tally.surely.add(grid, fits_C & (peak_C * (1 + MEMORY_BAND) <= limits.memory_bytes), order_C)
    wanted_C = fits_C
    for name, longest_s in ((DEADLINE, limits.deadline_step_s), (MAX_COST, limits.cost_step_s)):
        if np.isfinite(longest_s):
            within_C = wanted_C & (step_s_C <= longest_s)
            late = int(np.count_nonzero(wanted_C)) - int(np.count_nonzero(within_C))
            limited[name] = limited.get(name, 0) + late
            tally.fastest.add(grid, fits_C, order_C)
            wanted_C = within_C
    _rank(grid, wanted_C, (peak_C, order_C), question, tally)


def _rank(
    grid: LayoutGrid,
    wanted_C: Bools,
    peak_and_order_C: tuple[Floats, Floats],
    question: Question,
    tally: _Tally,
) -> None:
    """Rank the wanted cells by their tier and time, layouts that are ranked apart separately."""
    limits, (peak_C, order_C) = question.limits, peak_and_order_C
    apart_C = np.broadcast_to(~_together(grid, question), grid.shape)
    if limits.headroom is not None:
        safe_C = peak_C <= limits.safe_bytes
        tally.tightest.add(grid, wanted_C & ~apart_C, order_C)
        order_C = np.ldexp(order_C, np.where(safe_C, 0, _TIER_BITS))
    tally.best.add(grid, wanted_C & ~apart_C, order_C)
    tally.apart.add(grid, wanted_C & apart_C, order_C)


def _together(grid: LayoutGrid, question: Question) -> Bools:
    """Cells that break no rule that sets layouts apart."""
    workload = question.training.workload
    kept: Bools = np.ones((1,) * len(grid.shape), np.bool_)
    for rule in question.apart_rules:
        kept = kept & rule.keep(grid.columns, workload.architecture, workload.sequence_length)
    return kept


def has_host_memory(
    costs: PredictionTable, kept_C: Bools, training: Training, dropped: dict[str, int]
) -> Bools:
    """Kept cells whose nodes have room for the offloaded state; the others are counted."""
    limit_bytes, needed_C = training.machine.host_memory_bytes, costs.host_bytes_C
    if limit_bytes is None or needed_C is None:
        return kept_C
    has_room_C = kept_C & (needed_C <= limit_bytes)
    lost = int(np.count_nonzero(kept_C)) - int(np.count_nonzero(has_room_C))
    dropped[HOST_MEMORY] = dropped.get(HOST_MEMORY, 0) + lost
    return has_room_C


def _plan(question: Question, tally: _Tally, limited: dict[str, int]) -> Plan:
    memory = {MEMORY: tally.valid - tally.fit}
    rejected = {**tally.dropped, **memory, **limited}
    best, apart = (_best_plans(one, question) for one in (tally.best, tally.apart))

    def first(ranking: Ranking) -> Planned | None:
        return next(iter(_best_plans(ranking, question)), None)

    return Plan(
        considered=tally.considered,
        valid=tally.valid,
        fit=tally.fit,
        safe=tally.safe,
        rejected=tuple((name, count) for name, count in rejected.items() if count),
        best=best,
        apart=apart,
        tightest=first(tally.tightest),
        surely=first(tally.surely),
        smallest=None if tally.fit else first(tally.smallest),
        fastest=None if best or apart else first(tally.fastest),
    )


def _best_plans(ranking: Ranking, question: Question) -> tuple[Planned, ...]:
    if not len(ranking):
        return ()
    rows, training = ranking.best(), question.training
    workload = training.workload
    factors_C = narrowing_C = np.ones(len(rows))
    if training.runs is not None:
        found = training.runs.corrections(rows, workload, training.machine)
        factors_C, narrowing_C = found.factor_R, found.left_R / found.before_R
    costs = estimate(rows, workload, training.machine, factors_C)
    names, usd = [name for name, _ in costs.parts], question.usd_per_gpu_hour
    usd_per_hour = None if usd is None else question.world * usd
    parts = zip(*(seconds.tolist() for _, seconds in costs.parts), strict=True)
    hosts_C = np.zeros(len(rows)) if costs.host_bytes_C is None else costs.host_bytes_C
    columns = zip(
        rows.layouts(),
        rows.recompute_layers_C.tolist(),
        costs.peak_bytes_C.tolist(),
        costs.step_s_C.tolist(),
        hosts_C.tolist(),
        factors_C.tolist(),
        narrowing_C.tolist(),
        plan_only_by(rows, workload.architecture, workload.sequence_length),
        parts,
        strict=True,
    )
    return tuple(
        Planned(
            layout=layout,
            recompute_layers=layers,
            peak_bytes=peak,
            limit_bytes=question.limits.memory_bytes,
            step_s=step_s,
            parts=tuple(zip(names, seconds, strict=True)),
            verdict=verdict(peak, question.limits.memory_bytes),
            host_bytes=host,
            correction=factor,
            narrowing=narrowing,
            plan_only_by=rule,
            usd_per_hour=usd_per_hour,
        )
        for layout, layers, peak, step_s, host, factor, narrowing, rule, seconds in columns
    )
