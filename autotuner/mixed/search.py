"""The best layout on each part of a mixed cluster. Not: money, nor which part to take (front).

All layouts of a number of GPUs are enumerated once, crossed with the orders of nodes that differ
for them, and priced together with all others whose pipelines have equally many stages.

Shapes: R = rows, S = stages, K = kinds, P = parts of the cluster, L = layouts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from autoconf_launch.core import Degrees, Offload, Workload

from ..cost import LayoutColumns, LayoutRule, all_layers, memory_bytes, verdict
from ..planner import PLAN_RULES, count_layouts, grids, rule_mask
from ..space import Floats, Ints
from .kinds import MachineKind, sub_clusters, usd_per_hour
from .orders import node_orders
from .partition import Chains, SplitPrice, feasible_rows, move_layers, split_layers
from .places import StagePlaces, place_stages
from .rows import MixedRow, StagePlan, stage_kinds
from .times import StageSeconds, stage_seconds

OrderRule: TypeAlias = Callable[[Sequence[int], Sequence[MachineKind]], Ints]

MIXED_DEGREES = Degrees(
    virtual_pipeline=(1,),
    context_parallel=(1,),
    recompute_layers=(),
    offload=(Offload.NONE,),
)
"""What is enumerated: tensor and expert ranks stay inside a node, stages are whole."""
_ROWS_AT_ONCE = 1 << 20
"""Rows times stages that are priced together."""
_MOVED = 8
"""Rows of each part whose layers are moved one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedQuestion:
    """What is asked of a mixed cluster.

    Attributes:
        kinds: of its nodes.
        degrees: values of a layout's fields; None leaves one open.
        headroom: share of each kind's memory that stays free.
        parts: nodes of each kind, a row for each part to look at; None for all parts.
        order_rule: orders of the nodes of a part.
        most: layouts to keep of each part.
        rules: that every layout obeys.
    """

    workload: Workload
    kinds: tuple[MachineKind, ...]
    degrees: Degrees = MIXED_DEGREES
    headroom: float = 0.0
    parts: tuple[tuple[int, ...], ...] | None = None
    order_rule: OrderRule = node_orders
    most: int = 1
    rules: tuple[LayoutRule, ...] = PLAN_RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedPlan:
    """The answer.

    Attributes:
        considered: layouts on distinct orders of the nodes of all parts, before any rule.
        priced: those of them that break no rule and have room for their layers.
        best: the best rows of each part, the fastest first.
    """

    considered: int
    priced: int
    best: tuple[MixedRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Bucket:
    """Rows whose pipelines have equally many stages.

    Attributes:
        layouts: distinct ones, and ``layout_R`` which of them a row has.
        places: distinct ones, ``place_R`` which of them a row is on, ``order_O`` their nodes.
        part_R: number of the row's part of the cluster.
    """

    stages: int
    layouts: LayoutColumns
    layout_R: Ints
    places: StagePlaces
    place_R: Ints
    orders: tuple[tuple[int, ...], ...]
    part_R: Ints

    def take(self, rows: Ints | slice) -> _Bucket:
        """Some rows."""
        return replace(
            self,
            layout_R=self.layout_R[rows],
            place_R=self.place_R[rows],
            part_R=self.part_R[rows],
        )

    def chunks(self) -> Iterator[_Bucket]:
        """Few enough rows to price at once."""
        size = max(1, _ROWS_AT_ONCE // self.stages)
        for first in range(0, len(self.part_R), size):
            yield self.take(slice(first, first + size))


def mixed_plan(question: MixedQuestion) -> MixedPlan:
    """Enumerate, place, split, price and rank.

    Raises:
        ConfigError: the cluster has too many parts.
    """
    kinds = question.kinds
    parts = sub_clusters(kinds) if question.parts is None else np.array(question.parts, np.int64)
    gpus_K = np.array([kind.gpus for kind in kinds])
    world_P = parts @ gpus_K
    by_world = {int(w): _layouts(int(w), question) for w in np.unique(world_P)}
    considered, buckets = _buckets(question, parts, world_P, by_world)
    looked_at = [
        found
        for bucket in buckets
        for chunk in bucket.chunks()
        if (found := _split(chunk, question))
    ]
    return MixedPlan(
        considered=considered,
        priced=sum(one.priced for one in looked_at),
        best=tuple(_best_rows(looked_at, question)),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Contenders:
    """The fastest rows of some parts, with their layers, before single layers move."""

    bucket: _Bucket
    chains: Chains
    times: StageSeconds
    layers_RS: Ints
    step_s_R: Floats
    priced: int

    def take(self, rows: Ints) -> _Contenders:
        """Some rows by number."""
        return replace(
            self,
            bucket=self.bucket.take(rows),
            chains=self.chains.take(rows),
            times=self.times.take(rows),
            layers_RS=self.layers_RS[rows],
            step_s_R=self.step_s_R[rows],
        )

    def improved(self) -> _Contenders:
        """With layers moved one by one while that helps."""
        if self.bucket.stages == 1:
            return self
        every = np.arange(len(self.step_s_R))
        layers, step_s = move_layers(self.chains, _price(self.times), self.layers_RS, every)
        return replace(self, layers_RS=layers, step_s_R=step_s)


def _best_rows(found: Sequence[_Contenders], question: MixedQuestion) -> list[MixedRow]:
    """The best rows of each part: layers move where a row is among the first of its part."""
    if not found:
        return []
    most = max(_MOVED, question.most)
    first = _fastest_of_all(found, most)
    kept = _fastest_of_all([one.improved() for one in first], question.most)
    rows = [row for one in kept for row in _rows(one, question) if row is not None]
    return sorted(rows, key=lambda row: row.step_s)


def _fastest_of_all(found: Sequence[_Contenders], most: int) -> list[_Contenders]:
    """The fastest rows of each part among all."""
    sizes = [len(one.step_s_R) for one in found]
    kept = _fastest(
        np.concatenate([one.bucket.part_R for one in found]),
        np.concatenate([one.step_s_R for one in found]),
        most,
    )
    which = np.repeat(np.arange(len(found)), sizes)[kept]
    number = kept - np.repeat(np.cumsum(sizes) - sizes, sizes)[kept]
    return [found[i].take(number[which == i]) for i in np.unique(which).tolist()]


def _layouts(world: int, question: MixedQuestion) -> tuple[int, LayoutColumns]:
    """How many there are for so many GPUs, and flat columns of those that break no rule."""
    workload = question.workload
    model, sequence = workload.architecture, workload.sequence_length
    count, kept = 0, []
    for grid in grids(world, workload.global_batch, model, question.degrees):
        count += count_layouts(grid)
        mask = rule_mask(grid, model, sequence, {}, question.rules)
        numbers = np.flatnonzero(np.broadcast_to(mask, grid.shape))
        if len(numbers):
            kept.append(grid.rows(numbers))
    return count, LayoutColumns.join(kept) if kept else _NO_LAYOUTS


_NO_LAYOUTS = LayoutColumns.from_layouts([])


def _buckets(
    question: MixedQuestion,
    parts: Ints,
    world_P: Ints,
    by_world: dict[int, tuple[int, LayoutColumns]],
) -> tuple[int, list[_Bucket]]:
    """All rows by stages, and how many layouts were looked at on how many orders."""
    kinds = question.kinds
    offsets: dict[int, dict[int, tuple[int, Ints]]] = defaultdict(dict)
    tables: dict[int, list[LayoutColumns]] = defaultdict(list)
    sizes: dict[int, int] = defaultdict(int)
    for world, (_, columns) in by_world.items():
        for stages in np.unique(columns.pipeline_C).tolist():
            rows = columns.take(np.flatnonzero(columns.pipeline_C == stages))
            offsets[world][stages] = (sizes[stages], rows.tensor_C * rows.expert_C)
            tables[stages].append(rows)
            sizes[stages] += len(rows)
    growing: dict[int, _Growing] = defaultdict(_Growing)
    considered = 0
    for number, (counts, world) in enumerate(zip(parts.tolist(), world_P.tolist(), strict=True)):
        lines = question.order_rule(counts, kinds)
        inside = math.gcd(*(kind.gpus for kind, n in zip(kinds, counts, strict=True) if n))
        considered += by_world[world][0] * len(lines)
        for stages, (first, together) in offsets[world].items():
            fitting = first + np.flatnonzero(inside % together == 0)
            if len(fitting):
                places = place_stages(lines, kinds, stages=stages, stage_ranks=world // stages)
                growing[stages].add(number, fitting, places, lines)
    return considered, [
        one.bucket(stages, LayoutColumns.join(tables[stages])) for stages, one in growing.items()
    ]


@dataclass(slots=True, kw_only=True)
class _Growing:
    """Rows of a bucket as its parts come."""

    layout_R: list[Ints] = field(default_factory=list)
    place_R: list[Ints] = field(default_factory=list)
    part_R: list[Ints] = field(default_factory=list)
    places: list[StagePlaces] = field(default_factory=list)
    orders: list[tuple[int, ...]] = field(default_factory=list)

    def add(self, part: int, layouts: Ints, places: StagePlaces, lines: Ints) -> None:
        """Cross layouts with the orders that differ for their stages."""
        first = places.distinct()[0]
        before = len(self.orders)
        self.places.append(places.take(first))
        self.orders += map(tuple, lines[first].tolist())
        self.layout_R.append(np.repeat(layouts, len(first)))
        self.place_R.append(np.tile(before + np.arange(len(first)), len(layouts)))
        self.part_R.append(np.full(len(layouts) * len(first), part))

    def bucket(self, stages: int, layouts: LayoutColumns) -> _Bucket:
        """Everything that has come."""
        return _Bucket(
            stages=stages,
            layouts=layouts,
            layout_R=np.concatenate(self.layout_R),
            places=StagePlaces.join(self.places),
            place_R=np.concatenate(self.place_R),
            orders=tuple(self.orders),
            part_R=np.concatenate(self.part_R),
        )


def _split(bucket: _Bucket, question: MixedQuestion) -> _Contenders | None:
    """Split the layers of all rows that have room for them, and keep the fastest of each part."""
    room = _room(bucket, question)
    times = stage_seconds(
        bucket.layouts.take(bucket.layout_R),
        bucket.places,
        bucket.place_R,
        question.workload,
        question.kinds,
    )
    chains = Chains(
        fixed_s_RS=times.fixed_s_RS,
        layer_s_RS=times.layer_s_RS,
        most_RS=room,
        layers=(all_layers(question.workload.architecture),),
        count_R=times.count_R,
    )
    possible = np.flatnonzero(feasible_rows(chains))
    if not len(possible):
        return None
    chains, times, bucket = chains.take(possible), times.take(possible), bucket.take(possible)
    layers, step_s = split_layers(chains, _price(times))
    every = _Contenders(
        bucket=bucket,
        chains=chains,
        times=times,
        layers_RS=layers,
        step_s_R=step_s,
        priced=len(possible),
    )
    return every.take(_fastest(bucket.part_R, step_s, max(_MOVED, question.most)))


def _price(times: StageSeconds) -> SplitPrice:
    def price(rows: Ints, layers_RS: Ints) -> Floats:
        whole = len(rows) == len(times.count_R)
        return (times if whole else times.take(rows)).step_s(layers_RS)

    return price


def _fastest(group: Ints, seconds: Floats, most: int) -> Ints:
    """Numbers of the fastest rows of each group."""
    order = np.lexsort((seconds, group))
    starts = np.r_[True, group[order][1:] != group[order][:-1]]
    rank = np.arange(len(order)) - np.maximum.accumulate(
        np.where(starts, np.arange(len(order)), 0)
    )
    return order[(rank < most) & np.isfinite(seconds[order])]


def _room(bucket: _Bucket, question: MixedQuestion) -> Ints:
    """Layers that each stage of each row has memory for.

    Memory is a line over the layers but for what an update needs beyond activations, which lies
    below the line through few layers and many.
    """
    used, which = np.unique(bucket.layout_R, return_inverse=True)
    columns, workload = bucket.layouts.take(used), question.workload
    layers, stages = all_layers(workload.architecture), bucket.stages
    numbers = np.arange(stages)[:, None]

    def peak(count: int) -> Floats:
        given = np.full((stages, len(used)), count)
        return memory_bytes(columns, workload, numbers, given).total.T

    many = max(2, min(layers, -(-2 * layers // stages)))
    few_US, many_US = peak(1), peak(many)
    each_US = (many_US - few_US) / (many - 1)
    limits_K = np.array([kind.memory_bytes * (1 - question.headroom) for kind in question.kinds])
    here = bucket.places.ranks_OSK > 0
    limit_RS = np.where(here, limits_K, np.inf).min(axis=2)[bucket.place_R]
    room = np.floor((limit_RS - few_US[which]) / each_US[which]) + 1
    return np.asarray(np.clip(room, 0, layers), np.int64)


def _rows(found: _Contenders, question: MixedQuestion) -> Iterator[MixedRow | None]:
    """Rows as values, with memory exactly; None where one does not fit after all."""
    bucket, times, layers_RS = found.bucket, found.times, found.layers_RS
    workload, kinds = question.workload, question.kinds
    columns = bucket.layouts.take(bucket.layout_R)
    numbers = np.arange(bucket.stages)[:, None]
    memory = memory_bytes(columns, workload, numbers, layers_RS.T).total.T
    busy, step_s = times.busy_s(layers_RS), times.step_s(layers_RS)
    parts = step_parts_of(times, layers_RS)
    for i, layout in enumerate(columns.layouts()):
        place = int(bucket.place_R[i])
        order = bucket.orders[place]
        here = stage_kinds(order, kinds, bucket.stages)
        limits = [min(kinds[k].memory_bytes for k in some) for some in here]
        if (memory[i] > (1 - question.headroom) * np.array(limits)).any():
            yield None
            continue
        counts = tuple(order.count(k) for k in range(len(kinds)))
        split = tuple(layers_RS[i].tolist()) if bucket.stages > 1 else None
        tightest = int(np.argmax(memory[i] / limits))
        yield MixedRow(
            counts=counts,
            order=order,
            layout=replace(layout, pipeline_split=split),
            stages=tuple(
                StagePlan(
                    kinds=some,
                    layers=int(layers_RS[i, s]),
                    micro_batch_s=float(busy[i, s]),
                    peak_bytes=float(memory[i, s]),
                    limit_bytes=limits[s],
                )
                for s, some in enumerate(here)
            ),
            step_s=float(step_s[i]),
            parts=tuple((name, float(seconds[i])) for name, seconds in parts),
            usd_per_hour=usd_per_hour(kinds, counts),
            verdict=verdict(float(memory[i, tightest]), limits[tightest]),
        )


def step_parts_of(times: StageSeconds, layers_RS: Ints) -> tuple[tuple[str, Floats], ...]:
    """Seconds that add up to a step: stages at work in the mean, waiting, and what follows."""
    busy = times.busy_s(layers_RS).mean(axis=1) * times.count_R
    running, rest = times.parts_s(layers_RS)
    return (
        ("compute", busy),
        ("bubble", running - busy - times.fill_s_R),
        ("sends", times.fill_s_R),
        ("gradients", rest - times.after_s_R - times.host_s_R),
        ("embeddings", times.after_s_R),
        ("host", times.host_s_R),
    )
