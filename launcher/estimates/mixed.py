"""The answer of ``plan`` on a cluster whose nodes differ. Not: its text (report)."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.autotuner.cost import LayoutColumns, LayoutRule
from autoconf_launch.autotuner.mixed import (
    MIXED_DEGREES,
    Choice,
    ChoiceRule,
    MachineKind,
    MixedPlan,
    MixedQuestion,
    MixedRow,
    PriceRange,
    every_row,
    mixed_plan,
    placement,
    price_range,
    rivals,
    rotations,
)
from autoconf_launch.autotuner.planner import StepBand, leading, time_band
from autoconf_launch.core import ClusterSpec, ConfigError, Layout, NodeKind, Workload, pareto_front

from ..asked import Goal
from .layer_times import read_layer_times
from .requests import PlanRequest, TrainingRequest, price_of_gpu
from .runnable import (
    RowState,
    apart_rules,
    broken_rule_here,
    has_uneven,
    layout_rules,
    row_states,
    training_steps,
)
from .training_choice import (
    ChosenPrice,
    check_positions,
    check_precision,
    check_weights,
    choose_price,
    machine_of,
    one_node,
    require_rates,
)

PRICE_CHANGE = 0.2
"""Prices that move by this share should leave a choice as it is."""
NETWORK_FACTORS = (0.5, 2.0)
"""The same of the rates of all networks between nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceSensitivity:
    """What would change the choice of a row.

    Attributes:
        chosen: the row.
        ranges: of each kind's price between which it stays; empty where one is not known.
        band: of predicted steps; ``rivals`` are rows that it could put first.
        networks: for each factor of all networks, what is chosen then; empty unless asked for.
    """

    chosen: MixedRow
    ranges: tuple[PriceRange, ...]
    band: float
    rivals: tuple[MixedRow, ...]
    networks: tuple[tuple[float, MixedRow | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedAnswer:
    """All that the forms of the report say.

    Attributes:
        kinds: of the cluster's nodes, in its order, with their prices.
        prices: where each kind's price is from; None where none is known.
        plan: the best layout of each part of the cluster.
        choice: by which rows are ranked.
        apart: faster layouts that do not run here or were never checked, and that lead the first
            row by less than their error band.
        rows: those of them within the limits, best first, as many as were asked for; of the front
            of time and money all of it, the fastest first.
        sensitivity: of the choice; None where nothing is within the limits.
        headroom: share of memory that they leave free; 0 where none leaves what was asked for.
        steps: of the whole training; None where no tokens were given.
        seconds: that the search took.
    """

    request: PlanRequest
    question: MixedQuestion
    prices: tuple[ChosenPrice | None, ...]
    plan: MixedPlan
    choice: Choice
    rows: tuple[MixedRow, ...]
    sensitivity: ChoiceSensitivity | None
    headroom: float
    steps: int | None
    seconds: float
    apart: tuple[MixedRow, ...] = ()

    @property
    def workload(self) -> Workload:
        """The training."""
        return self.question.workload

    @property
    def kinds(self) -> tuple[MachineKind, ...]:
        """Kinds of the cluster's nodes."""
        return self.question.kinds

    def bands(self, rows: Sequence[MixedRow]) -> list[StepBand]:
        """The widest error band of each row's step on one of its kinds of GPU."""
        return [_band_of(self.question, row) for row in rows]

    def states(self, rows: Sequence[MixedRow]) -> list[RowState]:
        """State of each row."""
        workload, apart = self.workload, apart_rules(self.request)
        found = [broken_rule_here(row.layout, row.recompute_layers, workload) for row in rows]
        return row_states(self.request.training, found, apart)

    def usd_per_step(self, row: MixedRow) -> float | None:
        """Money for the nodes in use while a step lasts; None where a price is not known."""
        return row.usd_per_step

    def fullest(self, row: MixedRow) -> tuple[float, float]:
        """Memory of the stage with the smallest share left, and what its GPU has."""
        stage = max(row.stages, key=lambda one: one.peak_bytes / one.limit_bytes)
        return stage.peak_bytes, stage.limit_bytes

    @property
    def whole(self) -> MixedRow | None:
        """The best row on all nodes; None where none fits there."""
        counts = tuple(kind.count for kind in self.kinds)
        return next((row for row in self.plan.best if row.counts == counts), None)

    def layout(self, row: MixedRow) -> Layout:
        """A row's layout, with the slot of each rank where they are not in the cluster's order."""
        slots = placement(self.request.training.cluster, row.order)
        is_plain = slots == tuple(range(len(slots)))
        return replace(row.layout, placement=None if is_plain else slots)


def mixed_answer(request: PlanRequest) -> MixedAnswer:
    """Plan on a mixed cluster.

    Raises:
        ConfigError: a precision that not all GPUs compute in, no price where one is needed, or too
            many parts of the cluster.
    """
    training = request.training
    if request.gpus_needed:
        raise ConfigError("--gpus-needed counts nodes of one kind; give a cluster of one node.")
    require_rates(training.cluster)
    check_precision(training.workload.precision, training.cluster)
    check_weights(training.workload)
    check_positions(training.workload)
    started = time.perf_counter()
    prices = tuple(_price(request, kind) for kind in training.cluster.kinds)
    question = MixedQuestion(
        workload=training.workload,
        kinds=machine_kinds(training, prices),
        degrees=MIXED_DEGREES,
        headroom=request.headroom,
        rules=layout_rules(request),
        is_uneven=has_uneven(training),
    )
    if request.layer_times is not None:
        question = _with_layers(question, request.layer_times, training.cluster)
    if request.degrees is not None:
        question = replace(
            question,
            degrees=question.degrees.override(request.degrees),
            order_rule=lambda counts, kinds: rotations(counts),
        )
    found, steps = mixed_plan(question), training_steps(request)
    if not found.best and question.headroom:
        question = replace(question, headroom=0.0)
        found = mixed_plan(question)
    choice = _choice(request, steps, has_prices=None not in prices)
    found, apart = _usable_first(request, question, choice, found)
    rows = choice.rank(found.best)
    if request.pareto:
        priced = (row for row in rows if row.usd_per_step is not None)
        rows = tuple(pareto_front(priced, lambda row: (row.step_s, row.usd_per_step or 0.0)))
    return MixedAnswer(
        request=request,
        question=question,
        prices=prices,
        plan=found,
        choice=choice,
        rows=rows if request.pareto else rows[: request.top],
        apart=apart,
        sensitivity=_sensitivity(request, question, choice, found),
        headroom=question.headroom,
        steps=steps,
        seconds=time.perf_counter() - started,
    )


def _usable_first(
    request: PlanRequest, question: MixedQuestion, choice: Choice, found: MixedPlan
) -> tuple[MixedPlan, tuple[MixedRow, ...]]:
    """Rows to use, and faster ones that stand apart, by the rule for equal nodes."""
    rules = apart_rules(request)
    others = [row for row in found.best if _breaks(row, rules, question.workload)]
    if not others:
        return found, ()
    usable = mixed_plan(replace(question, rules=(*question.rules, *rules))).best
    if not choice.rank(usable):
        return found, ()
    fastest_s = min(row.step_s for row in usable)
    lead = leading(others, fastest_s, lambda row: _band_of(question, row).error)
    best = tuple(sorted((*lead, *usable), key=lambda row: row.step_s))
    apart = [row for row in others if row not in lead and row.step_s < best[0].step_s]
    return replace(found, best=best), choice.rank(apart)


def _breaks(row: MixedRow, rules: Sequence[LayoutRule], workload: Workload) -> bool:
    columns = LayoutColumns.from_layouts([row.layout], [row.recompute_layers])
    sequence = workload.sequence_length
    return not all(rule.keep(columns, workload.architecture, sequence).all() for rule in rules)


def _band_of(question: MixedQuestion, row: MixedRow) -> StepBand:
    gpus = sorted({question.kinds[kind].machine.accelerator.name for kind in row.order})
    bands = [time_band(question.workload, row.layout, gpu) for gpu in gpus]
    return max(bands, key=lambda band: band.error)


def every_candidate(answer: MixedAnswer) -> tuple[MixedRow, ...]:
    """All layouts on FASOP's orders of nodes, out of memory or not, and the rows of the answer."""
    rotated = replace(answer.question, order_rule=lambda counts, kinds: rotations(counts))
    rows: dict[tuple[object, ...], MixedRow] = {}
    for row in (*every_row(rotated), *answer.plan.best):
        one = row.layout
        degrees = (one.tensor_parallel, one.data_parallel, one.pipeline_parallel)
        rows[row.order, degrees, one.micro_batch] = row
    return tuple(rows.values())


def _with_layers(question: MixedQuestion, path: Path, cluster: ClusterSpec) -> MixedQuestion:
    """Measured layers for each kind, and no tensor ranks but those that were measured on all."""
    gpus = [kind.gpu for kind in cluster.kinds]
    found = read_layer_times(path, question.workload.architecture, set(gpus))
    common = frozenset.intersection(*(frozenset(one.tensor) for one in found.values()))
    if not common:
        raise ConfigError(f"--layer-times {path} has no number of tensor ranks for all GPUs.")
    kinds = [
        replace(kind, measured=found[gpu]) for kind, gpu in zip(question.kinds, gpus, strict=True)
    ]
    degrees = replace(question.degrees, tensor_parallel=tuple(sorted(common)))
    return replace(question, kinds=tuple(kinds), degrees=degrees)


def _choice(request: PlanRequest, steps: int | None, *, has_prices: bool) -> Choice:
    """The cheapest within a deadline, the fastest within a budget, or what is asked for."""
    wants_cheap = request.objective == Goal.COST
    if "--objective" not in request.training.given and request.max_cost_usd is None:
        wants_cheap = wants_cheap or request.pareto or request.deadline_s is not None
    longest, most = request.deadline_s, request.max_cost_usd
    return Choice(
        rule=ChoiceRule.CHEAPEST if wants_cheap and has_prices else ChoiceRule.FASTEST,
        longest_s=math.inf if longest is None or steps is None else longest / steps,
        most_usd=math.inf if most is None or steps is None else most / steps,
    )


def _sensitivity(
    request: PlanRequest, question: MixedQuestion, choice: Choice, found: MixedPlan
) -> ChoiceSensitivity | None:
    ranked = choice.rank(found.best)
    if not ranked:
        return None
    kinds, layout = question.kinds, ranked[0].layout
    gpus = {kind.machine.accelerator.name for kind in kinds}
    band = max(time_band(question.workload, layout, gpu).error for gpu in gpus)
    is_priced = all(kind.usd_per_hour is not None for kind in kinds)
    ranges = [
        price_range(found.best, choice, kinds, number) for number in range(len(kinds)) if is_priced
    ]
    factors = NETWORK_FACTORS if request.explain else ()
    return ChoiceSensitivity(
        chosen=ranked[0],
        ranges=tuple(one for one in ranges if one is not None),
        band=band,
        rivals=rivals(found.best, choice, band),
        networks=tuple((factor, _with_networks(question, choice, factor)) for factor in factors),
    )


def _with_networks(question: MixedQuestion, choice: Choice, factor: float) -> MixedRow | None:
    """What is chosen where all networks between nodes are so many times as fast."""
    kinds = []
    for kind in question.kinds:
        rate = kind.machine.node_network_bytes_per_s * factor
        kinds.append(replace(kind, machine=replace(kind.machine, node_network_bytes_per_s=rate)))
    found = mixed_plan(replace(question, kinds=tuple(kinds)))
    return next(iter(choice.rank(found.best)), None)


def _price(request: PlanRequest, kind: NodeKind) -> ChosenPrice | None:
    if request.usd_per_gpu_hour is not None and not request.training.cluster.are_nodes_equal:
        raise ConfigError(
            "--usd-per-gpu-hour is one price, but this cluster mixes GPUs; give --price "
            f"{kind.gpu}=USD for each of them."
        )
    node = one_node(kind.node)
    found = choose_price(price_of_gpu(request, node), node)
    asks = (
        *(("--pareto",) if request.pareto else ()),
        *(("--max-cost",) if request.max_cost_usd is not None else ()),
        *(("--objective cost",) if request.objective == Goal.COST else ()),
    )
    if found is None and asks:
        is_alone = request.training.cluster.are_nodes_equal
        flag = "--usd-per-gpu-hour USD" if is_alone else f"--price {kind.gpu}=USD"
        raise ConfigError(
            f"No price of {kind.gpu} is known, but {asks[0]} needs one; give it with {flag} (an "
            "hour of one GPU)."
        )
    return found


def machine_kinds(
    training: TrainingRequest, prices: Sequence[ChosenPrice | None]
) -> tuple[MachineKind, ...]:
    """What the search knows of each kind of a cluster's nodes.

    Args:
        training: with the cluster, and the memory of a GPU where a flag bounds it.
        prices: of each kind.
    """
    bound = training.limit_bytes if "--memory-limit" in training.given else math.inf
    return tuple(
        _machine_kind(kind, price, bound)
        for kind, price in zip(training.cluster.kinds, prices, strict=True)
    )


def _machine_kind(kind: NodeKind, price: ChosenPrice | None, bound: float) -> MachineKind:
    memory = min(device.memory_bytes for device in kind.node.devices)
    hourly = None if price is None else price.usd_per_gpu_hour * len(kind.node.devices)
    return MachineKind(
        name=kind.name,
        machine=machine_of(one_node(kind.node)),
        count=kind.count,
        memory_bytes=min(memory, bound),
        usd_per_hour=hourly,
    )
