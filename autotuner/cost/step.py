"""Seconds of one optimizer step for each candidate, part by part. Not: memory, nor what is valid.

Shapes: C = candidates (or axes that broadcast), U = distinct inner layouts. A micro-batch of one
layer is worked out once for each distinct inner layout; candidates gather from there, so that
millions of them are cheap.
Ranks are ordered tensor, context, data, pipeline, as Megatron-LM places them.

Shapes: C = candidates.

Not: gathers of sharded weights, which each layer does (inner).

Shapes: C = candidates.

Every rank must do its share of the matrix products at the datasheet's rate and update its weights
at the memory's, or send its share of the gradients at the full rate of links and cards, all of it
perfectly overlapped (Williams et al. 2009, "Roofline"). Pipelines add what no schedule fills.
Shapes: C = candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from autoconf_launch.core import Workload

from ..space import Floats, Ints
from .hardware import DEFAULT_PHYSICS, Machine, Physics
from .inner import ALL_REDUCE, GATHER, Group, inner_times, ring_s, send_s
from .layer import (
    Kernels,
    all_layers,
    dense_layer_weights,
    embedding_weights,
    expert_layers,
    expert_weights,
    peak_flops_per_s,
    perceptron_weights,
    shared_weights,
    stacks,
)
from .layout_columns import FULL, NONE, LayoutColumns, distinct
from .model_state import trained_share
from .training import is_compiled, overlaps_reduction

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


_HOST_STATE_BYTES = 28.0
"""Read and written for each weight by Adam on the host."""
_GRADIENT_BYTES = 2
"""Size of a gradient on its way between replicas."""


def rank_weights(layouts: LayoutColumns, workload: Workload) -> Floats:
    """Weights of the fullest rank before data-parallel sharding."""
    model = workload.architecture
    sparse = expert_layers(model)
    body = (all_layers(model) - sparse) * dense_layer_weights(model) / layouts.pipeline_C
    if model.experts is not None:
        shared = shared_weights(model, model.experts)
        routed = expert_weights(model, model.experts) / layouts.expert_C
        body = body + sparse * (shared + routed) / layouts.pipeline_C
    alone = 1 if model.tied_embeddings else 2
    ends = np.where(layouts.pipeline_C > 1, 1, alone) * embedding_weights(model)
    return np.asarray((body + ends) / layouts.tensor_C)


def gradient_exchange_s(
    layouts: LayoutColumns,
    workload: Workload,
    machine: Machine,
    physics: Physics,
    *,
    backward_s_C: Floats,
) -> Floats:
    """Gradients of replicas, once a step; in stage 2 for each micro-batch.

    With tied embeddings the first and the last stage sum theirs (Narayanan et al. 2021,
    section 4).
    """
    replicas = layouts.shards_C
    weights = rank_weights(layouts, workload) * trained_share(workload)
    once = ring_s(
        machine,
        physics,
        Group(ranks=replicas, stride=layouts.tensor_C),
        weights * _GRADIENT_BYTES,
        passes=ALL_REDUCE,
    )
    more = np.where(layouts.zero_stage_C == 2, 0.5 * (layouts.accumulation_C - 1.0), 0.0)
    whole = np.where(layouts.zero_stage_C >= 3, 0.0, once * (1.0 + more))
    if overlaps_reduction(workload.software):
        whole = whole - np.minimum(0.5 * whole, physics.shard_overlap * backward_s_C)
    words = embedding_weights(workload.architecture)
    if workload.architecture.tied_embeddings and (layouts.pipeline_C > 1).any():
        whole = whole + _tied_s(layouts, workload, machine, physics, words)
    if (layouts.zero_stage_C >= 3).any():
        whole = whole + _outside_s(layouts, workload, machine, physics, words)
    return np.asarray(whole)


def _tied_s(
    layouts: LayoutColumns, workload: Workload, machine: Machine, physics: Physics, words: int
) -> Floats:
    """The first and the last stage sum the gradients of the embeddings that they share."""
    return ring_s(
        machine,
        physics,
        Group(
            ranks=np.where(layouts.pipeline_C > 1, 2, 1),
            stride=layouts.tensor_C * layouts.context_C * layouts.data_C,
        ),
        words * trained_share(workload) * _GRADIENT_BYTES / layouts.tensor_C,
        passes=ALL_REDUCE,
    )


def _outside_s(
    layouts: LayoutColumns, workload: Workload, machine: Machine, physics: Physics, words: int
) -> Floats:
    """Sharded embeddings are gathered twice, their gradients scattered, in each micro-batch.

    Half of it is hidden behind other work.
    """
    passes = 2.0 + trained_share(workload)
    gathered = ring_s(
        machine,
        physics,
        Group(
            ranks=np.where(layouts.zero_stage_C >= 3, layouts.shards_C, 1),
            stride=layouts.tensor_C,
        ),
        np.asarray(passes * words * workload.precision.value_bytes),
        passes=GATHER,
    )
    return np.asarray(0.5 * gathered * layouts.accumulation_C)


def fetch_s(layouts: LayoutColumns, workload: Workload, physics: Physics) -> Floats:
    """Offloaded weights come from the host before each pass, gradients go there; nothing hides it.

    Each rank moves its share, in each micro-batch. Source: Rajbhandari et al. 2021,
    "ZeRO-Infinity", section 6.1.1 (bandwidth-centric partitioning).
    """
    if not layouts.are_weights_away_C.any():
        return np.zeros(())
    share = rank_weights(layouts, workload) / layouts.shards_C
    moved = share * workload.precision.value_bytes * (2.0 + trained_share(workload))
    once = moved / physics.host_link_bytes_per_s
    return np.asarray(layouts.are_weights_away_C * once * layouts.accumulation_C)


def update_s(
    layouts: LayoutColumns, workload: Workload, machine: Machine, physics: Physics
) -> Floats:
    """Adam reads and writes its states once, on the host where they are offloaded.

    Besides, what a step costs however small it is. Source of the bytes: Rajbhandari et al. 2020,
    "ZeRO", section 3.1.
    """
    weights = rank_weights(layouts, workload) * trained_share(workload)
    shards = np.where(layouts.zero_stage_C >= 1, layouts.shards_C, 1)
    memory = machine.accelerator.memory_bytes_per_s * physics.memory_efficiency
    on_device = weights / shards * physics.optimizer_bytes / memory
    if not layouts.offload_C.any():
        return np.asarray(on_device + physics.step_s)
    per_rank = physics.host_bytes_per_s / machine.gpus_per_node
    on_host = (
        weights / shards * (_HOST_STATE_BYTES / per_rank + 6.0 / physics.host_link_bytes_per_s)
    )
    return np.asarray(np.where(layouts.offload_C, on_host, on_device) + physics.step_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepParts:
    """Seconds that add up to one step.

    ``ideal_s_C`` is the model's operations at the datasheet's rate; the others are what is lost,
    in the order in which it is lost.
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
        for part in fields(self):
            total = total + getattr(self, part.name)
        return np.asarray(total, np.float64)


