"""Memory and time of layouts of a script whose model is known only by its pieces.

Data parallelism, ZeRO and recomputation, as our runtime does them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from autoconf_launch.autotuner.cost import (
    FormatGain,
    LayoutColumns,
    MemoryParts,
    Network,
    Proposal,
    Remedy,
    StepParts,
    TracedOperations,
    Verdict,
    estimate,
    format_gains,
    profiled_step_parts,
    traced_memory,
    verdict,
)
from autoconf_launch.autotuner.planner import MEMORY, Plan, Planned
from autoconf_launch.autotuner.space import CandidateTable, Floats
from autoconf_launch.core import (
    Candidate,
    ConfigError,
    Layout,
    ModelSpec,
    Optimizer,
    Precision,
    Recompute,
    Workload,
)

from ..estimates import (
    FitAnswer,
    FitRequest,
    HostMemory,
    PlanAnswer,
    PlanRequest,
    RowState,
    TrainingRequest,
    chosen_prices,
    machine_of,
    refuse_runs,
    require_equal_nodes,
    require_rates,
)
from .script import TracedScript

_MOST_DOUBLINGS = 20
PeakOf: TypeAlias = Callable[[Layout], float]
"""Bytes that the fullest rank of a layout needs."""
_LEAST_FACTOR = 0.25
_TRIES = 3
_SHOWN = 10
_MOST_SIZES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A ZeRO stage with a kind of recomputation.

    ``peak_bytes`` is for the requested micro-batch; ``largest`` is the largest micro-batch that
    fits safely, 0 if none does.
    """

    zero_stage: int
    recompute: Recompute
    peak_bytes: float
    verdict: Verdict
    largest: int


def rooms(
    layout: Layout, kinds: Sequence[Recompute], peak: PeakOf, limit_bytes: float
) -> tuple[Room, ...]:
    """All stages that differ on these ranks, with each kind of recomputation."""
    stages = range(4) if layout.data_parallel * layout.context_parallel > 1 else range(1)
    return tuple(
        _room(replace(layout, zero_stage=stage, recompute=kind), peak, limit_bytes)
        for kind in kinds
        for stage in stages
    )


def _room(layout: Layout, peak: PeakOf, limit_bytes: float) -> Room:
    def fits(size: int) -> bool:
        needed = peak(replace(layout, micro_batch=size))
        return verdict(needed, limit_bytes) is Verdict.YES

    now = peak(layout)
    return Room(
        zero_stage=layout.zero_stage,
        recompute=layout.recompute,
        peak_bytes=now,
        verdict=verdict(now, limit_bytes),
        largest=largest(fits),
    )


