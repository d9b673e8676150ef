"""Floating-point operations of what runs inside a context."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.flop_counter import FlopCounterMode


def flop_counter() -> FlopCounterMode:
    """A counter as torch has it, that knows attention on CPU and recurrent layers too."""
    return FlopCounterMode(display=False, custom_mapping=_WITHOUT_FORMULA)


def attention_flops(query: Sequence[int], key: Sequence[int], value: Sequence[int]) -> int:
    """Two batched products, query by key and scores by value, 2 operations per multiply-add.

    Shapes are (batch, heads, tokens, width). A causal mask is not credited, as in torch's own
    formulas for attention on GPUs.
    """
    batch, heads, tokens, width = query
    return 2 * batch * heads * tokens * key[2] * (width + value[3])


def _forward(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return attention_flops(query, key, value)


def _backward(_: Any, query: Any, key: Any, value: Any, *__: Any, **___: Any) -> int:
    """Five products where the forward pass has two: scores are computed again."""
    return attention_flops(query, key, value) * 5 // 2


def _rnn_layer(tokens: Any, wide: Any, deep: Any, *_: Any, **__: Any) -> int:
    """Each token times the weights of its input and those of the state before it."""
    return _rnn_flops(tokens, (wide, deep))


def _rnn_layer_backward(tokens: Any, wide: Any, deep: Any, *_: Any, **__: Any) -> int:
    """Two products where the forward pass has one."""
    return 2 * _rnn_flops(tokens, (wide, deep))


def _rnn(tokens: Any, weights: Any, *_: Any, **__: Any) -> int:
    return _rnn_flops(tokens, weights)


def _rnn_backward(tokens: Any, weights: Any, *_: Any, **__: Any) -> int:
    return 2 * _rnn_flops(tokens, weights)


def _rnn_flops(tokens: Sequence[int], weights: Sequence[Sequence[int]]) -> int:
    """The last dimension of the tokens is their width; biases have one dimension."""
    return 2 * prod(tokens[:-1]) * sum(prod(shape) for shape in weights if len(shape) > 1)


_WITHOUT_FORMULA = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _forward,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward: _backward,
    torch.ops.aten.mkldnn_rnn_layer: _rnn_layer,
    torch.ops.aten.mkldnn_rnn_layer_backward: _rnn_layer_backward,
    torch.ops.aten._cudnn_rnn: _rnn,
    torch.ops.aten._cudnn_rnn_backward: _rnn_backward,
    torch.ops.aten.miopen_rnn: _rnn,
    torch.ops.aten.miopen_rnn_backward: _rnn_backward,
}


def tensor_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's elements, whatever its storage holds besides."""
    return tensor.numel() * tensor.element_size()


def weights_of(optimizer: Optimizer) -> list[Tensor]:
    """Weights of all groups of an optimizer."""
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def device_of(optimizer: Optimizer) -> torch.device:
    """Device of an optimizer's first weight; the CPU where it has none."""
    return next((weight.device for weight in weights_of(optimizer)), torch.device("cpu"))
