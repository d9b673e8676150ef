"""Seconds of one optimizer step for each candidate, part by part. Not: memory, nor what is valid.

Shapes: C = candidates (or axes that broadcast), U = distinct inner layouts. A micro-batch of one
layer is worked out once for each distinct inner layout; candidates gather from there, so that
millions of them are cheap.
Ranks are ordered tensor, context, data, pipeline, as Megatron-LM places them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import TypeAlias

import numpy as np

from autoconf_launch.core import ModelSpec, Recompute, Workload

from ..space import CandidateTable, Floats, Ints
from .hardware import (
    ALL_REDUCE,
    DEFAULT_PHYSICS,
    GATHER,
    Group,
    Machine,
    Network,
    exposed_s,
    ring_s,
    send_s,
)
from .kernel_times import (
    GRADIENT_BYTES,
    KernelTimes,
    ProfiledLines,
    Roofline,
    profiled_model,
    rank_weights,
)
from .layout_columns import FULL, NONE, LayoutColumns, distinct
from .memory import covered_rows
from .model_state import trained_share
from .software import overlaps_reduction
from .weights import all_layers, embedding_weights

_ROUNDING = 1e-6
"""By which a mean of equal layers may be off."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageTimes:
    """One micro-batch, forward and backward: on the slowest stage, and on all of them in a row.

    ``send_s_C`` is sending its activations, or their gradients, to a neighbour.
    """

    slowest_s_C: Floats
    all_s_C: Floats
    send_s_C: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerSeconds:
    """One layer and micro-batch: of the mean layer, and of the stack with the slower ones."""

    mean_s_C: Floats
    slowest_s_C: Floats


