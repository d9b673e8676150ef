"""Norm and scaling of gradients, whole or sharded."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.distributed.tensor import DTensor, Replicate

_EPSILON = 1e-6
"""Keeps the clipping factor finite, as in torch.nn.utils.clip_grad_norm_."""


def global_norm(parameters: Iterable[Tensor], stages: ProcessGroup | None = None) -> Tensor:
    """L2 norm of the whole model's gradient, the same on every rank; no wait for the device.

    Weights are added up over the dimensions of the mesh that they are split over, group by group,
    then over the ranks of a pipeline, which must each give theirs.
    """
    parameters = list(parameters)
    groups: dict[tuple[ProcessGroup, ...], list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            part, splitters = _part(parameter.grad)
            groups.setdefault(splitters, []).append(part)
    squared = [_sum_of_squares(parts, splitters) for splitters, parts in groups.items()]
    total = torch.nn.utils.get_total_norm([]) if not squared else sum(squared[1:], squared[0])
    if stages is not None:
        total = total.to(parameters[0].device) if parameters else total
        dist.all_reduce(total, group=stages)
    return total.sqrt()


def _part(gradient: Tensor) -> tuple[Tensor, tuple[ProcessGroup, ...]]:
    """This rank's part and the groups whose ranks have the others; equal copies count once."""
    if not isinstance(gradient, DTensor):
        return gradient, ()
    if any(placement.is_partial() for placement in gradient.placements):
        whole = [Replicate() if p.is_partial() else p for p in gradient.placements]
        gradient = gradient.redistribute(placements=whole)
    mesh = gradient.device_mesh
    split = [i for i, placement in enumerate(gradient.placements) if not placement.is_replicate()]
    return gradient.to_local(), tuple(mesh.get_group(i) for i in split if mesh.size(i) > 1)


def _sum_of_squares(parts: list[Tensor], splitters: tuple[ProcessGroup, ...]) -> Tensor:
    squared = torch.nn.utils.get_total_norm(parts).square()
    for group in splitters:
        dist.all_reduce(squared, group=group)
    return squared


def clipping_factor(norm: Tensor, limit: float) -> Tensor:
    """Factor that scales gradients of norm ``norm`` down to ``limit`` at most."""
    return (limit / (norm + _EPSILON)).clamp(max=1.0)


def multiply(parameters: Iterable[Tensor], factor: Tensor | float) -> None:
    """Multiply all gradients in place."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    local = [g.to_local() if isinstance(g, DTensor) else g for g in gradients]
    if local:
        torch._foreach_mul_(local, factor)
