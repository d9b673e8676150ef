"""Bytes that operations other than products and attention move.

Training codes with kernels of their own read and write each value once (Korthikanti et al. 2022,
arXiv:2205.05198, section 4). Plain PyTorch has a kernel for each operation, over fp32 weights,
residuals, norms and losses, and ``torch.autocast`` casts what goes into a product. Its bytes are
counted, not fitted: in the operations that torch 2.11 runs for a layer of a GPT-2 and of a Llama 3
(``benchmarks/gpu/train.py``), under autocast and in fp32.
"""

from __future__ import annotations

import numpy as np

from autoconf_launch.core import Experts, Workload

from ..space import Floats
from .hardware import Physics
from .layout_columns import InnerLayouts
from .model_state import trained_share
from .software import is_compiled, is_eager
from .weights import dense_layer_weights, expert_weights, shared_weights

_FP32_BYTES = 4.0
UPDATE_PASSES = 3.0
"""Bytes that ``torch.optim``'s Adam moves for each weight over those of one fused kernel: 80 in
nine kernels of its default ``foreach``."""
_PLAIN_KERNELS = 20
"""Kernels of a layer's forward pass beside its products; a backward pass has twice as many."""


def small_traffic(
    workload: Workload,
    inner: InnerLayouts,
    physics: Physics,
    experts: Experts | None,
    widening: float,
) -> tuple[tuple[Floats, int], tuple[Floats, int]]:
    """Bytes and kernels of a layer's small operations, forward and backward.

    ``widening`` is the size of a value over the 16 bits that fused kernels are counted in.
    """
    tokens = np.asarray(inner.micro_U * workload.sequence_length / inner.context_U, np.float64)
    is_fused = is_compiled(workload.software)
    if is_eager(workload.software):
        there, back = _plain_bytes(workload, inner, tokens, experts)
        kernels = _PLAIN_KERNELS
    else:
        share = physics.small_passes * (physics.compiled_traffic if is_fused else 1.0)
        there = _fused_bytes(workload, inner, tokens, experts) * share * widening
        back, kernels = 2.0 * there, 6 if is_fused else 14
    if workload.software.plain_torch:
        weights = layer_weights(workload, inner, experts) / inner.data_U
        cast, summed = _weight_bytes(workload)
        there, back = there + cast * weights, back + summed * weights
    return (there, kernels), (back, 2 * kernels)


def layer_weights(workload: Workload, inner: InnerLayouts, experts: Experts | None) -> Floats:
    """Weights of a layer on the ranks that share it out."""
    model = workload.architecture
    if experts is None:
        return np.asarray(dense_layer_weights(model) / inner.tensor_U)
    routed = expert_weights(model, experts) / inner.expert_U
    return np.asarray((shared_weights(model, experts) + routed) / inner.tensor_U)


def _fused_bytes(
    workload: Workload, inner: InnerLayouts, tokens: Floats, experts: Experts | None
) -> Floats:
    """Bytes of norms, biases, activations, dropout and residuals in the forward pass.

    What chosen experts move is not among them (``layer``). Norms and residuals see the whole width
    on each rank unless the sequence is parallel.
    """
    model = workload.architecture
    tp = inner.tensor_U
    outside = 24.0 * model.hidden / np.where(inner.sequence_U, tp, 1)
    ffn = model.ffn if experts is None else experts.ffn * experts.shared
    activation = (6.0 if model.gated else 4.0) * ffn
    inside = (16.0 * model.heads * model.head + activation) / tp
    return np.asarray(tokens * (outside + inside))


def _plain_bytes(
    workload: Workload, inner: InnerLayouts, tokens: Floats, experts: Experts | None
) -> tuple[Floats, Floats]:
    """The same of plain PyTorch, in the forward and in the backward pass.

    Forward: two norms read and write, three products have their input cast, and two sums add what
    a product gave to the residual. Backward: each norm has two kernels, which read and write five
    times, five gradients are cast and three added; biases sum theirs, and the parts of queries,
    keys and values are put together. In both: the activation, and rotary positions in fp32.
    """
    model, size, cast = workload.architecture, _product_bytes(workload), _cast_bytes(workload)
    hidden = model.hidden / np.where(inner.sequence_U, inner.tensor_U, 1)
    ffn = (model.ffn if experts is None else experts.ffn * experts.shared) / inner.tensor_U
    keys = model.kv_heads * model.head / inner.tensor_U
    queries = model.heads * model.head / inner.tensor_U
    turned = 0.0 if model.positions else _TURN_BYTES * (queries + keys)
    biases = size * (ffn + 2.0 * hidden + queries + 2.0 * keys) if model.biases else 0.0
    wide_forward, wide_backward = (5.0, 13.0) if model.gated else (2.0, 3.0)
    forward = hidden * (4.0 * _FP32_BYTES + 3.0 * cast + 2.0 * (2.0 * _FP32_BYTES + size))
    backward = hidden * (10.0 * _FP32_BYTES + 5.0 * cast + 9.0 * _FP32_BYTES)
    forward = forward + wide_forward * size * ffn + turned
    backward = backward + wide_backward * size * ffn + turned + biases + 8.0 * size * keys
    return np.asarray(tokens * forward), np.asarray(tokens * backward)


_TURN_BYTES = 48.0
"""Bytes that rotary positions move for a value: cast, four products and two sums over halves,
joined, cast."""


def _weight_bytes(workload: Workload) -> tuple[float, float]:
    """Bytes that each micro-batch moves for a weight of plain PyTorch, forward and backward.

    Weight and gradient are cast, and the gradient is added to those before.
    """
    cast = _cast_bytes(workload)
    if workload.lora_rank or workload.weight_format is not None:  # what rests needs no cast
        return 0.0, 0.0
    return cast, trained_share(workload) * (cast + 3.0 * _FP32_BYTES)


def table_bytes(workload: Workload) -> float:
    """Both together for a weight of embedding and head, whose gradients are tables to be added."""
    return sum(_weight_bytes(workload)) + 4.0 * _FP32_BYTES * trained_share(workload)


def _product_bytes(workload: Workload) -> float:
    """Size of a value that goes into a product."""
    return _FP32_BYTES if workload.precision.value_bytes == _FP32_BYTES else 2.0


def _cast_bytes(workload: Workload) -> float:
    """Bytes that a cast of one value for a product moves; autocast is off in fp32."""
    size = _product_bytes(workload)
    return _FP32_BYTES + size if size < _FP32_BYTES else 0.0
