"""Slots and kinds of node of a layout's ranks, and the price of a given layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoconf_launch.core import ClusterSpec, Workload

from ..cost import LayoutColumns
from ..planner import StagePlan
from .kinds import MachineKind
from .places import place_stages
from .shares import largest_shares, replica_kinds, uneven_peaks, uneven_seconds


def placement(cluster: ClusterSpec, order: Sequence[int]) -> tuple[int, ...]:
    """The slot of each rank, as a number among all slots of the cluster.

    The first nodes of each kind in the cluster are taken.

    Args:
        cluster: all nodes.
        order: the kind of each node, by its number in ``cluster.kinds``.
    """
    slots_of_kind: list[list[range]] = [[] for _ in cluster.kinds]
    first = 0
    for node, kind in zip(cluster.nodes, cluster.node_kinds, strict=True):
        slots_of_kind[kind].append(range(first, first + len(node.devices)))
        first += len(node.devices)
    nodes = [iter(slots) for slots in slots_of_kind]
    return tuple(slot for kind in order for slot in next(nodes[kind]))


def stage_kinds(
    order: Sequence[int], kinds: Sequence[MachineKind], stages: int
) -> list[tuple[int, ...]]:
    """Kinds of the nodes of each stage, in the order of its ranks."""
    slots = [kind for kind in order for _ in range(kinds[kind].gpus)]
    size = len(slots) // stages
    return [tuple(dict.fromkeys(slots[s * size : (s + 1) * size])) for s in range(stages)]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenStages:
    """Stages of a given layout, and seconds of an optimizer step."""

    stages: tuple[StagePlan, ...]
    step_s: float


def given_stages(
    columns: LayoutColumns,
    workload: Workload,
    kinds: Sequence[MachineKind],
    order: Sequence[int],
    layers: Sequence[int],
    samples: Sequence[int] | None = None,
) -> GivenStages:
    """Price one layout.

    Args:
        columns: the layout as one row.
        workload: a model known by its shapes.
        kinds: of nodes.
        order: the kind of each node, in the order of ranks; the layout fills them all.
        layers: of each stage.
        samples: micro-batch of each replica; default: the layout's.
    """
    size = sum(kinds[kind].gpus for kind in order) // len(layers)
    split, orders = np.array([layers]), np.array([order], np.int64)
    places = place_stages(orders, kinds, stages=len(layers), stage_ranks=size)
    each = [int(columns.micro_batch_C[0])] * int(columns.data_C[0])
    micro_SK = largest_shares(replica_kinds(order, kinds, columns), samples or each)
    times = uneven_seconds(columns, places, workload, kinds, micro_SK, layers)
    peaks_SK = uneven_peaks(columns, workload, layers, micro_SK)
    tightest = (peaks_SK / np.array([kind.memory_bytes for kind in kinds])).argmax(axis=1)
    busy = times.busy_s(split)[0].tolist()
    here = stage_kinds(order, kinds, len(layers))
    return GivenStages(
        stages=tuple(
            StagePlan(
                ranks=range(stage * size, (stage + 1) * size),
                kinds=here[stage],
                layers=count,
                micro_batch_s=busy[stage],
                peak_bytes=float(peaks_SK[stage, kind]),
                limit_bytes=kinds[kind].memory_bytes,
            )
            for stage, (count, kind) in enumerate(zip(layers, tightest.tolist(), strict=True))
        ),
        step_s=float(times.step_s(split)[0]),
    )
