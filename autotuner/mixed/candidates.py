"""All layouts on all parts of a mixed cluster, as rows. Not: their prices (search).

Layouts of a number of GPUs are enumerated once, and crossed with the orders of nodes that differ
for their stages; rows whose pipelines have equally many stages are together.

Shapes: R = rows, P = parts of the cluster, L = layouts, O = orders, N = nodes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from typing import TypeAlias

import numpy as np

from autoconf_launch.core import Degrees, Offload, Workload

from ..cost import LayoutColumns, LayoutRule
from ..planner import PLAN_RULES, count_layouts, grids, rule_mask
from ..space import Bools, Ints
from .kinds import MachineKind, sub_clusters
from .places import StagePlaces, place_stages

MOST_ORDERS = 2000
OrderRule: TypeAlias = Callable[[Sequence[int], Sequence[MachineKind]], Ints]
MIXED_DEGREES = Degrees(
    virtual_pipeline=(1,),
    context_parallel=(1,),
    recompute_layers=(),
    offload=(Offload.NONE,),
)
"""Enumerated layouts: tensor and expert ranks stay inside a node, stages are whole."""
_ROWS_AT_ONCE = 1 << 20
"""Rows times stages that are priced together."""
Wanted: TypeAlias = dict[tuple[int, int], Bools]
"""By part and stages, the layouts that are looked at."""
_NO_LAYOUTS = LayoutColumns.from_layouts([])


def node_orders(
    counts: Sequence[int], kinds: Sequence[MachineKind], most: int = MOST_ORDERS
) -> Ints:
    """Kinds of all nodes, in every distinct order: shape (orders, nodes).

    If there are more than ``most``, each pair of a first and a last kind is tried with the
    nodes between them sorted by memory and by network, both ways, and all rotations.
    """
    if math.factorial(sum(counts)) // math.prod(map(math.factorial, counts)) <= most:
        return np.array(list(_all_orders(list(counts))), np.int64)
    return sorted_orders(counts, kinds)


def sorted_orders(counts: Sequence[int], kinds: Sequence[MachineKind]) -> Ints:
    """Orders in which nodes of a kind are adjacent, except for the first and the last node."""
    used = [number for number, count in enumerate(counts) if count]
    found = dict.fromkeys(_with_ends(counts, kinds, used))
    for some in _sorted_kinds(used, kinds):
        found |= dict.fromkeys(map(tuple, rotations(counts, some).tolist()))
    return np.array(list(found), np.int64)


def rotations(counts: Sequence[int], kinds: Sequence[int] | None = None) -> Ints:
    """Nodes kind after kind, begun at each of them: FASOP's orders."""
    numbers = range(len(counts)) if kinds is None else kinds
    line = [number for number in numbers for _ in range(counts[number])]
    return np.unique([line[i:] + line[:i] for i in range(len(line))], axis=0)


def _all_orders(left: list[int]) -> Iterator[tuple[int, ...]]:
    """StagePlaces for the first kind among all nodes, then the others in the free places."""
    size = sum(left)
    if len(left) == 1:
        yield (0,) * size
        return
    for places in combinations(range(size), left[0]):
        for others in _all_orders(left[1:]):
            rest = iter(others)
            mine = frozenset(places)
            yield tuple(0 if place in mine else next(rest) + 1 for place in range(size))


def _sorted_kinds(used: Sequence[int], kinds: Sequence[MachineKind]) -> Iterator[list[int]]:
    by_memory = sorted(used, key=lambda number: kinds[number].memory_bytes)
    by_network = sorted(used, key=lambda number: kinds[number].machine.node_network_bytes_per_s)
    for some in (by_memory, by_network):
        yield some
        yield some[::-1]


