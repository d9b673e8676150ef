"""Seconds of one transformer layer on one rank for one micro-batch.

Shapes: U = distinct inner layouts. Products of a layer: Narayanan et al. 2021 (arXiv:2104.04473),
section 2.3 and appendix; bytes of the small operations: Korthikanti et al. 2022
(arXiv:2205.05198), section 4, each read or written once.

A matrix product is cut into tiles, and the multiprocessors take them in waves: a last wave that
is half empty costs a whole one (NVIDIA, "Matrix Multiplication Background User's Guide",
sections 4 and 5, tile and wave quantization). Products with few tiles are cut along k instead.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from autoconf_launch.core import (
    Architecture,
    Experts,
    Indexer,
    Precision,
    StateMixer,
    Workload,
)

from ..layers import (
    SCORE_BYTES,
    Numbers,
    Product,
    attends,
    attention_products,
    backward_passes,
    expert_products,
    indexer_flops,
    mlp_products,
    runs_on_vectors,
    seen_keys,
    state_flops,
    state_traffic_bytes,
)
from ..space import Floats, Ints
from .hardware import (
    Accelerator,
    Physics,
    core_product_s,
    is_plain_fp32,
    peak_flops_per_s,
    reached_flops_per_s,
)
from .layout_columns import InnerLayouts, Stack
from .model_state import trained_share
from .software import layer_weights, repeated_products, repeats_modules, small_traffic

_TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.92), (64, 128, 0.75), (64, 64, 0.55))
"""Rows, columns, and speed of a tile over the largest one's (same guide, section 5.1)."""
_FILL_BALANCE = 133.0
"""Operations in the time of a byte on the A100 with 80 GB, which ``depth_half`` is of."""
_NVFP4_CAST_BYTES = 2.55
"""Activations and gradients are read for their largest value, which scales the whole tensor, and
again to be written along rows and along columns in 4 bits and an 8-bit scale for 16 of them: 5.1
bytes for two products (NVIDIA 2025, arXiv:2509.25149, sections 2 and 4)."""
_SORTS = 4
_ROUTED_BYTES = 2
_FLASH_BACKWARD = 2.5
"""Operations of flash attention's backward pass over its forward pass: five products for two."""
_SCORES_BACKWARD = 1.6
"""Traffic of unfused scores in a backward pass over a forward pass; fitted with ``Physics``."""
_LEAST_ALIGNED = 4
"""Numbers of a row that must be loaded together for tensor cores: cuBLAS has kernels for rows that
begin at multiples of 8 bytes, and slow ones below (FASOP's forward passes of 100-wide heads,
BigScience's of 150)."""
_FP32_ATTENTION = 0.37
"""Part of the rate of long fp32 products at which attention runs without a flash kernel: torch
takes a kernel that saves memory, in both passes, which TF32 does not make faster."""
_SCAN_RATE = 0.25
"""Part of plain fp32's rate that a recurrence without products reaches; assumed."""
_MATRICES = 7
"""Matrices of a layer that are unpacked one by one: q, k, v, o and a gated MLP's three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Kernels of one GPU in one precision."""

    accelerator: Accelerator
    physics: Physics
    precision: Precision = Precision.BF16
    transformer_engine: bool = False

    @property
    def peak_flops_per_s(self) -> float:
        """Datasheet rate of the matrix products."""
        return peak_flops_per_s(self.accelerator, self.precision)

    @property
    def reached_flops_per_s(self) -> float:
        """Rate of long products."""
        return reached_flops_per_s(self.accelerator, self.precision, self.physics)

    @property
    def core(self) -> Kernels:
        """The kernels of attention's core, logits and loss: in 16 bits unless all is in fp32.

        On a CPU they count as 16 bits, as its rates were fitted so.
        """
        is_wide = self.precision.value_bytes == 4 and not self.accelerator.is_cpu
        return replace(self, precision=self.precision if is_wide else Precision.BF16)

    @property
    def widening(self) -> float:
        """Size of a value that small operations move over the 16 bits they are counted in."""
        return self.core.precision.value_bytes / Precision.BF16.value_bytes

    @property
    def bytes_per_s(self) -> float:
        """Memory bandwidth that simple kernels reach."""
        return self.accelerator.memory_bytes_per_s * self.physics.memory_efficiency

    @property
    def depth_half(self) -> float:
        """Length k at which a tile spends half its time on filling and draining.

        These wait for memory: it is longer if more operations are done in the time of a byte.
        Operands of 8 bits are half as many bytes at twice the rate. Products in plain fp32 are so
        slow that they hardly wait.
        """
        gpu = self.accelerator
        if is_plain_fp32(gpu, self.precision):
            balance = gpu.fp32_flops_per_s * gpu.fp32_reached / gpu.memory_bytes_per_s
            return self.physics.depth_half * balance / _FILL_BALANCE
        balance = gpu.half_flops_per_s * gpu.reached / gpu.memory_bytes_per_s
        return self.physics.depth_half * max(1.0, balance / _FILL_BALANCE)

    def product_s(self, m: Numbers, n: Numbers, k: Numbers, count: Numbers = 1) -> Floats:
        """``count`` products (m x k) by (k x n) in one launch; sizes are whole, at least 1."""
        m, n, k, count = (np.maximum(np.asarray(x, np.float64), 1.0) for x in (m, n, k, count))
        if self.accelerator.is_cpu:
            each_s = core_product_s(self.accelerator, self.precision, (m, n, k))
            return np.asarray(np.multiply(count, each_s))
        physics = self.physics
        rate = self.reached_flops_per_s
        units = self.accelerator.multiprocessors
        depth = 2.0 * (k + self.depth_half) * units / rate
        best: Floats | None = None
        is_plain = is_plain_fp32(self.accelerator, self.precision)
        for rows, columns, fed in _TILES:
            speed = 1.0 if is_plain else fed
            tiles = np.ceil(m / rows) * np.ceil(n / columns) * count
            waves = tiles / units
            cut = np.maximum(waves, np.minimum(1.0, waves * k / 256)) / physics.split_efficiency
            taken = np.minimum(np.ceil(waves), cut) * (rows * columns / speed) * depth
            best = taken if best is None else np.minimum(best, taken)
        assert best is not None
        if self.accelerator.power_limited is not None and not is_plain:
            held = self.peak_flops_per_s * self.accelerator.power_limited
            best = np.maximum(best, 2.0 * m * n * k * count / held)
        size = self.precision.product_bytes
        given = self.precision.value_bytes
        moved = (size * (m * k + k * n) + given * m * n) * count / self.bytes_per_s
        cast: Floats | float = 0.0
        if self.precision.is_quantized:
            cast = self._cast_bytes * (m * k + k * n) * count / self.bytes_per_s
        return np.asarray(np.maximum(best, moved) + cast + physics.kernel_s)

    @property
    def _cast_bytes(self) -> float:
        """Bytes that casting and scaling move for each number of an operand."""
        physics = self.physics
        if self.precision is Precision.NVFP4 and self.transformer_engine:
            return _NVFP4_CAST_BYTES
        passes = physics.fp8_passes * (physics.fp8_engine if self.transformer_engine else 1.0)
        return passes * (physics.fp8_rowwise if self.precision is Precision.FP8_ROWWISE else 1.0)

    def traffic_s(self, moved_bytes: Floats, kernels: float = 1.0) -> Floats:
        """Simple kernels that only move bytes."""
        return np.asarray(moved_bytes / self.bytes_per_s + kernels * self.physics.kernel_s)


