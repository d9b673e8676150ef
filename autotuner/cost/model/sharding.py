"""Seconds of a step's end: gradients of replicas, and the optimizer.

Not: gathers of sharded weights, which each layer does (inner).

Shapes: C = candidates.
"""

from __future__ import annotations

import numpy as np

from ...table import Floats
from .columns import LayoutColumns
from .communication import ALL_REDUCE, GATHER, Group, ring_s
from .hardware import Machine
from .physics import Physics
from .weights import (
    all_layers,
    dense_layer_weights,
    embedding_weights,
    expert_layers,
    expert_weights,
    shared_weights,
)
from .workload import Workload

_HOST_STATE_BYTES = 28.0
"""Read and written for each weight by Adam on the host."""


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


def exchange_s(
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
    replicas = layouts.data_C * layouts.context_C
    weights = rank_weights(layouts, workload) * workload.trained
    once = ring_s(
        machine,
        physics,
        Group(ranks=replicas, stride=layouts.tensor_C),
        weights * workload.gradient_bytes_each,
        passes=ALL_REDUCE,
    )
    more = np.where(layouts.zero_C == 2, 0.5 * (layouts.accumulation_C - 1.0), 0.0)
    whole = np.where(layouts.zero_C >= 3, 0.0, once * (1.0 + more))
    if workload.overlapped_reduce:
        whole = whole - np.minimum(0.5 * whole, physics.shard_overlap * backward_s_C)
    words = embedding_weights(workload.architecture)
    if workload.architecture.tied_embeddings and (layouts.pipeline_C > 1).any():
        whole = whole + _tied_s(layouts, workload, machine, physics, words)
    if (layouts.zero_C >= 3).any():
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
        words * workload.trained * workload.gradient_bytes_each / layouts.tensor_C,
        passes=ALL_REDUCE,
    )


def _outside_s(
    layouts: LayoutColumns, workload: Workload, machine: Machine, physics: Physics, words: int
) -> Floats:
    """Sharded embeddings are gathered twice, their gradients scattered, in each micro-batch.

    Half of it is hidden behind other work.
    """
    passes = 2.0 + workload.trained
    gathered = ring_s(
        machine,
        physics,
        Group(
            ranks=np.where(layouts.zero_C >= 3, layouts.data_C * layouts.context_C, 1),
            stride=layouts.tensor_C,
        ),
        np.asarray(passes * words * workload.weight_bytes_each),
        passes=GATHER,
    )
    return np.asarray(0.5 * gathered * layouts.accumulation_C)


def fetch_s(layouts: LayoutColumns, workload: Workload, physics: Physics) -> Floats:
    """Offloaded weights come from the host before each pass, gradients go there; nothing hides it.

    Each rank moves its share, in each micro-batch. Source: Rajbhandari et al. 2021,
    "ZeRO-Infinity", section 6.1.1 (bandwidth-centric partitioning).
    """
    if not layouts.weights_away_C.any():
        return np.zeros(())
    share = rank_weights(layouts, workload) / (layouts.data_C * layouts.context_C)
    moved = share * workload.weight_bytes_each * (2.0 + workload.trained)
    once = moved / physics.host_link_bytes_per_s
    return np.asarray(layouts.weights_away_C * once * layouts.accumulation_C)


def update_s(
    layouts: LayoutColumns, workload: Workload, machine: Machine, physics: Physics
) -> Floats:
    """Adam reads and writes its states once, on the host where they are offloaded.

    Besides, what a step costs however small it is. Source of the bytes: Rajbhandari et al. 2020,
    "ZeRO", section 3.1.
    """
    weights = rank_weights(layouts, workload) * workload.trained
    shards = np.where(layouts.zero_C >= 1, layouts.data_C * layouts.context_C, 1)
    memory = machine.accelerator.memory_bytes_per_s * physics.memory_efficiency
    on_device = weights / shards * physics.optimizer_bytes / memory
    if not layouts.offload_C.any():
        return np.asarray(on_device + physics.step_s)
    per_rank = physics.host_bytes_per_s / machine.gpus_per_node
    on_host = (
        weights / shards * (_HOST_STATE_BYTES / per_rank + 6.0 / physics.host_link_bytes_per_s)
    )
    return np.asarray(np.where(layouts.offload_C, on_host, on_device) + physics.step_s)