def step_parts(
    layouts: LayoutColumns,
    workload: Workload,
    machine: Machine,
    physics: Physics = DEFAULT_PHYSICS,
) -> StepParts:
    """All parts for each candidate.

    Where only some layers of a stage recompute, the step lies between those where none and all do.
    """
    if not (partial := layouts.recompute_layers_C >= 0).any():
        return _parts(layouts, workload, machine, physics)
    share = np.where(
        partial,
        recomputed_share(
            layouts.recompute_layers_C, layouts.pipeline_C, all_layers(workload.architecture)
        ),
        1.0,
    )
    whole = _parts(layouts, workload, machine, physics)
    without = replace(layouts, recompute_C=np.where(partial, NONE, layouts.recompute_C))
    none = _parts(without, workload, machine, physics)
    names = [part.name for part in fields(StepParts)]
    return StepParts(**{x: between(share, getattr(whole, x), getattr(none, x)) for x in names})


def between(share: Floats, whole_s: Floats, none_s: Floats) -> Floats:
    """Seconds where a share of the layers recomputes, from those where all and none do."""
    return np.asarray(share * whole_s + (1.0 - share) * none_s)


def recomputed_share(recomputed_C: Ints, pipeline_C: Ints, layers: int) -> Floats:
    """Part of the layers of a stage that full recomputation of so many of them covers."""
    stage = np.maximum(layers / pipeline_C, 1.0)
    return np.asarray(np.clip(recomputed_C / stage, 0.0, 1.0))


def _parts(
    layouts: LayoutColumns, workload: Workload, machine: Machine, physics: Physics
) -> StepParts:
    kernels = Kernels(
        accelerator=machine.accelerator,
        physics=physics,
        precision=workload.precision,
        transformer_engine=workload.software.transformer_engine,
    )
    inner, which = distinct(layouts)
    layer = inner_times(workload, inner, machine, kernels)
    layers = all_layers(workload.architecture)
    pace = layers / layouts.pipeline_C * layouts.accumulation_C
    first, last = layer.first_s_U[which], layer.last_s_U[which]
    host = physics.micro_batch_s * (0.5 if is_compiled(workload.software) else 1.0)
    stages = stage_times(
        layouts,
        layers,
        layer=LayerSeconds(mean_s_C=layer.layer_s_U[which], slowest_s_C=layer.slowest_s_U[which]),
        first_s_C=first,
        last_s_C=last,
        send_s_C=_send_s(layouts, workload, machine, physics),
    )
    running, sends = schedule_s(
        layouts, stages, exposed_share=1.0 - physics.point_to_point_overlap
    )
    even = (layers * layer.layer_s_U[which] + first + last) / layouts.pipeline_C
    busy = pace * layer.busy_s_U[which] + (
        layouts.accumulation_C / layouts.pipeline_C * (first + last)
    )
    ideal = (
        pace * layer.ideal_s_U[which]
        + layouts.accumulation_C / layouts.pipeline_C * layer.ends_ideal_s_U[which]
    )
    exposed = pace * layer.exposed_s_U[which] + sends
    exchange = gradient_exchange_s(layouts, workload, machine, physics, backward_s_C=0.6 * even)
    return StepParts(
        ideal_s_C=ideal,
        kernels_s_C=busy - ideal,
        recompute_s_C=pace * layer.again_s_U[which],
        launch_s_C=pace * layer.launch_s_U[which] + host * layouts.accumulation_C,
        bubble_s_C=running - sends - even * layouts.accumulation_C,
        communication_s_C=exposed + exchange + fetch_s(layouts, workload, physics),
        update_s_C=update_s(layouts, workload, machine, physics),
    )


