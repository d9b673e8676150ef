"""Norm and scaling of gradients, whole or sharded. Not: how they are computed or reduced."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

_EPSILON = 1e-6
"""Keeps the clipping factor finite, as in torch.nn.utils.clip_grad_norm_."""


def global_norm(parameters: Iterable[Tensor]) -> Tensor:
    """L2 norm of the whole model's gradient, the same on every rank; no wait for the device."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    whole = [g for g in gradients if not isinstance(g, DTensor)]
    sharded = [g for g in gradients if isinstance(g, DTensor)]
    squared = torch.nn.utils.get_total_norm(whole).square()
    if sharded:
        part = torch.nn.utils.get_total_norm([g.to_local() for g in sharded]).square()
        dist.all_reduce(part, group=sharded[0].device_mesh.get_group())
        squared = squared.to(part.device) + part
    return squared.sqrt()


def clipping_factor(norm: Tensor, limit: float) -> Tensor:
    """What gradients of norm ``norm`` are multiplied with so that it is at most ``limit``."""
    return (limit / (norm + _EPSILON)).clamp(max=1.0)


def multiply(parameters: Iterable[Tensor], factor: Tensor | float) -> None:
    """Multiply all gradients in place."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    local = [g.to_local() if isinstance(g, DTensor) else g for g in gradients]
    if local:
        torch._foreach_mul_(local, factor)