def largest(fits: Callable[[int], bool]) -> int:
    """The largest number of samples that fits, if more never fit better; 0: not even one."""
    if not fits(1):
        return 0
    low = 1
    while fits(2 * low):
        low *= 2
        if low >= 1 << _MOST_DOUBLINGS:
            return low
    high = 2 * low
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRow:
    """A layout with its memory and time.

    Attributes:
        memory: name and bytes of each part; they add up to the peak.
        step_s: duration of a step in seconds; None without rates of the GPU.
        step: name and seconds of each part of the step.
    """

    layout: Layout
    memory: tuple[tuple[str, float], ...]
    verdict: Verdict
    step_s: float | None
    step: tuple[tuple[str, float], ...]

    @property
    def peak_bytes(self) -> float:
        """Sum of all parts."""
        return sum(size for _, size in self.memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class PiecesQuestion:
    """A script that is known by its pieces, and the training to predict."""

    script: TracedScript
    training: TrainingRequest

    @property
    def optimizer(self) -> Optimizer:
        if "--optimizer" in self.training.given:
            return self.training.workload.optimizer
        return Optimizer(states=self.script.states)


def traced_rows(asked: PiecesQuestion, layouts: Sequence[Layout]) -> tuple[TracedRow, ...]:
    """Each layout's memory and time, in order."""
    if not layouts:
        return ()
    table = _table(layouts)
    named, step = traced_memory(table, _workload(asked)), _step(asked, table)
    return tuple(_row(asked, layout, i, named, step) for i, layout in enumerate(layouts))


def pieces_gains(asked: PiecesQuestion, layout: Layout) -> tuple[FormatGain, ...]:
    """Gains of other formats of the products in a layout."""
    table, training = _table([layout]), asked.training

    def step_s(precision: Precision) -> float:
        workload = replace(training.workload, precision=precision)
        other = replace(asked, training=replace(training, workload=workload))
        return float(_step(other, table).step_s_C[0])

    accelerator = machine_of(training.cluster).accelerator
    return format_gains(training.workload.precision, accelerator, step_s)


def layout_peak_bytes(asked: PiecesQuestion, layout: Layout) -> float:
    """Bytes of a rank, without seconds."""
    return sum(float(sizes[0]) for _, sizes in traced_memory(_table([layout]), _workload(asked)))


def traced_factor(script: TracedScript, training: TrainingRequest) -> float:
    """Activation memory of the script's own pass, over the formulas of its shapes.

    A model of known shapes may compute with other kernels than the formulas assume, such
    as dropout, or an activation function of many operations.
    """
    found = script.found
    if not found.peaks or found.recompute is not Recompute.NONE:
        return 1.0
    layout = Layout(micro_batch=found.micro_batch)
    columns = LayoutColumns.from_layouts([layout])
    plain = replace(
        training.workload,
        sequence_length=found.model.sequence_length or 1,
        precision=found.precision,
    )
    pieces = PiecesQuestion(script=script, training=replace(training, workload=plain))
    traced = layout_peak_bytes(pieces, layout)

    def formula_bytes(factor: float) -> float:
        workload = replace(plain, activation_factor=factor)
        return float(estimate(columns, workload, training.cluster).peak_bytes_C[0])

    factor = 1.0
    for _ in range(_TRIES):  # nearly a line, so that each secant comes close
        slope = formula_bytes(factor + 1.0) - formula_bytes(factor)
        factor += (traced - formula_bytes(factor)) / slope
        factor = max(_LEAST_FACTOR, factor)
    return factor


def _table(layouts: Sequence[Layout]) -> CandidateTable:
    return CandidateTable.from_candidates([Candidate(layout=layout) for layout in layouts])


def _workload(asked: PiecesQuestion) -> Workload:
    """The training on our runtime, with the optimizer asked for."""
    return Workload(
        model=_with_states(asked),
        optimizer=asked.optimizer,
        precision=asked.training.workload.precision,
        beside=asked.training.workload.beside,
    )


def recomputations(script: TracedScript) -> tuple[Recompute, ...]:
    """Kinds that can be asked for: a script that recomputes by itself goes on doing so."""
    repeated = any(block.count > 1 and block.input_bytes for block in script.found.model.blocks)
    if script.found.recompute is not Recompute.NONE or not repeated:
        return (Recompute.NONE,)
    return (Recompute.NONE, Recompute.FULL)


def _with_states(asked: PiecesQuestion) -> ModelSpec:
    spec = asked.script.spec
    more = asked.optimizer.states - asked.script.states
    state_bytes = int(more * spec.trainable_parameters * spec.parameter_bytes_each)
    peaks = tuple(
        replace(peak, peak_bytes=peak.peak_bytes + state_bytes) for peak in spec.traced_peaks
    )
    return replace(spec, traced_peaks=peaks)


def _step(asked: PiecesQuestion, table: CandidateTable) -> StepParts:
    found, cluster, workload = asked.script.found, asked.training.cluster, _workload(asked)
    times = TracedOperations(
        workload=workload,
        machine=machine_of(cluster),
        operations=found.operations,
        micro_batch=found.micro_batch,
    )
    return profiled_step_parts(table, workload, Network.of(cluster), times)


def _row(
    asked: PiecesQuestion,
    layout: Layout,
    i: int,
    named: Sequence[tuple[str, Floats]],
    step: StepParts,
) -> TracedRow:
    memory = tuple((name, float(sizes[i])) for name, sizes in named)
    seconds = float(step.step_s_C[i])
    timed = bool(np.isfinite(seconds))
    return TracedRow(
        layout=layout,
        memory=memory,
        verdict=verdict(sum(size for _, size in memory), asked.training.limit_bytes),
        step_s=seconds if timed else None,
        step=tuple((name, float(part[i])) for name, part in step.profiled_parts())
        if timed
        else (),
    )


def fit_by_pieces(request: FitRequest, script: TracedScript) -> tuple[FitAnswer, tuple[Room, ...]]:
    """The fit of the requested layout, and the room that each ZeRO stage leaves.

    Raises:
        ConfigError: the global batch does not divide.
    """
    asked = PiecesQuestion(script=script, training=request.training)
    training, layout = request.training, _layout(request)
    if script.found.recompute is not Recompute.NONE:  # its trace has what it recomputes
        layout = replace(layout, recompute=Recompute.NONE)
    row = traced_rows(asked, [layout])[0]
    found: list[TracedRow] = []
    if row.verdict is Verdict.NO:
        variants = traced_rows(asked, list(_layout_variants(layout, asked)))
        found = [one for one in variants if one.verdict is not Verdict.NO]
        found.sort(key=lambda one: (one.verdict is not Verdict.YES, one.step_s or 0.0))
    workload = replace(training.workload, model=script.found.model)
    answer = FitAnswer(
        script=script.name,
        cluster=training.cluster,
        trainer=training.trainer,
        asked=Proposal(layout=layout, workload=workload),
        memory=MemoryParts(named=tuple((name, np.array([[x]])) for name, x in row.memory)),
        limit_bytes=training.limit_bytes,
        verdict=row.verdict,
        step_s=row.step_s,
        state=RowState("with the script"),
        remedies=tuple(_remedy(layout, one, workload) for one in found[:_SHOWN]),
        host=HostMemory(needed_bytes=0.0, limit_bytes=training.cluster.least_host_memory_bytes),
        gains=pieces_gains(asked, layout),
    )
    kinds = recomputations(script)
    left = rooms(layout, kinds, lambda x: layout_peak_bytes(asked, x), training.limit_bytes)
    return answer, left


def _remedy(asked: Layout, row: TracedRow, workload: Workload) -> Remedy:
    named = (
        ("micro-batch", asked.micro_batch, row.layout.micro_batch),
        ("recompute", asked.recompute.value, row.layout.recompute.value),
        ("zero", asked.zero_stage, row.layout.zero_stage),
    )
    return Remedy(
        changes=tuple(f"{name}={after}" for name, before, after in named if before != after),
        proposal=Proposal(layout=row.layout, workload=workload),
        peak_bytes=row.peak_bytes,
        verdict=row.verdict,
        step_s=row.step_s,
    )


def _layout(request: FitRequest) -> Layout:
    world, size = len(request.training.cluster.devices), request.layout.micro_batch
    batch, once = request.training.workload.global_batch, size * world
    if batch % once:
        raise ConfigError(
            f"--global-batch {batch} is not a multiple of micro-batch {size} x {world} GPUs = "
            f"{once}; valid: {once}, {2 * once}, {3 * once}, …"
        )
    return replace(request.layout, data_parallel=world, accumulation=batch // once)


def _layout_variants(layout: Layout, asked: PiecesQuestion) -> Iterator[Layout]:
    """Layouts of one global batch, with other stages, recomputation, smaller micro-batches."""
    stages = range(4) if layout.data_parallel > 1 else (layout.zero_stage,)
    samples = layout.micro_batch * layout.accumulation
    sizes = [size for size in range(layout.micro_batch, 0, -1) if samples % size == 0]
    for size in sizes:
        for stage in stages:
            for kind in recomputations(asked.script):
                changed = replace(
                    layout,
                    zero_stage=stage,
                    recompute=kind,
                    micro_batch=size,
                    accumulation=samples // size,
                )
                if changed != layout:
                    yield changed


def plan_by_pieces(request: PlanRequest, script: TracedScript) -> PlanAnswer:
    """Rank all layouts that keep the global batch; layouts with the headroom come first.

    Each ZeRO stage and recomputation has its fastest micro-batch, unless ``--top`` is 0.

    Raises:
        ConfigError: nodes differ, no rates of their GPUs are known, or real runs are given.
    """
    training, started_s = request.training, time.perf_counter()
    remedy = "give --model in place of the script, or plan each kind by itself"
    require_equal_nodes(training.cluster, remedy)
    require_rates(training.cluster)
    refuse_runs(request)
    asked = PiecesQuestion(script=script, training=training)
    rows = traced_rows(asked, list(_layouts(asked)))
    fitting = [row for row in rows if row.verdict is not Verdict.NO]
    fitting.sort(key=lambda row: (_tier(row, request), *_rank(row)))
    best = fitting if request.top is None else list(_best_of_each(fitting))
    (price,) = prices = chosen_prices(request)
    hourly = None if price is None else len(training.cluster.devices) * price.usd_per_gpu_hour
    lost = len(rows) - len(fitting)
    found = Plan(
        considered=len(rows),
        valid=len(rows),
        fit=len(fitting),
        safe=sum(not _tier(row, request) for row in fitting),
        rejected=((MEMORY, lost),) if lost else (),
        best=tuple(_plan_row(row, training, hourly) for row in best[: request.top]),
        smallest=min(
            (_plan_row(row, training, hourly) for row in rows),
            key=lambda row: row.peak_bytes,
            default=None,
        ),
    )
    workload = replace(training.workload, model=script.found.model)
    return PlanAnswer(
        request=replace(request, training=replace(training, workload=workload)),
        prices=prices,
        steps=None,
        plan=found,
        seconds=time.perf_counter() - started_s,
        gains=pieces_gains(asked, best[0].layout) if best else (),
        script=script.name,
    )


def _plan_row(row: TracedRow, training: TrainingRequest, usd_per_hour: float | None) -> Planned:
    return Planned(
        layout=row.layout,
        peak_bytes=row.peak_bytes,
        limit_bytes=training.limit_bytes,
        step_s=math.inf if row.step_s is None else row.step_s,
        parts=row.step,
        verdict=row.verdict,
        usd_per_hour=usd_per_hour,
    )


def _tier(row: TracedRow, request: PlanRequest) -> int:
    """0 with the headroom, 1 without."""
    return int(row.peak_bytes > (1 - request.headroom) * request.training.limit_bytes)


def _best_of_each(rows: Sequence[TracedRow]) -> Iterator[TracedRow]:
    """The first row of each ZeRO stage and recomputation."""
    seen = set()
    for row in rows:
        kind = (row.layout.zero_stage, row.layout.recompute)
        if kind not in seen:
            seen.add(kind)
            yield row


def _rank(row: TracedRow) -> tuple[float, int, float]:
    return row.step_s or 0.0, row.layout.zero_stage, row.peak_bytes


def _layouts(asked: PiecesQuestion) -> Iterator[Layout]:
    world = len(asked.training.cluster.devices)
    samples, rest = divmod(asked.training.workload.global_batch, world)
    if rest:
        return
    for stage in range(4) if world > 1 else range(1):
        for size in _sizes(samples):
            for kind in recomputations(asked.script):
                yield Layout(
                    data_parallel=world,
                    zero_stage=stage,
                    micro_batch=size,
                    accumulation=samples // size,
                    recompute=kind,
                )


def _sizes(samples: int) -> list[int]:
    """Micro-batches that divide the samples of a rank; of very many the smallest ones."""
    found: list[int] = []
    for size in range(1, int(samples**0.5) + 1):
        if samples % size == 0:
            found += {size, samples // size}
    return sorted(found)[:_MOST_SIZES]