def _send_s(
    layouts: LayoutColumns, workload: Workload, machine: Machine, physics: Physics
) -> Floats:
    """Activations of one micro-batch go to the next stage, cut over tensor-parallel ranks.

    Source: Narayanan et al. 2021, section 4.1, scatter and gather.
    """
    tokens = (
        layouts.micro_batch_C * workload.sequence_length / (layouts.context_C * layouts.tensor_C)
    )
    sent = tokens * workload.architecture.hidden * workload.precision.value_bytes
    stride = layouts.tensor_C * layouts.context_C * layouts.data_C
    return send_s(machine, physics, stride=stride, buffer_bytes=np.asarray(sent, np.float64))


def concatenate(parts: Sequence[StepParts]) -> StepParts:
    """Rows of several calls, one after the other."""
    names = [part.name for part in fields(StepParts)]
    empty = [np.zeros(0)]
    return StepParts(
        **{name: np.concatenate([getattr(one, name) for one in parts] or empty) for name in names}
    )


_UPDATE_BYTES = 10.0
"""Least traffic of one update of a weight: weight and gradient read and weight written in 16 bits,
and two 8-bit moments read and written."""
_UNFILLED = 0.5
"""Part of 1F1B's bubble that stays where backward passes are cut in two (Qi et al. 2023,
arXiv:2401.10241, the schedule with the memory of 1F1B leaves a third of it or more)."""


def least_step_s(layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
    """Seconds below which no step of these layouts can come."""
    compute = _compute_s(layouts, workload, machine)
    weights = rank_weights(layouts, workload)
    shards = np.where(layouts.zero_stage_C >= 1, layouts.shards_C, np.ones_like(layouts.data_C))
    update = _UPDATE_BYTES * weights * trained_share(workload) / shards
    update_s = np.where(layouts.offload_C, 0.0, update / machine.accelerator.memory_bytes_per_s)
    return np.asarray(np.maximum(compute + update_s, _network_s(layouts, workload, machine)))


def forward_flops_per_token(workload: Workload) -> float:
    """Products of one token's forward pass; attention looks back over half the sequence."""
    model = workload.architecture
    sparse = expert_layers(model)
    body = (all_layers(model) - sparse) * dense_layer_weights(model)
    if model.experts is not None:
        chosen = model.experts.per_token * perceptron_weights(model, model.experts.ffn)
        body += sparse * (shared_weights(model, model.experts) + chosen)
    keys = min(workload.sequence_length, model.window or workload.sequence_length)
    seen = keys / 2 if model.causal else keys
    scores = 4.0 * all_layers(model) * seen * model.heads * model.head
    return 2.0 * (body + model.vocabulary * model.hidden) + scores


def _compute_s(layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
    """Products at the datasheet's rate; recomputation of only some layers is not counted."""
    rate = peak_flops_per_s(machine.accelerator, workload.precision)
    again = (layouts.recompute_C == FULL) & (layouts.recompute_layers_C < 0)
    passes = 2.0 + trained_share(workload) + again
    samples = layouts.micro_batch_C * layouts.accumulation_C
    inside = layouts.tensor_C * layouts.context_C * layouts.pipeline_C
    head = 2.0 * workload.architecture.vocabulary * workload.architecture.hidden
    body = sum(
        one.share * one.workload.sequence_length * (forward_flops_per_token(one.workload) - head)
        for one in stacks(workload)
    )
    logits = workload.logit_tokens * head
    flops = samples * (passes * body + (2.0 + trained_share(workload)) * logits) / inside
    count = np.maximum(layouts.accumulation_C, 1.0)
    bubble = (layouts.pipeline_C - 1) / (layouts.virtual_C * count)
    return np.asarray(flops / rate * (1.0 + _UNFILLED * bubble))


def _network_s(layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
    """Each replica's gradients leave a rank once and come back once, over link or cards."""
    replicas = layouts.shards_C
    weights = rank_weights(layouts, workload) - embedding_weights(workload.architecture)
    moved = np.maximum(weights, 0.0) * trained_share(workload) * _GRADIENT_BYTES
    share = (replicas - 1) / np.maximum(replicas, 1)
    cards = machine.node_network_bytes_per_s / machine.gpus_per_node
    fastest = max(machine.link.bytes_per_s, cards)
    return np.asarray(2.0 * share * moved / fastest)