_UNFUSED_SOFTMAX = 2.0
"""Bytes moved if Megatron's fused softmax does not take the shape (it wants a multiple of 4 heads
times samples) over bytes moved if it does."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerTimes:
    """Times of one layer and one micro-batch; selective recomputation repeats ``small_*``."""

    forward_s_U: Floats
    backward_s_U: Floats
    small_s_U: Floats
    products_s_U: Floats
    last_s_U: Floats
    """The last product; no backward pass reads its result."""
    forward_flops_U: Floats
    """Operations of the model, without those that several tensor ranks repeat."""
    unfused_U: Floats
    """1 if attention runs as many small kernels."""

    def rows(self, numbers: Ints) -> LayerTimes:
        """Some rows, in this order."""
        return LayerTimes(**{f.name: getattr(self, f.name)[numbers] for f in fields(self)})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionTimes:
    """Attention of one layer; ``again_s`` computes the projections from latents once more."""

    forward_s: Floats
    backward_s: Floats
    products_s: Floats
    core_s: Floats
    flops: Floats
    unfused_U: Floats
    again_s: Floats | float


def attention_times(stack: Stack, inner: InnerLayouts, kernels: Kernels) -> AttentionTimes:
    """Projections, scores and values, which layers with and without experts have alike."""
    workload, model = stack.workload, stack.workload.architecture
    tokens = _tokens(workload, inner)
    products = [*attention_products(model, inner, tokens), *cross_products(stack, inner, tokens)]
    each_s, backward = _products_s(products, workload, kernels)
    alone = _on_one_rank(inner)
    flops = _flops(attention_products(model, alone, tokens), inner)
    flops = flops + _flops(cross_products(stack, alone, tokens), inner)
    products_s = sum(each_s, np.zeros(()))
    again: Floats | float = 0.0
    if (latent := model.latent) is not None and repeats_modules(workload.software):
        again = each_s[-2] + (0.0 if latent.query_rank is None else each_s[2])
    core_f, core_b, core_flops, unfused = _mixing_core(workload, inner, kernels)
    others = [(core_f, core_b, core_flops), *_cross_core(stack, inner, kernels)]
    return AttentionTimes(
        forward_s=sum((one[0] for one in others), products_s),
        backward_s=sum((one[1] for one in others), backward),
        products_s=products_s,
        core_s=core_f,
        flops=sum((one[2] for one in others), flops),
        unfused_U=unfused,
        again_s=again,
    )


def layer_times(
    stack: Stack,
    inner: InnerLayouts,
    kernels: Kernels,
    attention: AttentionTimes,
    *,
    experts: Experts | None,
) -> LayerTimes:
    """Times of a layer, with its own MLP or with ``experts``."""
    workload, model = stack.workload, stack.workload.architecture
    tokens, alone = _tokens(workload, inner), _on_one_rank(inner)
    if experts is None and not model.ffn:
        products, whole = [], []
    elif experts is None:
        products, whole = (mlp_products(model, x, tokens, model.ffn) for x in (inner, alone))
    else:
        products, whole = (expert_products(model, x, tokens, experts) for x in (inner, alone))
    each_s, backward = _products_s(products, workload, kernels)
    products_s = sum(each_s, attention.products_s)
    traffic = small_traffic(workload, inner, kernels.physics, experts, kernels.widening)
    small_s, small_back_s = (kernels.traffic_s(*each) for each in traffic)
    unpacked_s = _unpacking_s(workload, inner, kernels, experts)
    forward = products_s + unpacked_s
    backward = attention.backward_s + backward + unpacked_s
    again = attention.again_s
    if experts is not None:
        moved = _routed_bytes(model, inner, tokens, experts)
        there, back, activation = (each * kernels.widening for each in moved)
        forward = forward + kernels.traffic_s(there, _SORTS + 1)
        backward = backward + kernels.traffic_s(back, _SORTS + 1)
        if repeats_modules(workload.software):
            again = again + kernels.traffic_s(activation)
    is_flash = _runs_flash(workload, kernels)
    core_s = attention.forward_s - attention.products_s
    return LayerTimes(
        forward_s_U=forward + core_s + small_s,
        backward_s_U=backward + small_back_s,
        small_s_U=small_s
        + again
        + (0.0 if is_flash else 1.0) * attention.core_s
        + repeated_products(workload.software) * forward,
        products_s_U=products_s,
        last_s_U=np.asarray(each_s[-1] if experts is None and each_s else np.zeros(len(tokens))),
        forward_flops_U=attention.flops + _flops(whole, inner),
        unfused_U=attention.unfused_U,
    )


def _tokens(workload: Workload, inner: InnerLayouts) -> Floats:
    return np.asarray(inner.micro_U * workload.sequence_length / inner.context_U, np.float64)


def _on_one_rank(inner: InnerLayouts) -> InnerLayouts:
    return replace(inner, tensor_U=np.ones_like(inner.tensor_U))


def _flops(whole: list[Product], inner: InnerLayouts) -> Floats:
    """Share of a tensor rank in the operations of products on one rank."""
    all_flops = sum((2.0 * m * n * k * count for m, n, k, count in whole), np.zeros(()))
    return np.asarray(all_flops / inner.tensor_U)


def _products_s(
    products: list[Product], workload: Workload, kernels: Kernels
) -> tuple[list[Floats], Floats]:
    """Forward seconds of each, and backward seconds of all.

    A backward pass has a product for the input and one for the weight.
    """
    rows = np.broadcast_shapes(*(np.shape(side) for product in products for side in product))
    m, n, k, count = sides = np.empty((4, len(products), *rows))
    for number, product in enumerate(products):
        for side, values in zip(sides, product, strict=True):
            side[number] = values
    ways = kernels.product_s(np.stack((m, m, k)), np.stack((n, k, n)), np.stack((k, n, m)), count)
    forward, by_input, by_weight = ways
    backward = np.zeros(())
    for one in by_input + trained_share(workload) * by_weight:
        backward = backward + one
    return list(forward), backward


def cross_products(stack: Stack, inner: InnerLayouts, tokens: Floats) -> list[Product]:
    """Queries and output of a layer's tokens, keys and values of an encoder's."""
    if not stack.cross_tokens:
        return []
    model, tp = stack.workload.architecture, inner.tensor_U
    read = tokens * (stack.cross_tokens / stack.workload.sequence_length)
    wide, keys = model.heads * model.head / tp, model.kv_heads * model.head / tp
    return [
        (tokens, wide, model.hidden, 1),
        (read, 2 * keys, model.hidden, 1),
        (tokens, model.hidden, wide, 1),
    ]


def _cross_core(
    stack: Stack, inner: InnerLayouts, kernels: Kernels
) -> list[tuple[Floats, Floats, Floats]]:
    """Scores of an encoder's tokens."""
    if not stack.cross_tokens:
        return []
    model = replace(stack.workload.architecture, causal=False, window=None, state=None)
    seen = replace(stack.workload, model=model)
    return [_attention_core(seen, inner, kernels, keys=stack.cross_tokens)[:3]]


