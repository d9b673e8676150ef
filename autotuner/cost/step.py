"""Seconds of one optimizer step for each candidate, part by part.

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

from autoconf_launch.core import Framework, ModelSpec, Recompute, UpdatedWeights, Workload

from ..layers import (
    all_layers,
    embedding_weights,
)
from ..space import Bools, CandidateTable, Floats
from .fitting import activation_transfer_s
from .hardware import (
    ALL_REDUCE,
    DEFAULT_PHYSICS,
    GATHER,
    Group,
    Machine,
    Network,
    Physics,
    exposed_s,
    ring_s,
)
from .inner import GATHERED_MATRICES, HeldValues, RankShares
from .kernel_times import (
    KernelTimes,
    ProfiledLines,
    Roofline,
    frozen_passes_s,
    paged_bytes,
    profiled_model,
    rank_weights,
    routed_weights,
    straggling,
)
from .layout_columns import (
    FULL,
    NONE,
    LayoutColumns,
    between,
    distinct,
    fsdp_exchange_stage,
    recomputed_share,
)
from .layout_rules import LayerSeconds, StageSends, schedule_s, stage_times
from .model_state import is_plain, sharding_ranks, trained_share
from .software import overlaps_reduction
from .weights import (
    covered_rows,
    repeated_names,
)

BACKWARD = 0.6
"""Part of forward and backward during which gradients can be reduced."""
MOST_HIDDEN = 0.5
"""Largest part of a reduction that a backward pass hides, and the part of the exchanges of sharded
embeddings that other work hides; a round number, with which ``Physics`` was fitted."""
_BROADCASTS_OF_BLOCK = 12 / 4
"""ZeRO 1 broadcasts each of about 12 weights and biases of a transformer's block by itself. They
are under way together: a broadcast took a quarter of a reduction's latency when measured (gloo, 2
ranks)."""
_PROFILED_BACKWARD = 2 / 3
_MIB = 1 << 20
_REDUCED_BYTES = 4
_BUCKET_MB = 25.0
_ROUNDING = 1e-9


def zero_exchanges(
    layouts: LayoutColumns, plain_C: Bools | bool = True
) -> tuple[Floats, Floats, Floats]:
    """Whole sums of gradients, scatters, and gathers of weights in a step (ZeRO, section 7).

    Rows that are not plain data parallelism are FSDP2 in our runtime at every stage: below stage 2
    and in a pipeline it scatters only with the last micro-batch.
    """
    stage, times = layouts.zero_stage_C, layouts.accumulation_C
    sums = np.where((stage < 2) & plain_C, 1.0, 0.0)
    is_late_C = np.logical_not(plain_C) & ((stage < 2) | (layouts.pipeline_C > 1))
    scatters = np.where(sums > 0, 0.0, np.where(is_late_C, 1.0, times))
    gathers = np.where(stage > np.where(plain_C, 1, 0), 1.0, 0.0)
    return sums, scatters, np.where(stage > 2, 2.0 * times, gathers)


def reduction_passes(layouts: LayoutColumns) -> Floats:
    """All-reduces that gradients need in a step; ZeRO 3's exchanges are part of its layers."""
    sums, scatters, gathers = zero_exchanges(layouts)
    return np.where(layouts.zero_stage_C >= 3, 0.0, sums + (scatters + gathers) / ALL_REDUCE)


def beyond_backward_s(exchange_s: Floats, busy_s: Floats, physics: Physics) -> Floats:
    """Seconds of a reduction beyond what a backward pass of ``busy_s`` hides."""
    hidden = physics.shard_overlap * (BACKWARD * busy_s)
    return np.asarray(exchange_s - np.minimum(MOST_HIDDEN * exchange_s, hidden))


