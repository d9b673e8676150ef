"""A layout on nodes that differ: its slots, its price, and the samples of each replica.

A replica computes its micro-batch on all stages, so that a stage takes as long as the slowest of
its ranks with the samples of that rank's replica. Replica d takes ``b_d`` samples in all stages,
and the sum of all is as for equal replicas. The smallest time within which all samples find a
replica is found by bisection over tables of seconds; surplus samples come off the slowest
replicas.

Shapes: S = stages, K = kinds, D = replicas, B = micro-batches from 1 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autoconf_launch.core import ClusterSpec, Workload

from ..cost import LayoutColumns, memory_bytes
from ..planner import StagePlan
from ..space import Bools, Floats, Ints
from .kinds import MachineKind
from .places import StagePlaces, place_stages
from .times import StageSeconds, decoder_share, seconds_of_makes

_ROW = np.zeros(1, np.int64)


def replica_kinds(
    order: Sequence[int], kinds: Sequence[MachineKind], columns: LayoutColumns
) -> Bools:
    """Masks of replicas with a rank on a kind in a stage: shape (replicas, stages, kinds).

    ``order``: the kind of each node, in the order of ranks.
    """
    slots = np.repeat(np.array(order), [kinds[kind].gpus for kind in order])
    data, stages = int(columns.data_C[0]), int(columns.pipeline_C[0])
    kind_SDR = slots.reshape(stages, data, -1)
    return np.asarray(
        (kind_SDR[..., None] == np.arange(len(kinds))).any(axis=2).transpose(1, 0, 2)
    )


def largest_shares(here_DSK: Bools, samples: Sequence[int]) -> Ints:
    """The largest micro-batch of each kind in each stage; 0 if a stage is not on a kind."""
    return np.asarray((here_DSK * np.array(samples)[:, None, None]).max(axis=0))


def with_micro_batch(columns: LayoutColumns, samples: int) -> LayoutColumns:
    """The layout with another micro-batch and the same accumulation."""
    return replace(columns, micro_batch_C=np.array([samples]))


def uneven_seconds(
    columns: LayoutColumns,
    places: StagePlaces,
    workload: Workload,
    kinds: Sequence[MachineKind],
    micro_SK: Ints,
    layers: Sequence[int],
) -> StageSeconds:
    """Seconds of one layout whose replicas have their own micro-batches.

    ``micro_SK``: the largest micro-batch of each kind in each stage.
    """
    share = decoder_share(workload.architecture, np.array([layers]))
    largest = with_micro_batch(columns, int(micro_SK.max()))
    whole = seconds_of_makes(largest, places, _ROW, workload, kinds, share)
    names = ("layer_s_RS", "fixed_s_RS", "layer_forward_s_RS", "fixed_forward_s_RS")
    slowest: dict[str, Any] = {name: np.zeros_like(whole.layer_s_RS) for name in names}
    for kind in range(len(kinds)):
        alone = only_on(places, kind)
        for samples in np.unique(micro_SK[:, kind][micro_SK[:, kind] > 0]).tolist():
            given = with_micro_batch(columns, samples)
            one = seconds_of_makes(given, alone, _ROW, workload, kinds, share)
            mine = micro_SK[:, kind] == samples
            for name, seconds in slowest.items():
                slowest[name] = np.where(mine, np.maximum(seconds, getattr(one, name)), seconds)
    return replace(whole, **slowest)


def only_on(places: StagePlaces, kind: int) -> StagePlaces:
    """Places as if stages had ranks on one kind only, with the same links."""
    mask = np.arange(places.ranks_OSK.shape[2]) == kind
    return replace(places, ranks_OSK=places.ranks_OSK * mask)


def uneven_peaks(
    columns: LayoutColumns, workload: Workload, layers: Sequence[int], micro_SK: Ints
) -> Floats:
    """Bytes of a rank on each kind in each stage; 0 if a stage is not on a kind."""
    peaks = np.zeros(micro_SK.shape)
    numbers, split = np.arange(len(layers))[:, None], np.array([layers]).T
    for samples in np.unique(micro_SK[micro_SK > 0]).tolist():
        one = with_micro_batch(columns, samples)
        total = memory_bytes(one, workload, numbers, split).total
        peaks = np.where(micro_SK == samples, total, peaks)
    return peaks


def share_samples(seconds_DB: Floats, most_D: Ints, total: int) -> Ints | None:
    """Samples of each replica, at least one; None if they have no room for all.

    ``seconds_DB``: seconds of each replica with 1, 2, … samples, not falling.
    """
    if most_D.min() < 1 or most_D.sum() < total or len(most_D) > total:
        return None
    allowed = np.arange(1, seconds_DB.shape[1] + 1) <= most_D[:, None]
    taus = np.unique(seconds_DB[allowed])
    low, high = 0, len(taus) - 1
    while low < high:
        middle = (low + high) // 2
        within = (allowed & (seconds_DB <= taus[middle])).sum(axis=1)
        if within.min() >= 1 and within.sum() >= total:
            high = middle
        else:
            low = middle + 1
    samples = (allowed & (seconds_DB <= taus[high])).sum(axis=1)
    for _ in range(int(samples.sum()) - total):
        now = np.where(samples > 1, seconds_DB[np.arange(len(samples)), samples - 1], -np.inf)
        samples[now.argmax()] -= 1
    return np.asarray(samples, np.int64)


def uneven_samples(
    columns: LayoutColumns,
    places: StagePlaces,
    order: Sequence[int],
    workload: Workload,
    kinds: Sequence[MachineKind],
    layers: Sequence[int],
) -> tuple[int, ...] | None:
    """The best micro-batch of each replica of one layout; None if equal ones are best.

    ``order``: the kind of each node, in the order of ranks.
    """
    here_DSK = replica_kinds(order, kinds, columns)
    replicas = len(here_DSK)
    total = replicas * int(columns.micro_batch_C[0])
    sizes = np.arange(1, total - replicas + 2)
    many = replace(columns.take(np.zeros(len(sizes), np.int64)), micro_batch_C=sizes)
    split = np.tile(np.array(layers), (len(sizes), 1))
    share = decoder_share(workload.architecture, split)
    peaks_BS = memory_bytes(many, workload, np.arange(len(layers))[:, None], split.T).total.T
    seconds_DB = np.zeros((replicas, len(sizes)))
    most_D = np.full(replicas, len(sizes))
    for kind, node in enumerate(kinds):
        rows = np.zeros(len(sizes), np.int64)
        alone = only_on(places, kind)
        times = seconds_of_makes(many, alone, rows, workload, kinds, share)
        one = times.busy_s(split)
        here_DS = here_DSK[:, :, kind]
        slowest = np.where(here_DS[:, None, :], one[None], 0.0).max(axis=2)
        seconds_DB = np.maximum(seconds_DB, slowest)
        fits = (~here_DS[:, None, :] | (peaks_BS <= node.memory_bytes)[None]).all(axis=2)
        most_D = np.minimum(most_D, fits.sum(axis=1))
    samples = share_samples(np.maximum.accumulate(seconds_DB, axis=1), most_D, total)
    if samples is None or len(set(samples.tolist())) == 1:
        return None
    return tuple(samples.tolist())


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

    ``order``: the kind of each node, in the order of ranks; the layout fills them all.
    ``samples``: micro-batch of each replica; default: the layout's.
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