def largest_share(layers: int, layouts: LayoutColumns) -> Floats:
    """Layers on the fullest stage; with virtual stages each of them is filled evenly."""
    pieces = layouts.pipeline_C * layouts.virtual_C
    return np.asarray(-(-layers // pieces) * layouts.virtual_C, np.float64)


def stage_layers(layers: int, layouts: LayoutColumns) -> tuple[Floats, Floats, Floats]:
    """Layers of the first stage, of the fullest one in the middle, and of the last one.

    Where they are not given and do not divide, the last stage and the first one, which have head
    and embedding too, get fewer.
    """
    fullest = largest_share(layers, layouts)
    spare = fullest * layouts.pipeline_C - layers
    on_first = np.maximum(fullest - np.floor(spare / 2), 0.0)
    on_last = np.maximum(fullest - np.ceil(spare / 2), 0.0)
    if (given := layouts.given_C3) is None:
        return on_first, fullest, on_last
    even = (on_first, fullest, on_last)
    first, middle, last = (np.where(x >= 0, x, y) for x, y in zip(given.T, even, strict=True))
    return first, middle, last


def stage_times(
    layouts: LayoutColumns,
    layers: int,
    *,
    layer: LayerSeconds,
    first_s_C: Floats,
    last_s_C: Floats,
    send_s_C: Floats,
) -> StageTimes:
    """Layers as they are given, else evenly; see :func:`stage_layers`.

    An encoder and a decoder have stages of their own: the slower one's set the pace.
    """
    on_first, on_middle, on_last = stage_layers(layers, layouts)
    alone = layers * layer.mean_s_C + first_s_C + last_s_C
    last = on_last * layer.mean_s_C + last_s_C
    first = on_first * layer.mean_s_C + first_s_C
    middle = np.where(layouts.pipeline_C > 2, on_middle, 0.0) * layer.mean_s_C
    slowest = np.maximum(np.maximum(first, last), middle)
    is_uneven = layer.slowest_s_C > (1.0 + _ROUNDING) * layer.mean_s_C
    slowest = np.maximum(slowest, np.where(is_uneven, on_middle * layer.slowest_s_C, 0.0))
    return StageTimes(
        slowest_s_C=np.where(layouts.pipeline_C > 1, slowest, alone),
        all_s_C=alone,
        send_s_C=send_s_C,
    )


def schedule_s(
    layouts: LayoutColumns, stages: StageTimes, *, exposed_share: float
) -> tuple[Floats, Floats]:
    """Seconds of a step's micro-batches under 1F1B, and how many of them are sends.

    The first micro-batch passes all stages, the others follow at the pace of the slowest one
    (Narayanan et al. 2021, arXiv:2104.04473, section 2.2: a bubble of (p - 1) / (v m)
    where v virtual stages are interleaved).
    """
    count = np.maximum(layouts.accumulation_C, 1.0)
    fill = (stages.all_s_C - stages.slowest_s_C) / layouts.virtual_C
    hops = 2.0 * (layouts.pipeline_C - 1)
    pieces = np.where(layouts.pipeline_C > 1, 2.0 * layouts.virtual_C, 0.0)
    sends = stages.send_s_C * (hops + exposed_share * pieces * count)
    fill = np.where(layouts.pipeline_C > 1, fill, 0.0)
    return count * stages.slowest_s_C + fill + sends, sends


def zero_exchanges(layouts: LayoutColumns) -> tuple[Floats, Floats, Floats]:
    """How often a step sums gradients whole, scatters them, and gathers weights.

    Source:
        Rajbhandari et al. 2020, "ZeRO", section 7.
    """
    stage, times = layouts.zero_stage_C, layouts.accumulation_C
    sums = np.where(stage < 2, 1.0, 0.0)
    scatters = np.where(stage < 2, 0.0, times)
    gathers = np.where(stage == 2, 1.0, 0.0) + np.where(stage > 2, 2.0 * times, 0.0)
    return sums, scatters, gathers


def gradient_exchange_s(
    layouts: LayoutColumns, workload: Workload, machine: Machine, busy_s_C: Floats
) -> Floats:
    """Gradients and weights of replicas beyond what each layer gathers by itself (``inner``).

    With tied embeddings the first and the last stage sum theirs (Narayanan et al. 2021,
    section 4).
    """
    weights = rank_weights(layouts, workload) * trained_share(workload)
    once = ring_s(
        machine,
        Group(ranks=layouts.shards_C, stride=layouts.tensor_C),
        weights * GRADIENT_BYTES,
        passes=ALL_REDUCE,
    )
    sums, scatters, gathers = zero_exchanges(layouts)
    passes = sums + (scatters + gathers) / ALL_REDUCE
    whole = np.where(layouts.zero_stage_C >= 3, 0.0, once * passes)
    if overlaps_reduction(workload.software):
        hidden = machine.physics.shard_overlap * (_BACKWARD * busy_s_C)
        whole = whole - np.minimum(0.5 * whole, hidden)
    words = embedding_weights(workload.architecture)
    if workload.architecture.tied_embeddings and (layouts.pipeline_C > 1).any():
        whole = whole + _tied_s(layouts, workload, machine, words)
    if (layouts.zero_stage_C >= 3).any():
        whole = whole + _outside_s(layouts, workload, machine, words)
    return np.asarray(whole)


_BACKWARD = 0.6
"""Part of forward and backward beside which gradients can be reduced."""


def _tied_s(layouts: LayoutColumns, workload: Workload, machine: Machine, words: int) -> Floats:
    """The first and the last stage sum the gradients of the embeddings that they share."""
    return ring_s(
        machine,
        Group(ranks=np.where(layouts.pipeline_C > 1, 2, 1), stride=_stage_ranks(layouts)),
        words * trained_share(workload) * GRADIENT_BYTES / layouts.tensor_C,
        passes=ALL_REDUCE,
    )


def _stage_ranks(layouts: LayoutColumns) -> Ints:
    return layouts.tensor_C * layouts.shards_C


def _outside_s(layouts: LayoutColumns, workload: Workload, machine: Machine, words: int) -> Floats:
    """Sharded embeddings are gathered twice, their gradients scattered, in each micro-batch.

    Half of it is hidden behind other work.
    """
    passes = 2.0 + trained_share(workload)
    gathered = ring_s(
        machine,
        Group(
            ranks=np.where(layouts.zero_stage_C >= 3, layouts.shards_C, 1),
            stride=layouts.tensor_C,
        ),
        np.asarray(passes * words * workload.precision.value_bytes),
        passes=GATHER,
    )
    return np.asarray(0.5 * gathered * layouts.accumulation_C)


def offload_transfer_s(layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
    """Offloaded weights come from the host before each pass, gradients go there; nothing hides it.

    Each rank moves its share, in each micro-batch. Source: Rajbhandari et al. 2021,
    "ZeRO-Infinity", section 6.1.1 (bandwidth-centric partitioning).
    """
    if not layouts.are_weights_away_C.any():
        return np.zeros(())
    share = rank_weights(layouts, workload) / layouts.shards_C
    moved = share * workload.frozen_matrix_bytes * (2.0 + trained_share(workload))
    once = moved / machine.physics.host_link_bytes_per_s
    return np.asarray(layouts.are_weights_away_C * once * layouts.accumulation_C)


_BROADCASTS_OF_BLOCK = 12 / 4
"""ZeRO 1 broadcasts each of about 12 weights and biases of a transformer's block by itself. They
are under way together: a broadcast took a quarter of a reduction's latency where it was measured
(gloo, 2 ranks)."""
_PROFILED_BACKWARD = 2 / 3
_MIB = 1 << 20
_REDUCED_BYTES = 4
_BUCKET_MB = 25.0


def runtime_exchange_s(
    table: CandidateTable, workload: Workload, network: Network, micro_batch_s_C: Floats
) -> Floats:
    """Seconds of each row's step in our own runtime that no computing hides.

    The bytes and passes are those of ``runtime/parallel``: DDP reduces buckets once a step, ZeRO 1
    then broadcasts each weight, FSDP2 gathers units of blocks and scatters their gradients with
    each micro-batch. gloo scatters by a whole reduction, NCCL in one pass.

    Args:
        table: the candidates.
        workload: a profiled model and its precision.
        network: between the ranks.
        micro_batch_s_C: forward and backward of one micro-batch.
    """
    layouts, spec = LayoutColumns.from_table(table), profiled_model(workload)
    ranks_C = layouts.shards_C
    gradients = spec.trainable_parameters * spec.parameter_bytes_each
    buckets = np.ceil(gradients / (table.numbers("bucket_cap_mb", _BUCKET_MB) * _MIB))
    summed = network.rings_s(ranks_C, buckets, ALL_REDUCE * gradients)
    summed = np.maximum(0.0, summed - _PROFILED_BACKWARD * micro_batch_s_C)
    broadcasts = np.asarray(_BROADCASTS_OF_BLOCK * sum(block.count for block in spec.blocks))
    broadcast = network.rings_s(ranks_C, broadcasts, gradients)
    units = _units(table, spec)
    passes = GATHER if network.overlaps else ALL_REDUCE
    scattered = network.rings_s(
        ranks_C, units, passes * spec.trainable_parameters * _REDUCED_BYTES
    )
    gathered = network.rings_s(ranks_C, units, spec.parameters * workload.precision.value_bytes)
    sums, scatters, gathers = zero_exchanges(layouts)
    sharded = scattered * scatters + gathered * gathers
    if network.overlaps:
        computing = micro_batch_s_C * layouts.accumulation_C
        sharded = exposed_s(sharded, computing, DEFAULT_PHYSICS)
    exposed = summed * sums + broadcast * (layouts.zero_stage_C == 1) + sharded
    return np.asarray(np.where(ranks_C > 1, exposed, 0.0), np.float64)


def _units(table: CandidateTable, spec: ModelSpec) -> Floats:
    """Units of blocks that FSDP gathers, and the rest of the model as one more."""
    repeated = sum(block.count for block in spec.blocks if block.count > 1)
    return np.asarray(np.ceil(repeated / table.numbers("blocks_per_unit", 1.0)) + 1.0)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepParts:
    """Seconds that add up to one step.

    ``ideal_s_C`` is the model's operations at the datasheet's rate, or at that of large
    micro-batches where they were profiled; the others are what is lost, in the order in which it
    is lost.
    """

    ideal_s_C: Floats
    kernels_s_C: Floats
    recompute_s_C: Floats
    launch_s_C: Floats
    bubble_s_C: Floats
    communication_s_C: Floats
    update_s_C: Floats

    @property
    def step_s_C(self) -> Floats:
        """Sum of all parts."""
        total: Floats | float = 0.0
        for name in PART_NAMES:
            total = total + getattr(self, name)
        return np.asarray(total, np.float64)

    def named_parts(self) -> tuple[tuple[str, Floats], ...]:
        """Name (``ideal``, ``kernels``, …) and seconds of each part, in order."""
        return tuple((name.removesuffix("_s_C"), getattr(self, name)) for name in PART_NAMES)

    def profiled_parts(self) -> tuple[tuple[str, Floats], ...]:
        """Parts of the step where whole micro-batches were timed, so less is distinguished."""
        own = dict(self.named_parts())
        names = ("launch", "recompute", "communication", "update")
        return (("samples", own["ideal"]), *((name, own[name]) for name in names))


PART_NAMES = tuple(part.name for part in fields(StepParts))
PartsOf: TypeAlias = Callable[[LayoutColumns], StepParts]


def step_parts(layouts: LayoutColumns, workload: Workload, machine: Machine) -> StepParts:
    """All parts for each candidate, by formula."""
    kernels = Roofline(workload=workload, machine=machine)

    def of(columns: LayoutColumns) -> StepParts:
        def exchange(busy_s_C: Floats) -> Iterator[Floats]:
            yield gradient_exchange_s(columns, workload, machine, busy_s_C)
            yield offload_transfer_s(columns, workload, machine)

        send = _send_s(columns, workload, machine)
        exposed = 1.0 - machine.physics.point_to_point_overlap
        return _combine(columns, kernels, exchange, send_s_C=send, exposed_share=exposed)

    return _recomputed_in_part(layouts, kernels.layers, of)


def profiled_step_parts(
    table: CandidateTable,
    workload: Workload,
    network: Network | None,
    kernels: KernelTimes | None = None,
) -> StepParts:
    """Parts of a step of a model that was run or traced; NaN where no formula covers the row.

    Args:
        table: the candidates.
        workload: a profiled model and its precision.
        network: between ranks; None leaves communication out.
        kernels: seconds of micro-batches; by default those of the model's profile.
    """
    times = kernels or ProfiledLines(spec=profiled_model(workload))

    def exchange(busy_s_C: Floats) -> Iterator[Floats]:
        if network is not None:
            yield runtime_exchange_s(table, workload, network, busy_s_C)

    found = _combine(
        LayoutColumns.from_table(table), times, exchange, send_s_C=np.zeros(()), exposed_share=0.0
    )
    known = np.where(covered_rows(table) & ~np.isnan(found.ideal_s_C), 0.0, np.nan)
    return StepParts(**{name: known + getattr(found, name) for name in PART_NAMES})


def step_seconds(layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
    """The sum of all parts alone.

    Where columns broadcast, each kind of recomputation is timed once; some layers of a stage lie
    between two kinds.
    """
    if layouts.recompute_C.ndim == 1:
        return step_parts(layouts, workload, machine).step_s_C
    shape = layouts.recompute_C.shape
    axis = next((i for i, size in enumerate(shape) if size > 1), -1)
    axis = layouts.shape.index(1) if axis < 0 else axis
    line = [1] * len(shape)
    line[axis] = len(Recompute)
    kinds = np.arange(len(Recompute)).reshape(line)
    plain = replace(layouts, recompute_C=kinds, recompute_layers_C=np.full_like(kinds, -1))
    kinds_s_C = step_parts(plain, workload, machine).step_s_C
    seconds_C = np.take(kinds_s_C, layouts.recompute_C.reshape(-1), axis=axis)
    others = tuple(i for i in range(len(shape)) if i != axis)
    some = (layouts.recompute_layers_C >= 0).any(axis=others)
    if some.any():
        before = (slice(None),) * axis
        share_C = recomputed_share(
            layouts.recompute_layers_C[(*before, some)],
            layouts.pipeline_C,
            all_layers(workload.architecture),
        )
        full_s_C, none_s_C = (kinds_s_C[(*before, slice(kind, kind + 1))] for kind in (FULL, NONE))
        seconds_C[(*before, some)] = between(share_C, full_s_C, none_s_C)
    return np.asarray(seconds_C)


def _recomputed_in_part(layouts: LayoutColumns, layers: int, parts_of: PartsOf) -> StepParts:
    """Parts where only some layers of a stage recompute lie between those of none and of all."""
    if not (partial := layouts.recompute_layers_C >= 0).any():
        return parts_of(layouts)
    share = np.where(
        partial, recomputed_share(layouts.recompute_layers_C, layouts.pipeline_C, layers), 1.0
    )
    whole = parts_of(layouts)
    none = parts_of(replace(layouts, recompute_C=np.where(partial, NONE, layouts.recompute_C)))
    return StepParts(
        **{x: between(share, getattr(whole, x), getattr(none, x)) for x in PART_NAMES}
    )


def between(share: Floats, whole_s: Floats, none_s: Floats) -> Floats:
    """Seconds where a share of the layers recomputes, from those where all and none do."""
    return np.asarray(share * whole_s + (1.0 - share) * none_s)


def recomputed_share(recomputed_C: Ints, pipeline_C: Ints, layers: int) -> Floats:
    """Part of the layers of a stage that full recomputation of so many of them covers."""
    stage = np.maximum(layers / pipeline_C, 1.0)
    return np.asarray(np.clip(recomputed_C / stage, 0.0, 1.0))


def _combine(
    layouts: LayoutColumns,
    kernels: KernelTimes,
    exchange_s: Callable[[Floats], Iterable[Floats]],
    *,
    send_s_C: Floats,
    exposed_share: float,
) -> StepParts:
    """Kernels, the schedule of micro-batches, and what ranks exchange, as one step.

    Args:
        layouts: the candidates.
        kernels: seconds of one micro-batch.
        exchange_s: seconds that a step exchanges gradients and weights, smaller arrays first,
            from those in which a stage is busy with one micro-batch.
        send_s_C: from a stage to its neighbour.
        exposed_share: of these while a stage computes.
    """
    inner, which = distinct(layouts)
    layer, layers = kernels.inner_times(inner), kernels.layers
    pace = layers / layouts.pipeline_C * layouts.accumulation_C
    first, last = layer.first_s_U[which], layer.last_s_U[which]
    stages = stage_times(
        layouts,
        layers,
        layer=LayerSeconds(mean_s_C=layer.layer_s_U[which], slowest_s_C=layer.slowest_s_U[which]),
        first_s_C=first,
        last_s_C=last,
        send_s_C=send_s_C,
    )
    running, sends = schedule_s(layouts, stages, exposed_share=exposed_share)
    even = (layers * layer.layer_s_U[which] + first + last) / layouts.pipeline_C
    ends = layouts.accumulation_C / layouts.pipeline_C
    busy = pace * layer.busy_s_U[which] + ends * (first + last)
    ideal = pace * layer.ideal_s_U[which] + ends * layer.ends_ideal_s_U[which]
    communication = pace * layer.exposed_s_U[which] + sends
    for seconds in exchange_s(even):
        communication = communication + seconds
    host = kernels.micro_batch_s * layouts.accumulation_C
    return StepParts(
        ideal_s_C=ideal,
        kernels_s_C=busy - ideal,
        recompute_s_C=pace * layer.again_s_U[which],
        launch_s_C=pace * layer.launch_s_U[which] + host,
        bubble_s_C=running - sends - even * layouts.accumulation_C,
        communication_s_C=communication,
        update_s_C=kernels.update_s(layouts) / layouts.optimizer_shards_C + kernels.step_s,
    )


def _send_s(layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
    """Activations of one micro-batch go to the next stage, cut over tensor-parallel ranks.

    Source: Narayanan et al. 2021, section 4.1, scatter and gather.
    """
    ranks = layouts.context_C * layouts.tensor_C
    tokens = layouts.micro_batch_C * workload.sequence_length / ranks
    sent = tokens * workload.architecture.hidden * workload.precision.value_bytes
    return send_s(machine, stride=_stage_ranks(layouts), buffer_bytes=np.asarray(sent, np.float64))