def _with_ends(
    counts: Sequence[int], kinds: Sequence[MachineKind], used: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    pairs = [*permutations(used, 2), *((one, one) for one in used if counts[one] > 1)]
    for first, last in pairs:
        left = list(counts)
        left[first] -= 1
        left[last] -= 1
        for some in _sorted_kinds(used, kinds):
            middle = [number for number in some for _ in range(left[number])]
            yield (first, *middle, last)


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedQuestion:
    """A question about a mixed cluster.

    Attributes:
        kinds: kinds of its nodes.
        degrees: values of a layout's fields; None leaves one open.
        headroom: share of each kind's memory that stays free.
        parts: nodes of each kind, a row for each part to look at; None for all parts.
        order_rule: gives the orders of the nodes of a part.
        most: layouts to keep of each part.
        rules: rules for every layout.
        is_uneven: data-parallel ranks may have their own micro-batches.
    """

    workload: Workload
    kinds: tuple[MachineKind, ...]
    degrees: Degrees = MIXED_DEGREES
    headroom: float = 0.0
    parts: tuple[tuple[int, ...], ...] | None = None
    order_rule: OrderRule = node_orders
    most: int = 1
    rules: tuple[LayoutRule, ...] = PLAN_RULES
    is_uneven: bool = True


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rows:
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

    def take(self, rows: Ints | slice) -> Rows:
        return replace(
            self,
            layout_R=self.layout_R[rows],
            place_R=self.place_R[rows],
            part_R=self.part_R[rows],
        )

    def chunks(self) -> Iterator[Rows]:
        """Few enough rows to price at once."""
        size = max(1, _ROWS_AT_ONCE // self.stages)
        for first in range(0, len(self.part_R), size):
            yield self.take(slice(first, first + size))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layouts:
    """Layouts for each number of GPUs that some part of the cluster has.

    Attributes:
        parts: nodes of each kind in each part.
        world_P: GPUs of each part.
        considered: by GPUs, how many there are before any rule.
        by_stages: layouts that break no rule, by their number of stages.
        first: by GPUs and stages, the start of its layouts in ``by_stages``, and their ranks that
            must stay inside a node.
    """

    question: MixedQuestion
    parts: Ints
    world_P: Ints
    considered: dict[int, int]
    by_stages: dict[int, LayoutColumns]
    first: dict[int, dict[int, tuple[int, Ints]]]

    @staticmethod
    def of(question: MixedQuestion) -> Layouts:
        """Enumerate.

        Raises:
            ConfigError: the cluster has too many parts.
        """
        given = question.parts
        parts = sub_clusters(question.kinds) if given is None else np.array(given, np.int64)
        world_P = parts @ np.array([kind.gpus for kind in question.kinds])
        first: dict[int, dict[int, tuple[int, Ints]]] = defaultdict(dict)
        tables: dict[int, list[LayoutColumns]] = defaultdict(list)
        considered: dict[int, int] = {}
        for world in np.unique(world_P).tolist():
            considered[world], columns = _layouts(world, question)
            for stages in np.unique(columns.pipeline_C).tolist():
                rows = columns.take(np.flatnonzero(columns.pipeline_C == stages))
                before = sum(map(len, tables[stages]))
                first[world][stages] = (before, rows.tensor_C * rows.expert_C)
                tables[stages].append(rows)
        return Layouts(
            question=question,
            parts=parts,
            world_P=world_P,
            considered=considered,
            by_stages={stages: LayoutColumns.join(some) for stages, some in tables.items()},
            first=first,
        )

    def rows(self, order_rule: OrderRule, wanted: Wanted | None = None) -> tuple[int, list[Rows]]:
        """Rows of each number of stages, and how many layouts were looked at on how many orders.

        Args:
            order_rule: gives the orders of the nodes of a part.
            wanted: layouts; None for all.
        """
        growing: dict[int, _GrowingRows] = defaultdict(_GrowingRows)
        considered, kinds = 0, self.question.kinds
        for part, counts in enumerate(self.parts.tolist()):
            world = int(self.world_P[part])
            lines = order_rule(counts, kinds)
            considered += self.considered[world] * len(lines)
            inside = math.gcd(*(kind.gpus for kind, n in zip(kinds, counts, strict=True) if n))
            for stages, (first, together) in self.first[world].items():
                kept = inside % together == 0
                if wanted is not None:
                    kept &= wanted[part, stages][first : first + len(together)]
                if not kept.any():
                    continue
                places = place_stages(lines, kinds, stages=stages, stage_ranks=world // stages)
                growing[stages].add(part, first + np.flatnonzero(kept), places, lines)
        return considered, [
            one.rows(stages, self.by_stages[stages]) for stages, one in growing.items()
        ]


def _layouts(world: int, question: MixedQuestion) -> tuple[int, LayoutColumns]:
    """Number of layouts for ``world`` GPUs, and flat columns of the layouts that break no rule."""
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


@dataclass(slots=True, kw_only=True)
class _GrowingRows:
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

    def rows(self, stages: int, layouts: LayoutColumns) -> Rows:
        """Everything that has come."""
        return Rows(
            stages=stages,
            layouts=layouts,
            layout_R=np.concatenate(self.layout_R),
            places=StagePlaces.join(self.places),
            place_R=np.concatenate(self.place_R),
            orders=tuple(self.orders),
            part_R=np.concatenate(self.part_R),
        )