def gradient_exchange_s(
    layouts: LayoutColumns, workload: Workload, machine: Machine, busy_s_C: Floats
) -> Floats:
    """Gradients and weights of replicas beyond what each layer gathers by itself (``inner``)."""
    routed = routed_weights(layouts, workload)
    software = workload.software
    size = trained_share(workload) * software.reduced_bytes
    once = ring_s(
        machine,
        Group(layouts.shards_C, layouts.tensor_C, world=layouts.world_C),
        (rank_weights(layouts, workload) - routed) * size,
        passes=ALL_REDUCE,
    )
    if workload.architecture.experts is not None:
        stride_C = layouts.tensor_C * layouts.expert_C
        same = Group(layouts.expert_shards_C, stride_C, world=layouts.world_C)
        once = once + ring_s(machine, same, routed * size, passes=ALL_REDUCE)
    passes = reduction_passes(layouts)
    if software.updated_weights is UpdatedWeights.GATHERED:
        passes = passes / np.where(layouts.zero_stage_C == 1, ALL_REDUCE, 1.0)
    whole = np.asarray(once * passes)
    if overlaps_reduction(software):
        whole = beyond_backward_s(whole, busy_s_C, machine.physics)
    if software.updated_weights is not UpdatedWeights.OVERLAPPED:
        whole = whole + _updated_weights_s(layouts, workload, machine)
    words = embedding_weights(workload.architecture)
    if workload.architecture.tied_embeddings and (layouts.pipeline_C > 1).any():
        whole = whole + _tied_s(layouts, workload, machine, words)
    if (layouts.zero_stage_C >= 3).any():
        whole = whole + _outside_s(layouts, workload, machine, words)
    return np.asarray(whole)