def _routed_bytes(
    model: Architecture, inner: InnerLayouts, tokens: Floats, experts: Experts
) -> tuple[Floats, Floats, Floats]:
    """Bytes that copies of tokens move besides their products: forward, backward, activation only.

    They are sorted for the way there, by experts, back, and added up: a read and a write each.
    The activation function reads both halves of a gated MLP and writes one; backward it reads
    these and a gradient and writes two.
    """
    copies = tokens * experts.per_token * _ROUTED_BYTES
    moved = _SORTS * 2.0 * copies * (experts.width or model.hidden)
    halves = 2.0 if model.gated else 1.0
    wide = copies * experts.ffn / inner.tensor_U
    activation = (halves + 1.0) * wide
    return moved + activation, moved + (2.0 * halves + 1.0) * wide, activation


def _mixing_core(
    workload: Workload, inner: InnerLayouts, kernels: Kernels
) -> tuple[Floats, Floats, Floats, Floats]:
    """The recurrence of a state, and attention with its choice of keys, as a layer has them."""
    model = workload.architecture
    none = np.zeros(len(inner.tensor_U))
    parts = [(none, none, none, none)]
    if model.state is not None:
        parts.append(_state_core(workload, model.state, inner, kernels))
    if attends(model):
        parts.append(_attention_core(workload, inner, kernels))
        if model.indexer is not None:
            parts.append(_indexer_core(workload, model.indexer, inner, kernels))
    first, backward, flops, unfused = (sum(part, none) for part in zip(*parts, strict=True))
    return first, backward, flops, unfused


