"""A time that no candidate can beat, for each candidate. Not: a prediction.

Every rank must do its share of the matrix products at the datasheet's rate and update its weights
at the memory's, or send its share of the gradients at the full rate of links and cards, all of it
perfectly overlapped (Williams et al. 2009, "Roofline"). Pipelines add what no schedule fills.
Shapes: C = candidates.
"""

from __future__ import annotations

import numpy as np

from ...table import Floats
from .columns import FULL, LayoutColumns
from .hardware import Machine
from .kernels import peak_flops_per_s
from .sharding import rank_weights
from .weights import (
    all_layers,
    dense_layer_weights,
    embedding_weights,
    expert_layers,
    perceptron_weights,
    shared_weights,
)
from .workload import Workload, stacks

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
    shards = np.where(
        layouts.zero_C >= 1, layouts.data_C * layouts.context_C, np.ones_like(layouts.data_C)
    )
    update = _UPDATE_BYTES * weights * workload.trained / shards
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
    keys = min(workload.seq, model.window or workload.seq)
    seen = keys / 2 if model.causal else keys
    scores = 4.0 * all_layers(model) * seen * model.heads * model.head
    return 2.0 * (body + model.vocabulary * model.hidden) + scores


def _compute_s(layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
    """Products at the datasheet's rate; recomputation of only some layers is not counted."""
    rate = peak_flops_per_s(machine.accelerator, workload.precision)
    again = (layouts.recompute_C == FULL) & (layouts.recomputed_C < 0)
    passes = 2.0 + workload.trained + again
    samples = layouts.micro_C * layouts.accumulation_C
    inside = layouts.tensor_C * layouts.context_C * layouts.pipeline_C
    head = 2.0 * workload.architecture.vocabulary * workload.architecture.hidden
    body = sum(
        share * stack.seq * (forward_flops_per_token(stack) - head)
        for share, stack in stacks(workload)
    )
    logits = workload.said * head
    flops = samples * (passes * body + (2.0 + workload.trained) * logits) / inside
    count = np.maximum(layouts.accumulation_C, 1.0)
    bubble = (layouts.pipeline_C - 1) / (layouts.virtual_C * count)
    return np.asarray(flops / rate * (1.0 + _UNFILLED * bubble))


def _network_s(layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
    """Each replica's gradients leave a rank once and come back once, over link or cards."""
    replicas = layouts.data_C * layouts.context_C
    weights = rank_weights(layouts, workload) - embedding_weights(workload.architecture)
    moved = np.maximum(weights, 0.0) * workload.trained * workload.gradient_bytes_each
    share = (replicas - 1) / np.maximum(replicas, 1)
    cards = machine.node_network_bytes_per_s / machine.gpus_per_node
    fastest = max(machine.link.bytes_per_s, cards)
    return np.asarray(2.0 * share * moved / fastest)