def _updated_weights_s(layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
    """ZeRO 1's updated weights go to the other replicas after the step, in the open.

    Each broadcast of a tensor passes every rank of a ring (InternEvo,
    ``internlm/solver/optimizer/hybrid_zero_optim.py``, ``broadcast_params``).
    """
    shards_C, pieces, way = layouts.shards_C, np.ones(()), workload.software.updated_weights
    if way is UpdatedWeights.IN_NODE:
        shards_C = np.minimum(shards_C, np.maximum(1, machine.domain // layouts.tensor_C))
    elif way is UpdatedWeights.BROADCAST:
        layers = all_layers(workload.architecture) / layouts.pipeline_C
        pieces = np.minimum(shards_C, GATHERED_MATRICES * layers)
    sent = ring_s(
        machine,
        Group(shards_C, layouts.tensor_C, world=layouts.world_C),
        rank_weights(layouts, workload) * trained_share(workload) * workload.precision.value_bytes,
        passes=GATHER,
        pieces=pieces,
    )
    return np.where(layouts.zero_stage_C == 1, sent, 0.0)


def _tied_s(layouts: LayoutColumns, workload: Workload, machine: Machine, words: int) -> Floats:
    """The first and the last stage sum the gradients of the embeddings that they share."""
    stride_C = np.where(layouts.world_C > machine.domain, machine.domain, 1)
    pairs_C = np.where(layouts.pipeline_C > 1, 2, 1)
    return ring_s(
        machine,
        Group(pairs_C, stride_C, rings=layouts.stage_ranks_C),
        words * trained_share(workload) * workload.software.reduced_bytes / layouts.tensor_C,
        passes=ALL_REDUCE,
    )


def _outside_s(layouts: LayoutColumns, workload: Workload, machine: Machine, words: int) -> Floats:
    """Sharded embeddings are gathered twice, their gradients scattered, in each micro-batch."""
    passes = 2.0 + trained_share(workload)
    gathered = ring_s(
        machine,
        Group(
            np.where(layouts.zero_stage_C >= 3, layouts.shards_C, 1),
            layouts.tensor_C,
            world=layouts.world_C,
        ),
        np.asarray(passes * words * workload.precision.value_bytes),
        passes=GATHER,
    )
    return np.asarray(MOST_HIDDEN * gathered * layouts.accumulation_C)


def offload_transfer_s(layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
    """Offloaded weights come from the host before each pass, gradients go there, in the open.

    Source: Rajbhandari et al. 2021, "ZeRO-Infinity", section 6.1.1.
    """
    if not layouts.are_weights_away_C.any():
        return np.zeros(())
    share = rank_weights(layouts, workload) / layouts.shards_C
    moved = share * workload.frozen_matrix_bytes * (2.0 + trained_share(workload))
    once = moved / machine.physics.host_link_bytes_per_s
    return np.asarray(layouts.are_weights_away_C * once * layouts.accumulation_C)


def paged_transfer_s(
    layouts: LayoutColumns, workload: Workload, machine: Machine, busy_s_C: Floats
) -> Floats:
    """Paged optimizer values on the host link; updates in the backward pass hide them."""
    once_s_C = paged_bytes(layouts, workload) / machine.physics.host_link_bytes_per_s
    hidden_s_C = BACKWARD * busy_s_C * workload.updates_in_backward
    return np.asarray(np.maximum(0.0, once_s_C - hidden_s_C))


def runtime_exchange_s(
    table: CandidateTable, workload: Workload, network: Network, micro_batch_s_C: Floats
) -> Floats:
    """Exposed exchange seconds of each row's step in our own runtime.

    The bytes and passes follow ``runtime/parallel``: DDP reduces buckets once a step, ZeRO 1 then
    broadcasts each weight, FSDP2 gathers units of blocks and scatters their gradients with each
    micro-batch. gloo scatters by a whole reduction, NCCL in one pass. Beyond plain data
    parallelism all stages are FSDP2 (``zero_exchanges``).
    """
    layouts, spec = LayoutColumns.from_table(table), profiled_model(workload)
    held = HeldValues.of(spec, table)
    ranks_C, plain_C = layouts.shards_C, is_plain(layouts)
    gradients = held.trained_C * spec.parameter_bytes_each
    buckets = np.ceil(gradients / (table.numbers("bucket_cap_mb", _BUCKET_MB) * _MIB))
    summed = network.rings_s(ranks_C, buckets, ALL_REDUCE * gradients)
    summed = np.maximum(0.0, summed - _PROFILED_BACKWARD * micro_batch_s_C)
    broadcasts = _BROADCASTS_OF_BLOCK * held.pieces_C
    broadcast = network.rings_s(ranks_C, broadcasts, gradients)
    units = np.ceil(held.repeated_C / table.numbers("blocks_per_unit", 1.0)) + 1.0
    passes = GATHER if network.overlaps else ALL_REDUCE
    shards_C = sharding_ranks(table, layouts)
    copied = network.rings_s(
        ranks_C // shards_C, units, ALL_REDUCE * held.trained_C * _REDUCED_BYTES / shards_C
    )
    scattered = network.rings_s(shards_C, units, passes * held.trained_C * _REDUCED_BYTES)
    scattered = scattered + np.where(ranks_C > shards_C, copied, 0.0)
    gathered = network.rings_s(shards_C, units, held.values_C * workload.precision.value_bytes)
    sums, scatters, gathers = zero_exchanges(layouts, plain_C)
    sharded = scattered * scatters + gathered * gathers
    if network.overlaps:
        computing = micro_batch_s_C * layouts.accumulation_C
        sharded = exposed_s(sharded, computing, DEFAULT_PHYSICS)
    exposed = summed * sums + broadcast * (plain_C & (layouts.zero_stage_C == 1)) + sharded
    once = np.where(ranks_C > 1, exposed, 0.0) + _joined_gradients_s(layouts, spec, network, held)
    return np.asarray(once, np.float64)


def _joined_gradients_s(
    layouts: LayoutColumns, spec: ModelSpec, network: Network, held: HeldValues
) -> Floats:
    """Gradients that the first stage and the last, or tensor ranks have parts of, once a step."""
    reduced = ALL_REDUCE * spec.parameter_bytes_each
    tied = float(sum(block.count * block.tied_parameters for block in spec.blocks))
    shared = network.rings_s(np.full(len(layouts), 2), 1.0, reduced * tied)
    tied_s = np.where((layouts.pipeline_C > 1) & (tied > 0), shared, 0.0)
    norms_s = network.rings_s(layouts.tensor_C, 1.0, reduced * held.whole_C)
    return np.asarray(tied_s + np.where(layouts.sequence_parallel_C, norms_s, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepParts:
    """Seconds that add up to one step.

    ``ideal_s_C`` is the model's operations at the datasheet's rate, or at the rate of large
    micro-batches if they were profiled; the others are losses, in order. ``frozen_s_C`` is of
    other models, such as a teacher, and has a name only if there are any.
    """

    ideal_s_C: Floats
    kernels_s_C: Floats
    recompute_s_C: Floats
    launch_s_C: Floats
    bubble_s_C: Floats
    communication_s_C: Floats
    update_s_C: Floats
    frozen_s_C: Floats

    @property
    def step_s_C(self) -> Floats:
        """Sum of all parts."""
        total: Floats | float = 0.0
        for name in PART_NAMES:
            total = total + getattr(self, name)
        return np.asarray(total, np.float64)

    def named_parts(self) -> tuple[tuple[str, Floats], ...]:
        """Name (``ideal``, ``kernels``, …) and seconds of each part, in order."""
        names = PART_NAMES if self.frozen_s_C.any() else PART_NAMES[:-1]
        return tuple((name.removesuffix("_s_C"), getattr(self, name)) for name in names)

    def profiled_parts(self) -> tuple[tuple[str, Floats], ...]:
        """Parts of the step if only whole micro-batches were timed."""
        own = dict(self.named_parts())
        names = ["launch", "recompute", "bubble", "communication", "update"]
        if not (own["bubble"] > _ROUNDING * own["ideal"]).any():  # no row has a pipeline
            names.remove("bubble")
        return (("samples", own["ideal"]), *((name, own[name]) for name in names))


PART_NAMES = tuple(part.name for part in fields(StepParts))
PartsOf: TypeAlias = Callable[[LayoutColumns], StepParts]


def step_parts(layouts: LayoutColumns, workload: Workload, machine: Machine) -> StepParts:
    """All parts for each candidate, by formula."""
    if workload.software.framework is Framework.FSDP:
        layouts = replace(layouts, zero_stage_C=fsdp_exchange_stage(layouts))
    if not workload.software.crossing_s:
        return _alike_parts(layouts, workload, machine)
    plain = replace(workload, software=replace(workload.software, crossing_s=0.0))
    crosses_C = (layouts.pipeline_C > 1) & (layouts.world_C > machine.gpus_per_node)
    far, near = (_alike_parts(layouts, one, machine) for one in (workload, plain))
    return StepParts(
        **{x: np.where(crosses_C, getattr(far, x), getattr(near, x)) for x in PART_NAMES}
    )


def _alike_parts(layouts: LayoutColumns, workload: Workload, machine: Machine) -> StepParts:
    """Parts if pipelines of all rows cross nodes, or none of them does."""
    kernels = Roofline(workload=workload, machine=machine)
    schedule = workload.software.schedule

    def of(columns: LayoutColumns) -> StepParts:
        def exchange(busy_s_C: Floats) -> Iterator[Floats]:
            exchanged = gradient_exchange_s(columns, workload, machine, busy_s_C)
            if schedule.copies > 1:
                exchanged = exchanged * np.where(columns.pipeline_C > 1, schedule.copies, 1)
            yield exchanged
            yield offload_transfer_s(columns, workload, machine)
            passes_s_C = ((1.0 - BACKWARD) * busy_s_C, BACKWARD * busy_s_C)
            yield activation_transfer_s(columns, workload, machine, passes_s_C)
            if workload.optimizer.is_paged:
                yield paged_transfer_s(columns, workload, machine, busy_s_C)

        sends = _stage_sends(columns, workload, machine)
        balanced = workload.software.balanced_stages
        parts = _combine(columns, kernels, exchange, sends=sends, is_balanced=balanced)
        waits_s_C = parts.step_s_C * straggling(columns, machine)
        parts = replace(parts, communication_s_C=parts.communication_s_C + waits_s_C)
        return replace(parts, frozen_s_C=frozen_passes_s(columns, workload, machine))

    return _recomputed_in_part(layouts.in_sequences(workload), kernels.layers, of)


def profiled_step_parts(
    table: CandidateTable,
    workload: Workload,
    network: Network | None,
    kernels: KernelTimes | None = None,
) -> StepParts:
    """Parts of a step of a model that was run or traced; NaN if no formula covers the row.

    ``network``: None skips communication. ``kernels``: seconds of micro-batches; by default from
    the model's profile.
    """
    spec, size = profiled_model(workload), workload.precision.value_bytes
    times = kernels or ProfiledLines(spec=spec, value_bytes=size, network=network)
    layouts, shares = LayoutColumns.from_table(table), RankShares.of(spec, table)
    hidden_bytes = (spec.hidden_size or 0) * (spec.sequence_length or 0) * size

    def exchange(busy_s_C: Floats) -> Iterator[Floats]:
        if network is not None:
            yield runtime_exchange_s(table, workload, network, busy_s_C)

    def of(columns: LayoutColumns) -> StepParts:
        sent_bytes = columns.micro_batch_C / columns.context_C * hidden_bytes
        send_s_C = np.zeros(()) if network is None else network.send_s(sent_bytes)
        overlap = DEFAULT_PHYSICS.point_to_point_overlap if network and network.overlaps else 0.0
        sends = replace(StageSends.alike(columns.pipeline_C, send_s_C), exposed=1.0 - overlap)
        return _combine(columns, times, exchange, sends=sends, shares=shares)

    layers = sum(b.count for b in spec.blocks if b.name in repeated_names(spec)) or 1
    found = _recomputed_in_part(layouts, layers, of)
    known = np.where(covered_rows(table, spec) & ~np.isnan(found.ideal_s_C), 0.0, np.nan)
    return StepParts(**{name: known + getattr(found, name) for name in PART_NAMES})


def step_seconds(layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
    """Only the sum of all parts.

    If columns broadcast, each kind of recomputation is timed once; some layers of a stage are
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
    """Interpolate the parts if only some layers of a stage recompute."""
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


def _combine(
    layouts: LayoutColumns,
    kernels: KernelTimes,
    exchange_s: Callable[[Floats], Iterable[Floats]],
    *,
    sends: StageSends,
    shares: RankShares | None = None,
    is_balanced: bool = False,
) -> StepParts:
    """Combine kernels, the schedule of micro-batches, and exchanges into one step.

    Args:
        layouts: the candidates.
        kernels: seconds of one micro-batch.
        exchange_s: seconds that a step exchanges gradients and weights, smaller arrays first,
            from those in which a stage is busy with one micro-batch.
        sends: between the stages.
        shares: parts of a profiled model's pieces; None if stages have layers and times know
            ranks.
        is_balanced: stages take as long, with the head or without it.
    """
    inner, which = distinct(layouts)
    layer, layers = kernels.inner_times(inner), kernels.layers
    pace = layers / layouts.pipeline_C * layouts.accumulation_C
    first, last = layer.first_s_U[which], layer.last_s_U[which]
    stages = stage_times(
        layouts,
        layers,
        layer=LayerSeconds(
            mean_s_C=layer.layer_s_U[which],
            slowest_s_C=None if layer.slowest_s_U is None else layer.slowest_s_U[which],
            after_s_C=None if layer.after_s_U is None else layer.after_s_U[which],
            fullest_C=None if shares is None else shares.slowest_C,
            is_balanced=is_balanced,
        ),
        first_s_C=first,
        last_s_C=last,
        sends=sends,
    )
    running, sent = schedule_s(layouts, stages, sends)
    even = (layers * layer.layer_s_U[which] + first + last) / layouts.pipeline_C
    ends = layouts.accumulation_C / layouts.pipeline_C
    busy = pace * layer.busy_s_U[which] + ends * (first + last)
    ideal = pace * layer.ideal_s_U[which] + ends * layer.ends_ideal_s_U[which]
    communication = pace * layer.exposed_s_U[which] + sent
    for seconds in exchange_s(even):
        communication = communication + seconds
    host = kernels.micro_batch_s * layouts.accumulation_C
    updated_s = kernels.update_s(layouts) * (1.0 if shares is None else shares.trained_C)
    return StepParts(
        ideal_s_C=ideal,
        kernels_s_C=busy - ideal,
        recompute_s_C=pace * layer.again_s_U[which],
        launch_s_C=pace * layer.launch_s_U[which] + host,
        bubble_s_C=running - sent - even * layouts.accumulation_C,
        communication_s_C=communication,
        update_s_C=updated_s / layouts.optimizer_shards_C + kernels.step_s,
        frozen_s_C=np.zeros(()),
    )


def _stage_sends(layouts: LayoutColumns, workload: Workload, machine: Machine) -> StageSends:
    """Activations go to the next stage, cut over tensor ranks (Narayanan et al. 2021, 4.1)."""
    ranks = layouts.context_C * layouts.tensor_C
    tokens = layouts.micro_batch_C * workload.sequence_length / ranks
    sent = np.asarray(tokens * workload.architecture.hidden * workload.precision.value_bytes)
    sends = StageSends.between(layouts.pipeline_C, layouts.stage_ranks_C, machine, sent)
    return replace(sends, schedule=workload.software.schedule)
