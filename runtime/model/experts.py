"""Experts of a live model: modules in whose weights each expert has a slice.

They have the form of transformers' experts, or a user's own have it: ``num_experts``, weights of
three dimensions whose first counts the experts (and biases of two), and
``forward(hidden, top_k_index, top_k_weights)`` for tokens in rows.
"""

from __future__ import annotations

import inspect

from torch import nn

_ARGUMENTS = 3


def find_experts(model: nn.Module) -> dict[str, nn.Module]:
    """Modules with experts by their full names."""
    return {name: module for name, module in model.named_modules() if _has_experts(module)}


def _has_experts(module: nn.Module) -> bool:
    count, weights = getattr(module, "num_experts", None), list(module.parameters())
    return (
        isinstance(count, int)
        and any(weight.ndim == 3 for weight in weights)
        and all(weight.ndim >= 2 and weight.shape[0] == count for weight in weights)
        and len(weights) == len(module._parameters)
        and len(inspect.signature(type(module).forward).parameters) == 1 + _ARGUMENTS
    )
