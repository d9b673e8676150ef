"""The best layout on each part of a cluster whose nodes differ, and what would change it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.autotuner.cost import LayoutColumns, LayoutRule
from autoconf_launch.autotuner.mixed import (
    MIXED_DEGREES,
    Choice,
    ChoiceRule,
    MachineKind,
    MixedQuestion,
    PriceRange,
    every_row,
    mixed_plan,
    price_range,
    rivals,
    rotations,
)
from autoconf_launch.autotuner.planner import Plan, Planned, StepBand, leading, time_band
from autoconf_launch.core import ClusterSpec, ConfigError, NodeKind, Workload, pareto_front

from ..asked import Goal
from .layer_times import read_layer_times
from .requests import PlanRequest, TrainingRequest
from .runnable import apart_rules, has_uneven, layout_rules, training_steps
from .training_choice import ChosenPrice, machine_of, one_node

NETWORK_FACTORS = (0.5, 2.0)
"""Rates of all networks between nodes, over those of the question, that may change a choice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceSensitivity:
    """What would change the choice of a row.

    Attributes:
        chosen: the row.
        ranges: of each kind's price between which it stays; empty where one is not known.
        band: of predicted steps; ``rivals`` are rows that it could put first.
        networks: for each factor of all networks, what is chosen then; empty unless asked for.
    """

    chosen: Planned
    ranges: tuple[PriceRange, ...]
    band: float
    rivals: tuple[Planned, ...]
    networks: tuple[tuple[float, Planned | None], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedParts:
    """What is known besides of a cluster whose parts are ranked, stage by stage.

    Attributes:
        question: of the search; its headroom is 0 if no layout leaves what was asked for.
        choice: by which rows are ranked.
        every: the best layout of each part, within the limits or not, the fastest first.
        sensitivity: of the choice; None where nothing is within the limits.
    """

    question: MixedQuestion
    choice: Choice
    every: tuple[Planned, ...]
    sensitivity: ChoiceSensitivity | None

    @property
    def whole(self) -> Planned | None:
        """The best row on all nodes; None where none fits there."""
        counts = tuple(kind.count for kind in self.question.kinds)
        return next((row for row in self.every if row.counts == counts), None)

    def band(self, row: Planned) -> StepBand:
        """The widest error band of a row's step on one of its kinds of GPU."""
        gpus = sorted({self.question.kinds[kind].machine.accelerator.name for kind in row.order})
        bands = [time_band(self.question.workload, row.layout, gpu) for gpu in gpus]
        return max(bands, key=lambda band: band.error)


def rank_parts(
    request: PlanRequest, prices: Sequence[ChosenPrice | None]
) -> tuple[Plan, RankedParts]:
    """Rank the parts of a cluster whose nodes differ: ``best`` has those within the limits.

    Of the front of time and money it has all, the fastest first, else as many as asked for.

    Raises:
        ConfigError: too many parts, or layers of a kind were not measured.
    """
    training = request.training
    if request.gpus_needed:
        raise ConfigError("--gpus-needed counts nodes of one kind; give a cluster of one node.")
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
    found = mixed_plan(question)
    if not found.best and question.headroom:
        question = replace(question, headroom=0.0)
        found = mixed_plan(question)
    choice = _choice(request, has_prices=None not in prices)
    parts = RankedParts(question=question, choice=choice, every=found.best, sensitivity=None)
    every, apart = _usable_first(request, parts)
    rows = choice.rank(every)
    if request.pareto:
        priced = (row for row in rows if row.usd_per_step is not None)
        rows = tuple(pareto_front(priced, lambda row: (row.step_s, row.usd_per_step or 0.0)))
    sensitivity = _sensitivity(request, question, choice, every)
    return (
        replace(found, best=rows if request.pareto else rows[: request.top], apart=apart),
        replace(parts, every=every, sensitivity=sensitivity),
    )


def _usable_first(
    request: PlanRequest, parts: RankedParts
) -> tuple[tuple[Planned, ...], tuple[Planned, ...]]:
    """Rows to use, and faster ones that stand apart, by the rule for equal nodes."""
    question, choice, every = parts.question, parts.choice, parts.every
    rules = apart_rules(request)
    others = [row for row in every if _breaks(row, rules, question.workload)]
    if not others:
        return every, ()
    usable = mixed_plan(replace(question, rules=(*question.rules, *rules))).best
    if not choice.rank(usable):
        return every, ()
    fastest_s = min(row.step_s for row in usable)
    lead = leading(others, fastest_s, lambda row: parts.band(row).error)
    best = tuple(sorted((*lead, *usable), key=lambda row: row.step_s))
    apart = [row for row in others if row not in lead and row.step_s < best[0].step_s]
    return best, choice.rank(apart)


def _breaks(row: Planned, rules: Sequence[LayoutRule], workload: Workload) -> bool:
    columns = LayoutColumns.from_layouts([row.layout], [row.recompute_layers])
    sequence = workload.sequence_length
    return not all(rule.keep(columns, workload.architecture, sequence).all() for rule in rules)


def every_candidate(parts: RankedParts) -> tuple[Planned, ...]:
    """All layouts on FASOP's orders of nodes, out of memory or not, and the best of each part."""
    rotated = replace(parts.question, order_rule=lambda counts, kinds: rotations(counts))
    rows: dict[tuple[object, ...], Planned] = {}
    for row in (*every_row(rotated), *parts.every):
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


def _choice(request: PlanRequest, *, has_prices: bool) -> Choice:
    """The cheapest within a deadline, the fastest within a budget, or what is asked for."""
    steps = training_steps(request)
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
    request: PlanRequest, question: MixedQuestion, choice: Choice, every: Sequence[Planned]
) -> ChoiceSensitivity | None:
    ranked = choice.rank(every)
    if not ranked:
        return None
    kinds, layout = question.kinds, ranked[0].layout
    gpus = {kind.machine.accelerator.name for kind in kinds}
    band = max(time_band(question.workload, layout, gpu).error for gpu in gpus)
    is_priced = all(kind.usd_per_hour is not None for kind in kinds)
    ranges = [
        price_range(every, choice, kinds, number) for number in range(len(kinds)) if is_priced
    ]
    factors = NETWORK_FACTORS if request.explain else ()
    return ChoiceSensitivity(
        chosen=ranked[0],
        ranges=tuple(one for one in ranges if one is not None),
        band=band,
        rivals=rivals(every, choice, band),
        networks=tuple((factor, _with_networks(question, choice, factor)) for factor in factors),
    )


def _with_networks(question: MixedQuestion, choice: Choice, factor: float) -> Planned | None:
    """What is chosen where all networks between nodes are so many times as fast."""
    kinds = []
    for kind in question.kinds:
        rate = kind.machine.node_network_bytes_per_s * factor
        kinds.append(replace(kind, machine=replace(kind.machine, node_network_bytes_per_s=rate)))
    found = mixed_plan(replace(question, kinds=tuple(kinds)))
    return next(iter(choice.rank(found.best)), None)


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
