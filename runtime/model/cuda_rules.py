"""CUDA's rules on the CPU: what autocast leaves in fp32, and what dropout and attention keep.

The CPU's autocast leaves more in 16 bits (softmax, norms, powers); its dropout keeps a mask in the
input's format, and its attention keeps scores if they are dropped or have a learned bias.

Source:
    PyTorch, aten/src/ATen/autocast_mode.h: ``AT_FORALL_FP32`` and
    ``AT_FORALL_FP32_SET_OPT_DTYPE``, less losses and what is hardly used;
    aten/src/ATen/native/Dropout.cpp: a fused kernel on CUDA, whose mask has a byte for each value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

_IN_FP32 = (
    "acos",
    "asin",
    "cosh",
    "erfinv",
    "exp",
    "expm1",
    "log",
    "log10",
    "log2",
    "log1p",
    "reciprocal",
    "rsqrt",
    "sinh",
    "tan",
    "pow.Tensor_Scalar",
    "pow.Tensor_Tensor",
    "pow.Scalar",
    "softplus",
    "layer_norm",
    "native_layer_norm",
    "group_norm",
    "cosine_similarity",
    "dist",
    "renorm",
    "logsumexp",
)
"""Floating inputs become fp32."""

_TO_FP32 = (
    "softmax.int",
    "log_softmax.int",
    "cumsum",
    "linalg_vector_norm",
    "sum",
    "sum.dim_IntList",
)
"""The result is fp32 where nobody asks for another type."""

_HALVES = (torch.float16, torch.bfloat16)


def use_cuda_rules() -> torch.library.Library:
    """Apply them on the CPU until the answer's ``_destroy`` is called."""
    rules = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for names, rule in ((_IN_FP32, _with_inputs), (_TO_FP32, _with_result)):
        for name in names:
            if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCPU"):
                made = rule(_operation(name))
                rules.impl(name, made, "AutocastCPU")  # type: ignore[no-untyped-call]
    rules.impl("dropout", _drop, "AutogradCPU")  # type: ignore[no-untyped-call]
    rules.impl("scaled_dot_product_attention", _attend, "AutogradCPU")  # type: ignore[no-untyped-call]
    return rules


def _drop(given: Tensor, p: float, train: bool) -> Tensor:
    """Dropout by the fused kernel where CUDA has it."""
    if train and 0.0 < p < 1.0 and given.numel():
        return torch.native_dropout(given, p, train)[0]
    return _of_all_devices("dropout", given, p, train)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    *arguments: Any,
    **named: Any,
) -> Tensor:
    """Attention that keeps no scores: CUDA's kernels also take dropout and a learned bias so."""
    mask = None if attn_mask is None else attn_mask.detach()
    name = "scaled_dot_product_attention"
    return _of_all_devices(name, query, key, value, mask, 0.0, *arguments, **named)


def _of_all_devices(name: str, *arguments: Any, **named: Any) -> Tensor:
    """An operation by torch's own rule for all devices, below ours."""
    result: Tensor = _operation(name).decompose(*arguments, **named)
    return result


def _operation(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _with_inputs(operation: Any) -> Callable[..., Any]:
    def in_fp32(*arguments: Any, **named: Any) -> Any:
        return _below(operation, *tree_map(_in_32_bits, (arguments, named)))

    return in_fp32


def _with_result(operation: Any) -> Callable[..., Any]:
    def to_fp32(*arguments: Any, **named: Any) -> Any:
        asked = [
            value for value in (*arguments, *named.values()) if isinstance(value, torch.dtype)
        ]
        if arguments[0].dtype in _HALVES and not asked:
            while arguments[-1] is None:  # a type that is not given, by its place
                arguments = arguments[:-1]
            named = {**named, "dtype": torch.float32}
        return _below(operation, arguments, named)

    return to_fp32


def _below(operation: Any, arguments: Any, named: Any) -> Any:
    autocast = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU)
    with torch._C._ExcludeDispatchKeyGuard(autocast):
        return operation(*arguments, **named)


def _in_32_bits(value: Any) -> Any:
    is_half = isinstance(value, Tensor) and value.dtype in _HALVES
    return value.float() if is_half else value
