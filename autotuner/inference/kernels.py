"""Seconds of kernels: products, all-reduces, a host that launches them, and one more token.

For a token of each answer weights and cache are read once.

Shapes: C = candidates.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.core import Architecture

from ..cost import (
    ALL_REDUCE,
    GATHER,
    Group,
    InnerLayouts,
    Kernels,
    Machine,
    StageSends,
    link_s,
    ring_s,
)
from ..layers import (
    Product,
    attention_kinds,
    attention_products,
    expert_layers,
    expert_products,
    mlp_products,
)
from ..space import Floats, Ints
from .engines import EngineHabits
from .generation import Generation, PointColumns

FP32_STATE_BYTES = 4.0
"""A recurrent state is kept in fp32."""
_SMALLEST_TILE = 0.55
"""Rate of the narrowest tiles over the rate of the widest, as in training's products."""


_CPU_LAYER_S = 3.3e-4
"""Python and the start of all kernels of a decoder layer of transformers without gradients: 0.32
ms (GPT-2) and 0.35 ms (Llama) for a tiny layer (``benchmarks/cpu_constants.py``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """A GPU of a machine, and the engine on it."""

    machine: Machine
    engine: EngineHabits
    generation: Generation

    @property
    def kernels(self) -> Kernels:
        """In the precision of the products."""
        return Kernels(
            accelerator=self.machine.accelerator,
            physics=self.machine.physics,
            precision=self.generation.precision,
        )

    @property
    def nccl(self) -> Machine:
        """The machine with the protocols for short messages, if the engine has them."""
        link = self.machine.link
        if not self.engine.short_messages:
            return self.machine
        return replace(self.machine, link=replace(link, rates=link.rates + link.short_rates))

    @property
    def is_cpu(self) -> bool:
        """True if it is a process of a CPU."""
        return self.machine.accelerator.is_cpu

    def products_s(self, products: Iterable[Product]) -> Floats:
        """Products one after the other.

        A product of few rows reads its weights once, whatever its rows, and computes as narrow
        tiles do: all multiprocessors share it along k.
        """
        kernels = self.kernels
        gpu, physics, size = kernels.accelerator, kernels.physics, self.generation.weight_bytes
        rate = kernels.reached_flops_per_s * _SMALLEST_TILE
        stream = gpu.memory_bytes_per_s * (gpu.streamed or physics.memory_efficiency)
        total = np.zeros(())
        if self.is_cpu:
            return sum((kernels.product_s(*product) for product in products), total)
        for m, n, k, count in products:
            moved = (
                size * (np.multiply(m, k) + np.multiply(k, n)) + 2.0 * np.multiply(m, n)
            ) * count
            flops = 2.0 * np.multiply(m, n) * k * count
            thin = np.maximum(moved / stream, flops / rate) + physics.kernel_s
            wide = np.maximum(moved / stream, kernels.product_s(m, n, k, count))
            total = total + np.minimum(thin, wide)
        return total

    def all_reduce_s(self, tensor_C: Ints, buffer_bytes: Floats) -> Floats:
        """An all-reduce of tensor ranks by the quickest way that the engine has."""
        machine, link = self.machine, self.machine.link
        group = Group(ranks=tensor_C, stride=np.ones_like(tensor_C))
        found = ring_s(self.nccl, group, buffer_bytes)
        if not self.engine.one_shot_bytes or not link.peer_rates:
            return found
        peers = link_s(replace(link, rates=link.peer_rates), tensor_C, buffer_bytes, ALL_REDUCE)
        reaches = (tensor_C <= machine.domain) & (buffer_bytes < self.engine.one_shot_bytes)
        return np.where(reaches & (tensor_C > 1), np.minimum(found, peers), found)

    def sends(self, points: PointColumns, buffer_bytes: Floats) -> StageSends:
        """Between the stages; processes of a CPU have a link's latency."""
        stages_C, tensor_C = points.pipeline_C, points.tensor_C
        if not self.is_cpu:
            return StageSends.between(stages_C, tensor_C, self.machine, buffer_bytes)
        pairs_C = np.full_like(tensor_C, 2)
        return StageSends.alike(
            stages_C, link_s(self.nccl.link, pairs_C, 2.0 * buffer_bytes, GATHER)
        )

    def launched_s(self, device_s: Floats) -> Floats:
        """A layer whose kernels a host launches ahead of a GPU; of a CPU it is the device."""
        if not self.engine.is_eager:
            return device_s
        if self.is_cpu:
            return device_s + _CPU_LAYER_S
        host_s = self.machine.physics.layer_forward_s
        power = self.machine.physics.host_sharpness
        return np.asarray((device_s**power + host_s**power) ** (1.0 / power))


def layouts_of(points: PointColumns) -> InnerLayouts:
    """Points as the layers of a training know them, without context and expert ranks."""
    one, no = np.ones_like(points.tensor_C), np.zeros_like(points.tensor_C)
    return InnerLayouts(
        tensor_U=points.tensor_C,
        context_U=one,
        expert_U=one,
        micro_U=points.batch_C,
        recompute_U=no,
        sequence_U=no.astype(np.bool_),
        sharded_U=no.astype(np.bool_),
        data_U=one,
        world_U=points.gpus_C,
    )


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