_NARROW, _WIDE_HEAD = 0.6, 128
"""Rate of flash attention on the narrowest heads over the rate on heads of this width, which
kernels are made for; a straight line between them, with which ``Physics`` was fitted."""


def _attention_core(
    workload: Workload, inner: InnerLayouts, kernels: Kernels, *, keys: int | None = None
) -> tuple[Floats, Floats, Floats, Floats]:
    """Scores and their product with values: forward, backward, forward flops, unfused or not.

    Over ``keys`` keys; by default over the sample's own tokens, as far as the window goes.

    A flash kernel skips the masked half of causal attention and recomputes the scores in its
    backward pass (Dao 2023, arXiv:2307.08691), see ``_FLASH_BACKWARD``.
    """
    model, physics = workload.architecture, kernels.physics
    if keys is None:
        keys = seen_keys(model, workload.sequence_length)
    latent = model.latent
    width = model.head if latent is None else model.head + latent.rope_head
    value = model.head if latent is None else latent.value_head
    heads = model.heads / inner.tensor_U
    tokens = _tokens(workload, inner)
    full = 2.0 * tokens * keys * heads * (width + value)
    masked = 0.5 if model.causal and keys == workload.sequence_length else 1.0
    if _runs_flash(workload, kernels):
        rate, back = _flash_rates(workload, kernels, width)
        forward, backward = full * masked / rate, _FLASH_BACKWARD * full * masked / back
        extra = kernels.physics.kernel_s
        return forward + extra, backward + 3 * extra, full * masked, np.zeros(len(tokens))
    is_aligned = width % _LEAST_ALIGNED == 0
    rate = kernels.core.reached_flops_per_s
    rate *= physics.unfused_attention if is_aligned else physics.misaligned_attention
    batches = inner.micro_U * heads
    unfused = (batches % 4 != 0).astype(np.float64)
    passes = physics.score_passes * np.where(unfused > 0, _UNFUSED_SOFTMAX, 1.0)
    scores = 2.0 * tokens * keys * heads * passes * kernels.widening / kernels.bytes_per_s
    backward = 2.0 * full / rate + _SCORES_BACKWARD * scores
    return full / rate + scores, backward, full * masked, unfused


