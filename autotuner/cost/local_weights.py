"""How many weights a rank has on each pipeline stage. Not: their bytes.

Shapes: S = stages, C = candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoconf_launch.core import Architecture

from ..table import Floats
from .memory_layouts import MemoryLayouts
from .parameter_count import LayerWeights, ModelWeights, model_weights
from .stage_layers import Stages
from .training_setup import FrozenPart, TrainingSetup


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalWeights:
    """Counts of one rank, before ZeRO: what it computes with.

    Attributes:
        shared_SC: equal on all data-parallel ranks.
        experts_SC: equal on ranks with the same experts alone; a plain 0 without experts.
        outside_SC: of the shared ones those of embedding and head.
        layer_C: of the largest layer, experts included.
    """

    shared_SC: Floats
    experts_SC: Floats
    outside_SC: Floats
    layer_C: Floats

    @property
    def all_SC(self) -> Floats:
        """Every weight of the rank."""
        return self.shared_SC + self.experts_SC


def local_weights(weights: ModelWeights, columns: MemoryLayouts, stages: Stages) -> LocalWeights:
    """Counts on each stage; a tied matrix is on the first and on the last one."""
    tensor_C = columns.tensor_C
    shared: Floats | float = 0.0
    experts: Floats | float = 0.0
    largest: Floats | float = 0.0
    first, groups = 0, _groups(weights)
    for number, layer in groups:
        here_SC = stages.having(first, first + number) if len(groups) > 1 else stages.count_SC
        shared_C = (layer.attention + layer.mlp) / tensor_C + layer.whole
        experts_C: Floats | float = 0.0
        if layer.experts:
            experts_C = layer.experts / (tensor_C * columns.expert_C)
            experts = experts + here_SC * experts_C
        shared = shared + here_SC * shared_C
        largest, first = np.maximum(largest, shared_C + experts_C), first + number
    outside_SC = _outside(weights, columns, stages)
    return LocalWeights(
        shared_SC=shared + outside_SC,
        experts_SC=np.asarray(experts, np.float64),
        outside_SC=outside_SC,
        layer_C=np.asarray(largest, np.float64),
    )


def _groups(weights: ModelWeights) -> list[tuple[int, LayerWeights]]:
    """Runs of equal layers in order, empty ones left out."""
    runs = [
        (weights.encoder_layers, weights.encoder),
        (weights.dense_layers, weights.dense),
        (weights.repeated_layers, weights.repeated),
    ]
    return [(number, layer) for number, layer in runs if number]


def _outside(weights: ModelWeights, columns: MemoryLayouts, stages: Stages) -> Floats:
    again_C = weights.head + weights.tied_head * (columns.pipeline_C > 1)
    outside_SC = weights.embedding * stages.is_first_SC + again_C * stages.is_last_SC
    return np.asarray(outside_SC / columns.tensor_C)


def trained_weights(a: Architecture, setup: TrainingSetup) -> ModelWeights:
    """What gets gradients: all but the frozen parts, or the adapters of LoRA alone.

    Source:
        Hu et al. 2021, "LoRA", section 4.1: r (d + k) weights beside a d x k matrix.
    """
    weights = model_weights(a)
    if setup.lora_rank is not None:
        return _adapters(a, weights, setup.lora_rank)
    if not setup.frozen:
        return weights
    return ModelWeights(
        embedding=0 if FrozenPart.EMBEDDING in setup.frozen else weights.embedding,
        head=0 if FrozenPart.HEAD in setup.frozen else weights.head,
        tied_head=0 if FrozenPart.EMBEDDING in setup.frozen else weights.tied_head,
        encoder=_unfrozen(weights.encoder, setup.frozen),
        encoder_layers=weights.encoder_layers,
        dense=_unfrozen(weights.dense, setup.frozen),
        dense_layers=weights.dense_layers,
        repeated=_unfrozen(weights.repeated, setup.frozen),
        repeated_layers=weights.repeated_layers,
    )


def _unfrozen(layer: LayerWeights, frozen: frozenset[FrozenPart]) -> LayerWeights:
    attention, mlp = FrozenPart.ATTENTION in frozen, FrozenPart.MLP in frozen
    return LayerWeights(
        attention=0 if attention else layer.attention,
        mlp=0 if mlp else layer.mlp,
        experts=0 if mlp else layer.experts,
        whole=0 if attention and mlp else layer.whole,
    )


def _adapters(a: Architecture, weights: ModelWeights, rank: int) -> ModelWeights:
    def of(layer: LayerWeights, *, sparse: bool, crossed: bool) -> LayerWeights:
        queries, keys = a.heads * a.head, a.kv_heads * a.head
        attention = 2 * rank * (2 * a.hidden + queries + keys) * (2 if crossed else 1)
        matrices = 3 if a.gated else 2
        experts = a.experts if sparse else None
        ffn = experts.ffn if experts else a.ffn
        mlp = rank * (a.hidden + ffn) * matrices
        return LayerWeights(
            attention=attention,
            mlp=mlp * experts.shared if experts else mlp,
            experts=mlp * experts.count if experts else 0,
            whole=0,
        )

    crossed = a.encoder_layers > 0
    return ModelWeights(
        embedding=0,
        head=0,
        tied_head=0,
        encoder=of(weights.encoder, sparse=False, crossed=False),
        encoder_layers=weights.encoder_layers,
        dense=of(weights.dense, sparse=False, crossed=crossed),
        dense_layers=weights.dense_layers,
        repeated=of(weights.repeated, sparse=a.experts is not None, crossed=crossed),
        repeated_layers=weights.repeated_layers,
    )
