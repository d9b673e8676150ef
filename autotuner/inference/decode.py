"""Seconds of one more token of each answer: weights and cache are read once.

Shapes: C = candidates.
"""

from __future__ import annotations

import numpy as np

from autoconf_launch.core import Architecture

from ..cost import (
    GATHER,
    Product,
    attention_kinds,
    attention_products,
    expert_layers,
    expert_products,
    link_s,
    mlp_products,
)
from ..space import Floats
from .generation import PointColumns
from .kernels import Rank, layouts_of

FP32_STATE_BYTES = 4.0
"""A recurrent state is kept in fp32."""


def layer_step_s(points: PointColumns, rank: Rank, *, context: float) -> tuple[Floats, Floats]:
    """The mean decoder layer for one token of each sample, and only its all-reduces.

    Args:
        points: the candidates.
        rank: the computing rank.
        context: tokens that each token attends to, itself included.
    """
    model, engine, inner = rank.generation.model, rank.engine, layouts_of(points)
    tokens = points.samples_C
    attentions = 2 if model.encoder_layers else 1
    sparse = expert_layers(model) / model.layers
    total = np.zeros(len(points))
    for alike, kind in attention_kinds(model):
        projections = attention_products(kind, inner, tokens)
        total = total + alike * rank.products_s(projections)
        total = total + alike * _read_s(kind, points, rank, context)
    if model.encoder_layers:
        total = total + rank.products_s(_cross_queries(model, points))
        total = total + _keys_s(model, points, rank, float(rank.generation.input_tokens))
    if sparse < 1.0:
        total = total + (1.0 - sparse) * rank.products_s(
            mlp_products(model, inner, tokens, model.ffn)
        )
    if model.experts is not None:
        routed = expert_products(model, inner, tokens, model.experts)
        total = total + sparse * rank.products_s(routed)
    kernels = engine.small_kernels + attentions * engine.attention_kernels
    small_bytes = tokens * model.hidden * 24.0
    total = total + rank.kernels.traffic_s(small_bytes, kernels)
    total = rank.launched_s(total)
    sums = 1.0 + attentions
    buffer_C = tokens * model.hidden * rank.generation.precision.value_bytes
    joining_s = sums * rank.all_reduce_s(points.tensor_C, buffer_C)
    return total + joining_s, joining_s


def _cross_queries(model: Architecture, points: PointColumns) -> list[Product]:
    """Queries of a layer's own tokens; keys and values of the encoder's came with the prompt."""
    tokens, wide = points.samples_C, model.heads * model.head / points.tensor_C
    return [(tokens, wide, model.hidden, 1), (tokens, model.hidden, wide, 1)]


def _read_s(model: Architecture, points: PointColumns, rank: Rank, context: float) -> Floats:
    """Seconds in which a layer reads its cache or state."""
    if (state := model.state) is not None:
        heads = state.value_heads / points.tensor_C
        size = heads * state.key_head * state.value_head * FP32_STATE_BYTES
        return np.asarray(2.0 * points.batch_C * size / rank.kernels.bytes_per_s)
    return _keys_s(model, points, rank, min(context, float(model.window or context)))


def _keys_s(model: Architecture, points: PointColumns, rank: Rank, keys: float) -> Floats:
    """Keys and values are read once, and each is multiplied by the queries of its group.

    Latents are read for all heads together, and queries carry the projection from them
    (DeepSeek-AI 2024, arXiv:2405.04434, section 2.1.2).
    """
    kernels, gpu = rank.kernels, rank.machine.accelerator
    read = points.batch_C * keys * cache_width(model, points)
    heads = model.heads / points.tensor_C
    width = 2.0 * model.head
    if (latent := model.latent) is not None:
        width = 2.0 * latent.key_value_rank + latent.rope_head
    flops = 2.0 * points.batch_C * keys * heads * width
    rate = kernels.core.reached_flops_per_s * (gpu.flash or 1.0)
    moved = read * rank.generation.precision.value_bytes
    return np.asarray(np.maximum(moved / kernels.bytes_per_s, flops / rate))


def cache_width(model: Architecture, points: PointColumns) -> Floats:
    """Numbers that a rank keeps for each token of a layer that attends; latents are not split."""
    if (latent := model.latent) is not None:
        return np.full(len(points), float(latent.key_value_rank + latent.rope_head))
    return np.asarray(2.0 * np.maximum(model.kv_heads / points.tensor_C, 1.0) * model.head)


def last_s(points: PointColumns, rank: Rank) -> Floats:
    """Logits of one position, joined over tensor ranks, and the choice of a token."""
    model, tensor_C = rank.generation.model, points.tensor_C
    tokens = points.samples_C
    words = model.vocabulary / tensor_C
    logits_s = rank.products_s([(tokens, words, model.hidden, 1)])
    row_bytes = tokens * model.vocabulary * 4.0
    joined_s = link_s(rank.nccl.link, tensor_C, row_bytes, GATHER)
    chosen_s = rank.kernels.traffic_s(3.0 * row_bytes, rank.engine.step_kernels)
    return np.asarray(logits_s + np.where(tensor_C > 1, joined_s, 0.0) + chosen_s)
