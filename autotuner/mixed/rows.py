"""A layout on a mixed cluster: on which nodes, in which order, with what on each stage.

It is priced by a search, or given: then each stage is priced as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoconf_launch.core import ClusterSpec, Layout, Workload

from ..cost import ALL_LAYERS, LayoutColumns, Verdict
from .kinds import MachineKind
from .places import place_stages
from .shares import largest_shares, replica_kinds, uneven_peaks, uneven_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """One pipeline stage.

    Attributes:
        kinds: numbers of the kinds of node that its ranks lie on, in the order of its ranks.
        layers: that it has.
        micro_batch_s: forward and backward of one micro-batch on its slowest rank, sends apart.
        peak_bytes: of its fullest rank.
        limit_bytes: memory of its smallest GPU.
    """

    kinds: tuple[int, ...]
    layers: int
    micro_batch_s: float
    peak_bytes: float
    limit_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MixedRow:
    """A layout on some nodes of a mixed cluster, with its prices.

    Ranks are numbered as Megatron-LM does (tensor, context, data, pipeline) and fill the nodes in
    ``order``, so that stage s has the GPUs from ``s * tp * cp * dp`` on.

    Attributes:
        counts: nodes of each kind that it uses; the others are neither used nor paid.
        order: the kind of each node, in the order of ranks.
        layout: with ``pipeline_split`` where it has several stages, with ``micro_batch_split``
            where replicas differ, without ``placement`` (:func:`placement`).
        recompute_layers: as in ``Planned``.
        stages: the first one first.
        step_s: seconds of an optimizer step.
        parts: seconds by name that add up to ``step_s``.
        usd_per_hour: of all nodes in use; None where a price is not known.
        verdict: whether the fullest stage fits in its own kind's memory.
    """

    counts: tuple[int, ...]
    order: tuple[int, ...]
    layout: Layout
    stages: tuple[StagePlan, ...]
    step_s: float
    parts: tuple[tuple[str, float], ...]
    usd_per_hour: float | None
    verdict: Verdict
    recompute_layers: int = ALL_LAYERS

    @property
    def usd_per_step(self) -> float | None:
        """Money of one optimizer step."""
        return None if self.usd_per_hour is None else self.usd_per_hour * self.step_s / 3600

    @property
    def peak_bytes(self) -> float:
        """What the fullest rank needs, whatever its GPU."""
        return max(stage.peak_bytes for stage in self.stages)


def placement(cluster: ClusterSpec, order: Sequence[int]) -> tuple[int, ...]:
    """The slot of each rank, as a number among all slots of the cluster.

    Of each kind the nodes that stand first in the cluster are taken.

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
    """Kinds of the nodes that each stage lies on, in the order of its ranks."""
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
        samples: micro-batch of each replica; None: that of the layout.
    """
    gpus, split = sum(kinds[kind].gpus for kind in order), np.array([layers])
    places = place_stages(
        np.array([order], np.int64), kinds, stages=len(layers), stage_ranks=gpus // len(layers)
    )
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
