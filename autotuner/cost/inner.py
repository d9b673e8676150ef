"""Times of a micro-batch on a rank: of a layer, of the embedding and of the head.

For a profiled model they cover all layers, and one rank's part of the model.

Shapes: U = distinct inner layouts. Layers with and without experts are averaged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.core import BlockSpec, Experts, ModelSpec, Workload

from ..layers import (
    attention_kinds,
    dense_layer_weights,
    expert_weights,
    mlp_kinds,
    shared_weights,
)
from ..space import CandidateTable, Floats, Ints
from .hardware import (
    ALL_REDUCE,
    GATHER,
    Group,
    Machine,
    Network,
    Physics,
    all_to_all_s,
    domains,
    exposed_s,
    peak_flops_per_s,
    ring_s,
    ring_share,
    side_by_side_s,
)
from .layer import Kernels, LayerTimes, attention_times, layer_times
from .layout_columns import (
    FULL,
    SELECTIVE,
    InnerLayouts,
    LayoutColumns,
    Stack,
    distinct_kernels,
    front_workload,
    stacks,
)
from .model_state import LocalWeights, stage_weights, trained_share
from .software import (
    has_flat_gathers,
    host_s,
    is_compiled,
    is_eager,
    is_tensor_async,
    routes_by_domain,
    stops_early,
    sums_shards,
    table_bytes,
    waits_for_routing,
)
from .weights import (
    StagePieces,
    piece_seconds,
    repeated_names,
)

GATHERED_MATRICES = 8
"""Weights of a layer that are gathered one by one (DeepSpeed's ZeRO 3; biases are kept whole)."""
_ALIGNED = 8
_UNALIGNED = 0.3
"""Rate of products of 16-bit logits whose rows do not begin at a multiple of 16 bytes (50,257
words) over the rate of others."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InnerTimes:
    """Seconds of one layer and micro-batch; with ``first`` and ``last`` of a stage's extras.

    ``busy`` is the device's computing without recomputation, ``exposed`` communication that
    nothing hides, ``launch`` how much longer the host takes than both and recomputation.
    """

    ideal_s_U: Floats
    busy_s_U: Floats
    again_s_U: Floats
    exposed_s_U: Floats
    launch_s_U: Floats
    first_s_U: Floats
    last_s_U: Floats
    ends_ideal_s_U: Floats
    slowest_s_U: Floats | None = None
    """Time of a layer of the slower stack, if encoder and decoder see different lengths."""
    after_s_U: Floats | None = None
    """Time of a layer with experts, if leading layers have none."""

    @property
    def layer_s_U(self) -> Floats:
        """Total time of a layer."""
        return self.busy_s_U + self.again_s_U + self.exposed_s_U + self.launch_s_U


def inner_times(
    workload: Workload, inner: InnerLayouts, machine: Machine, stack: Stack | None = None
) -> InnerTimes:
    """Times of the mean layer, of all or only one ``stack``, and of both ends."""
    kernels = Kernels(
        accelerator=machine.accelerator,
        physics=_physics(workload, machine),
        precision=workload.precision,
        transformer_engine=workload.software.transformer_engine,
    )
    sized, which = distinct_kernels(inner, casts_shards=sums_shards(workload.software))
    parts = _Parts(inner=inner, sized=sized, which=which, machine=machine, kernels=kernels)
    mean = [np.zeros(len(inner.tensor_U)) for _ in range(5)]
    slowest, after = np.zeros(len(inner.tensor_U)), None
    several = stacks(workload) if stack is None else (replace(stack, share=1.0),)
    for some in several:
        one, after = _of_stack(some, parts)
        mean = [total + some.share * part for total, part in zip(mean, one, strict=True)]
        slowest = np.maximum(slowest, sum(one[1:]))
    first, last, ends_ideal = (x[which] for x in _ends(workload, sized, machine, kernels))
    if workload.architecture.front is not None:
        front_s, front_ideal_s = _front_s(workload, parts)
        first, ends_ideal = first + front_s, ends_ideal + front_ideal_s
    return InnerTimes(
        ideal_s_U=mean[0],
        busy_s_U=mean[1],
        again_s_U=mean[2],
        exposed_s_U=mean[3],
        launch_s_U=mean[4],
        first_s_U=first,
        last_s_U=last,
        ends_ideal_s_U=ends_ideal,
        slowest_s_U=slowest if len(several) > 1 else None,
        after_s_U=after,
    )


def _front_s(workload: Workload, on: _Parts) -> tuple[Floats, Floats]:
    """Seconds and ideal seconds of a tower on the first stage; context ranks repeat it."""
    tower, images = front_workload(workload), on.inner.micro_U * workload.images
    inner = replace(on.inner, micro_U=images, context_U=np.ones_like(images))
    sized, which = distinct_kernels(inner, casts_shards=workload.software.plain_torch)
    one, _ = _of_stack(stacks(tower)[0], replace(on, inner=inner, sized=sized, which=which))
    layers = tower.architecture.layers
    return np.asarray(layers * sum(one[1:])), layers * one[0]


def _physics(workload: Workload, machine: Machine) -> Physics:
    """Eager PyTorch often moves bytes: its products keep the clock, and its host runs ahead."""
    if is_eager(workload.software):
        return replace(machine.physics, sustained=1.0, host_sharpness=np.inf)
    return machine.physics


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Machine of the layers of all stacks; ``which`` gives a layout's kernels in ``sized``."""

    inner: InnerLayouts
    sized: InnerLayouts
    which: Ints
    machine: Machine
    kernels: Kernels


def _of_stack(stack: Stack, on: _Parts) -> tuple[list[Floats], Floats | None]:
    """Ideal, busy, repeated, exposed and launch seconds of its mean layer.

    Also all seconds of a layer with experts, if leading layers have none.
    """
    model = stack.workload.architecture
    *mean, after = (np.zeros(len(on.inner.tensor_U)) for _ in range(6))
    for alike, one_kind in attention_kinds(model):
        own = replace(stack, workload=replace(stack.workload, model=one_kind))
        attention = attention_times(own, on.sized, on.kernels)
        for share, experts in mlp_kinds(one_kind):
            times = layer_times(own, on.sized, on.kernels, attention, experts=experts)
            one = _one_kind(own, on.inner, on.machine, on.kernels, (times.rows(on.which), experts))
            mean = [all_s + alike * share * s for all_s, s in zip(mean, one, strict=True)]
            if experts is not None:
                after = after + alike * sum(one[1:])
    return mean, after if model.experts and model.experts.first_dense else None


def _one_kind(
    stack: Stack,
    inner: InnerLayouts,
    machine: Machine,
    kernels: Kernels,
    layer: tuple[LayerTimes, Experts | None],
) -> tuple[Floats, Floats, Floats, Floats, Floats]:
    workload, (times, experts) = stack.workload, layer
    kind = inner.recompute_U
    skipped = times.last_s_U if stops_early(workload.software) else 0.0
    again = np.where(kind == FULL, times.forward_s_U - skipped, 0.0)
    again = np.where(kind == SELECTIVE, times.small_s_U, again)
    busy = times.forward_s_U + times.backward_s_U
    passes = np.where(kind == FULL, 3.0, 2.0)
    tensor = passes * _tensor_s(stack, inner, machine, times)
    ring = _context_s(workload, inner, machine, busy)
    routed = _routing_s(workload, inner, machine, passes, busy + again, experts)
    gathered = _gather_s(workload, inner, machine, busy + again, experts)
    exposed = tensor + ring + routed + gathered
    host = host_s(stack, inner, machine.physics, times.unfused_U)
    device = busy + again + exposed
    launch = side_by_side_s(host, device, _physics(workload, machine).host_sharpness) - device
    if experts is not None and waits_for_routing(workload):
        launch = launch + (passes - 1.0) * machine.physics.routing_s
    peak = peak_flops_per_s(machine.accelerator, workload.precision)
    ideal = (2.0 + trained_share(workload)) * times.forward_flops_U / peak
    return ideal, busy, again, exposed, launch


def _activation_bytes(workload: Workload, inner: InnerLayouts) -> Floats:
    hidden = workload.architecture.hidden
    tokens = inner.micro_U * workload.sequence_length / inner.context_U
    return np.asarray(tokens * hidden * workload.precision.value_bytes, np.float64)


def _tensor_s(stack: Stack, inner: InnerLayouts, machine: Machine, times: LayerTimes) -> Floats:
    """An all-reduce after the MLP and each attention of a pass (Shoeybi et al. 2019, section 3).

    If the sequence is parallel, they are gathers and scatters of the same bytes.
    """
    physics, workload, sums = machine.physics, stack.workload, stack.joins
    one = ring_s(
        machine,
        Group(inner.tensor_U, np.ones_like(inner.tensor_U), world=inner.world_U),
        _activation_bytes(workload, inner),
    )
    is_async = is_tensor_async(workload.software)
    hidden_share = physics.async_tensor_overlap if is_async else physics.tensor_overlap
    hidden = np.minimum(sums * one * hidden_share, times.products_s_U)
    waits = sums * physics.straggler_s * (inner.tensor_U - 1)
    return np.asarray(sums * one - hidden + waits)


def _context_s(workload: Workload, inner: InnerLayouts, machine: Machine, busy: Floats) -> Floats:
    """Keys and values travel round the ring, forward once and backward twice, alongside attention.

    Source: Liu et al. 2023, arXiv:2310.01889.
    """
    model = workload.architecture
    keys = 2.0 * model.kv_heads * model.head / inner.tensor_U
    tokens = inner.micro_U * workload.sequence_length
    moved = ring_s(
        machine,
        Group(inner.context_U, inner.tensor_U, world=inner.world_U),
        tokens * keys * workload.precision.value_bytes,
        passes=GATHER,
    )
    return np.asarray(np.maximum(3.0 * moved - _RING_HIDING * busy, _RING_EXPOSED * moved))


_RING_HIDING, _RING_EXPOSED = 0.3, 0.1
"""Part of a layer's computing that hides the ring, and least part of one way round that nothing
hides; round numbers, with which ``Physics`` was fitted."""


def _routing_s(
    workload: Workload,
    inner: InnerLayouts,
    machine: Machine,
    passes: Floats,
    compute: Floats,
    experts: Experts | None,
) -> Floats:
    """Tokens go to their experts and come back (Lepikhin et al. 2020, arXiv:2006.16668).

    Across domains this goes on alongside the computing of another micro-batch if the training code
    does so (Megatron-Core's ``overlap_moe_expert_parallel_comm``), and slows it.
    """
    if experts is None:
        return np.zeros(len(inner.tensor_U))
    group = Group(inner.expert_U, inner.tensor_U, world=inner.world_U)
    by_domain = routes_by_domain(workload)
    narrower = (experts.width or workload.architecture.hidden) / workload.architecture.hidden
    sent = _activation_bytes(workload, inner) / np.where(inner.sequence_U, inner.tensor_U, 1)
    once = all_to_all_s(
        machine,
        group,
        sent * narrower,
        copies=experts.per_token,
        is_forwarded=by_domain,
        most_domains=_most_domains(experts, domains(machine, group)),
    )
    ways = 2.0 * passes
    if stops_early(workload.software):  # nothing reads what came back in a repeated pass
        ways = ways - (inner.recompute_U == FULL)
    moved = ways * once
    if not workload.software.hides_routing:
        return moved
    slowed = machine.physics.routing_units / machine.accelerator.multiprocessors
    beside = exposed_s(moved, compute, machine.physics, slowed)
    return np.where(domains(machine, group) > 1, np.minimum(moved, beside), moved)


def _most_domains(experts: Experts, domains_U: Floats) -> Floats | float:
    """Domains that hold the groups of one token's experts (DeepSeek-AI 2024, section 2.1.2)."""
    if experts.groups == 1:
        return np.inf
    return experts.chosen_groups * np.maximum(1.0, domains_U / experts.groups)


def _gather_s(
    workload: Workload,
    inner: InnerLayouts,
    machine: Machine,
    compute: Floats,
    experts: Experts | None,
) -> Floats:
    """Sharded weights are gathered in both passes, and gradients scattered.

    This goes on alongside the computing of other layers, which it slows (Rajbhandari et al. 2020,
    "ZeRO", section 7.2.2).
    """
    if not inner.sharded_U.any():
        return np.zeros(len(inner.tensor_U))
    model = workload.architecture
    dense = dense_layer_weights(model) if experts is None else shared_weights(model, experts)
    routed = 0 if experts is None else expert_weights(model, experts)
    owners = np.where(inner.sharded_U, inner.data_U * inner.context_U, 1)
    pieces = 1 if has_flat_gathers(workload.software) else GATHERED_MATRICES

    def of(weights: Floats | int, apart: Ints) -> Floats:
        ranks, stride = np.maximum(1, owners // apart), inner.tensor_U * apart
        group = Group(ranks, stride, world=inner.world_U)
        size = weights / inner.tensor_U * workload.frozen_matrix_bytes
        return ring_s(machine, group, size, passes=GATHER, pieces=pieces)

    moved = of(dense, np.ones_like(owners))
    if routed:
        moved = moved + of(routed / inner.expert_U, inner.expert_U)
    moved = moved * (2.0 + trained_share(workload))
    return exposed_s(moved, compute, machine.physics)


def _ends(
    workload: Workload, inner: InnerLayouts, machine: Machine, kernels: Kernels
) -> tuple[Floats, Floats, Floats]:
    """Embedding on the first stage; logits and loss on the last one.

    An encoder-decoder has logits only for the decoder's tokens.
    """
    model, seq = workload.architecture, workload.sequence_length
    core, wide, passes = kernels.core, kernels.widening, workload.software.loss_passes
    every = np.asarray(inner.micro_U * seq / inner.context_U, np.float64)
    tokens = every * (workload.logit_tokens / seq)
    words = model.vocabulary / inner.tensor_U
    logits = (
        core.product_s(tokens, words, model.hidden)
        + core.product_s(tokens, model.hidden, words)
        + core.product_s(words, model.hidden, tokens)
    )
    is_narrow = core.precision.value_bytes == 2 and not core.accelerator.is_cpu
    if is_eager(workload.software) and is_narrow:
        logits = logits / np.where(words % _ALIGNED, _UNALIGNED, 1.0)
    loss = core.traffic_s(tokens * words * (12.0 if is_compiled(workload.software) else passes), 8)
    embedding = core.traffic_s(every * model.hidden * 16.0 * wide, 6)
    if sums_shards(workload.software):
        held = words * model.hidden * (0.5 if model.tied_embeddings else 1.0)
        tables_s = core.traffic_s(held * table_bytes(workload))
        embedding, loss = embedding + tables_s, loss + tables_s
    flops = 6.0 * tokens * model.hidden * words
    return embedding, logits + loss, flops / core.peak_flops_per_s


def rank_share(spec: ModelSpec, inner: InnerLayouts) -> Floats:
    """Part of a profiled model's computing that a rank does of its micro-batch.

    Tensor ranks share the work between columns and rows, with sequence parallelism all of a block;
    context ranks share everything. Expert ranks do as much as without them.
    """
    seconds, split_s = piece_seconds(spec)
    repeated = repeated_names(spec)
    total = sum(block.count * seconds(block) for block in spec.blocks)
    split = sum(block.count * split_s(block) for block in spec.blocks)
    blocks = sum(block.count * seconds(block) for block in spec.blocks if block.name in repeated)
    outside = sum(b.count * split_s(b) for b in spec.blocks if b.name not in repeated)
    shared_U = np.where(inner.sequence_U, blocks + outside, split)
    less_U = shared_U / (total or 1.0) * (1.0 - 1.0 / inner.tensor_U)
    return np.asarray((1.0 - less_U) / inner.context_U)


def weight_share(spec: ModelSpec, inner: InnerLayouts) -> Floats:
    """Part of a profiled model's weights that its tensor and expert ranks have."""
    blocks, total = spec.blocks, spec.parameters or 1
    split = sum(block.count * (block.split.parameters if block.split else 0) for block in blocks)
    routed = sum(block.count * block.expert_parameters for block in blocks)
    less_U = split / total * (1.0 - 1.0 / inner.tensor_U)
    return np.asarray(1.0 - less_U - routed / total * (1.0 - 1.0 / inner.expert_U))


def joining_s(
    spec: ModelSpec, inner: InnerLayouts, network: Network, value_bytes: float
) -> Floats:
    """Seconds in which ranks join their shares of one micro-batch of a profiled model.

    As ``runtime/parallel`` does: rows add up their outputs, columns the gradients of their input;
    under sequence parallelism tokens are gathered before columns and scattered after rows. Context
    ranks gather keys and values of each block, expert ranks send tokens there and back.
    """
    tokens_U = inner.micro_U * (spec.sequence_length or 0) / inner.context_U
    hidden_U = tokens_U * ((spec.hidden_size or 0) * value_bytes)
    passes_U = np.where(inner.recompute_U == FULL, 2.0, 1.0)
    total = np.zeros(len(inner.micro_U))
    for block in spec.blocks:
        if block.split is not None:
            total = total + _split_s(block, inner, network, hidden_U, passes_U)
        if block.experts_per_token:
            # Counts, tokens and weights there, tokens back; backward without the counts.
            starts_U = block.count * (4.0 * passes_U + 3.0)
            routed_U = block.count * 2.0 * (passes_U + 1.0) * hidden_U * block.experts_per_token
            there_s = network.rings_s(inner.expert_U, starts_U, routed_U)
            total = total + np.where(inner.expert_U > 1, there_s, 0.0)
    heads = (spec.kv_heads or 0) * (spec.head_size or 0) or spec.hidden_size or 0
    keys_U = inner.micro_U * (spec.sequence_length or 0) * (2.0 * heads * value_bytes)
    repeated = repeated_names(spec)
    layers = float(sum(block.count for block in spec.blocks if block.name in repeated))
    scatters = GATHER if network.overlaps else ALL_REDUCE
    moved_U = layers * keys_U / inner.tensor_U * (passes_U + scatters)
    shared = network.rings_s(inner.context_U, layers * (passes_U + 1.0), moved_U)
    return np.asarray(total + np.where(inner.context_U > 1, shared, 0.0))


def _split_s(
    block: BlockSpec, inner: InnerLayouts, network: Network, hidden_U: Floats, passes_U: Floats
) -> Floats:
    assert block.split is not None
    columns, rows = float(block.split.columns), float(block.split.rows)
    plain_U = rows * passes_U + columns
    gathers_U = np.where(inner.sequence_U, rows * (passes_U + 1.0), 0.0)
    moved_U = (plain_U * ALL_REDUCE + gathers_U * GATHER) * hidden_U
    if network.overlaps:  # a scatter is half of a reduction
        moved_U = moved_U - np.where(inner.sequence_U, rows * passes_U * GATHER, 0.0) * hidden_U
    joined = network.rings_s(inner.tensor_U, plain_U + gathers_U, moved_U)
    return np.asarray(np.where(inner.tensor_U > 1, block.count * joined, 0.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HeldValues:
    """Counts of a profiled model on the rank that has most of each.

    Attributes:
        values_C: weights that data-parallel ranks share.
        trained_C: weights with gradients.
        pieces_C: parts of the model, block by block.
        repeated_C: pieces in lists of equal blocks.
        whole_C: weights of blocks that tensor ranks do not split.
    """

    values_C: Floats
    trained_C: Floats
    pieces_C: Floats
    repeated_C: Floats
    whole_C: Floats

    @staticmethod
    def of(spec: ModelSpec, table: CandidateTable) -> HeldValues:
        """Counts of each row; experts count for the part that other ranks have, too."""
        columns, pieces = LayoutColumns.from_table(table), StagePieces.of(spec, table)
        copies_C = np.maximum(1, columns.shards_C // columns.expert_C)
        again_C = ring_share(copies_C) / np.maximum(ring_share(columns.shards_C), 1e-9)

        def most_values(counts: LocalWeights) -> Floats:
            return np.asarray((counts.shared_SC + counts.experts_SC * again_C).max(axis=0))

        split_SC = pieces.split_total(lambda part: part.parameters)
        return HeldValues(
            values_C=most_values(stage_weights(pieces, columns, trained=False)),
            trained_C=most_values(stage_weights(pieces, columns, trained=True)),
            pieces_C=pieces.total(lambda block: 1.0).max(axis=0),
            repeated_C=pieces.total(lambda block: float(block.count > 1)).max(axis=0),
            whole_C=(pieces.repeated_total(lambda b: b.parameters) - split_SC).max(axis=0),
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankShares:
    """Parts of a profiled model on one rank; 1 if ranks differ only in their data.

    Attributes:
        slowest_C: part of a micro-batch's time, on the slowest stage.
        trained_C: part of the weights with gradients, on the rank with most, before ZeRO.
    """

    slowest_C: Floats
    trained_C: Floats

    @staticmethod
    def of(spec: ModelSpec, table: CandidateTable) -> RankShares:
        """Shares of each row."""
        columns, pieces = LayoutColumns.from_table(table), StagePieces.of(spec, table)
        seconds, split_s = piece_seconds(spec)
        apart_C = 1.0 - 1.0 / columns.tensor_C
        stage_SC = pieces.total(seconds) - pieces.total(split_s) * apart_C
        total_C = np.maximum(stage_SC.sum(axis=0), np.finfo(np.float64).tiny)
        trained_C = stage_weights(pieces, columns, trained=True).all_SC.max(axis=0)
        return RankShares(
            slowest_C=np.where(columns.pipeline_C > 1, stage_SC.max(axis=0) / total_C, 1.0),
            trained_C=trained_C / max(1, spec.trainable_parameters),
        )