def _flash_rates(workload: Workload, kernels: Kernels, width: int) -> tuple[float, float]:
    """Operations a second of flash attention, forward and backward, on heads of a width.

    If a GPU's own attention was measured, every code is taken to call it: torch, Megatron-Core
    and Transformer Engine do so on Hopper's successors.
    """
    gpu, physics = kernels.accelerator, kernels.physics
    if kernels.widening != 1.0:
        plain = gpu.fp32_flops_per_s * gpu.fp32_reached * _FP32_ATTENTION
        return plain, plain
    rate = kernels.core.reached_flops_per_s * gpu.flash
    rate *= physics.engine_attention if workload.software.transformer_engine else 1.0
    back = rate * physics.flash_backward
    if gpu.attention is not None and gpu.attention_backward is not None:
        rate, back = (gpu.half_flops_per_s * x for x in (gpu.attention, gpu.attention_backward))
    narrow = min(1.0, _NARROW + (1.0 - _NARROW) * width / _WIDE_HEAD)
    return rate * narrow, back * narrow


def _state_core(
    workload: Workload, state: StateMixer, inner: InnerLayouts, kernels: Kernels
) -> tuple[Floats, Floats, Floats, Floats]:
    """A state's recurrence; products run at unfused attention's rate, all else as plain fp32."""
    tokens = _tokens(workload, inner)
    flops = tokens * (state.value_heads / inner.tensor_U) * state_flops(state)
    rate = kernels.core.reached_flops_per_s * kernels.physics.unfused_attention
    if runs_on_vectors(state):
        rate = kernels.accelerator.fp32_flops_per_s * _SCAN_RATE
    wide = state_traffic_bytes(state) / inner.tensor_U
    moved = kernels.traffic_s(tokens * wide * kernels.widening, 6)
    forward = flops / rate + moved
    return forward, backward_passes(state) * forward, flops, np.zeros(len(tokens))


def _indexer_core(
    workload: Workload, indexer: Indexer, inner: InnerLayouts, kernels: Kernels
) -> tuple[Floats, Floats, Floats, Floats]:
    """Scores of all earlier keys on each tensor rank, written and read to find the highest."""
    tokens, none = _tokens(workload, inner), np.zeros(len(inner.tensor_U))
    pairs = tokens * workload.sequence_length * (0.5 if workload.architecture.causal else 1.0)
    flops = pairs * indexer_flops(indexer)
    moved = kernels.traffic_s(2.0 * SCORE_BYTES * pairs, 3)
    forward = flops / kernels.core.reached_flops_per_s + moved
    return forward, 2.0 * forward, flops / inner.tensor_U, none


def _unpacking_s(
    workload: Workload, inner: InnerLayouts, kernels: Kernels, experts: Experts | None
) -> Floats:
    """Quantized weights are read and written in the precision of the run, in each pass."""
    if workload.weight_format is None:
        return np.zeros(())
    weights = layer_weights(workload, inner, experts)
    moved = workload.frozen_matrix_bytes + workload.precision.value_bytes
    return kernels.traffic_s(weights * moved, _MATRICES)


def _runs_flash(workload: Workload, kernels: Kernels) -> bool:
    return workload.software.flash_attention and kernels.accelerator.flash > 0.0
