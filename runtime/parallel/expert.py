"""Expert parallelism: ranks have some of the experts each, and tokens travel to theirs and back.

The ranks of an expert group are data ranks: each has its own samples and brings their tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from autoconf_launch.core import ConfigError, DegreeLimits, ResolvedConfig

from ..model import find_experts
from .base import EXPERT, Applied, DeviceMeshes, mesh_degree
from .tensor import name_pattern


def apply(applied: Applied, meshes: DeviceMeshes, config: ResolvedConfig) -> Applied:
    """Leave each rank of an expert group its part of the experts.

    Raises:
        ConfigError: the model has no experts, or the degree does not divide them.
    """
    mesh = meshes.expert
    if mesh is None:
        return applied
    model = applied.module
    obstacle = expert_split(model).obstacle(mesh.size())
    if obstacle:
        raise ConfigError(obstacle)
    for experts in find_experts(model).values():
        _share_out(experts, mesh)
    return applied


def expert_split(model: nn.Module) -> DegreeLimits:
    """Limits of the expert degree in a live model, or the reason why nothing can be shared out."""
    counts = dict.fromkeys(
        (f"experts of {name_pattern(name)}", int(getattr(experts, "num_experts")))  # noqa: B009
        for name, experts in find_experts(model).items()
    )
    if counts:
        return DegreeLimits(key="expert", counts=tuple(counts))
    missing = (
        f"{type(model).__name__} has no experts (modules with num_experts, weights stacked in "
        "three dimensions, and forward(hidden, top_k_index, top_k_weights)); set it to 1."
    )
    return DegreeLimits(key="expert", missing=missing)


def expert_degree(module: nn.Module) -> int:
    """Ranks that the live experts are shared out over."""
    return mesh_degree(module, EXPERT)


def shard_experts(root: nn.Module, meshes: DeviceMeshes, shard: Any) -> set[nn.Parameter]:
    """Shard and copy experts over the ranks that have the same; weights that need neither.

    Args:
        root: the model.
        meshes: meshes that it is on.
        shard: ``fully_shard`` with all but the mesh.
    """
    mesh = meshes.expert_data
    if mesh is None:
        return set()
    found = [module for module in root.modules() if isinstance(module.forward, _Dispatch)]
    if mesh.size() == 1:
        return {weight for experts in found for weight in experts.parameters()}
    for experts in found:
        shard(experts, mesh=mesh, shard_placement_fn=partial(_even_dimension, mesh.size(1)))
    return set()


def _even_dimension(shards: int, weight: nn.Parameter) -> Shard | None:
    """The first dimension that shards evenly: the first of all is shared out already."""
    assert isinstance(weight, DTensor)
    sizes = enumerate(weight.to_local().shape)
    return next((Shard(at) for at, size in sizes if size % shards == 0), None)


def _share_out(experts: Any, mesh: DeviceMesh) -> None:
    for name, weight in tuple(experts.named_parameters()):
        part = weight.detach().chunk(mesh.size())[mesh.get_local_rank()].clone()
        spread = DTensor.from_local(part, mesh, [Shard(0)], run_check=False)
        setattr(experts, name, nn.Parameter(spread, requires_grad=weight.requires_grad))
    experts.num_experts //= mesh.size()
    experts.forward = _Dispatch(experts, mesh)


class _Dispatch:
    """The forward method of experts, of which this rank has a part, for the tokens of all ranks.

    A gradient of the part then holds the sum over all tokens of the group, not only over
    the rank's own: it is divided by the ranks.
    """

    def __init__(self, experts: Any, mesh: DeviceMesh) -> None:
        self._experts = experts
        self._forward = experts.forward
        self._group = mesh.get_group()
        self._ranks = mesh.size()

    def __call__(self, hidden: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """Tokens by the experts of all ranks, weighted and added up."""
        chosen = top_k_index.flatten()
        order = chosen.argsort(stable=True)
        here, there = self._counts(chosen)
        sent, received = torch.stack((here.sum(1), there.sum(1))).tolist()
        rows = hidden.to(_compute_dtype(hidden))[order // top_k_index.shape[-1]]
        rows = _exchange(rows, sent, received, self._group)
        weights = _exchange(top_k_weights.flatten()[order, None], sent, received, self._group)
        mixed = self._run(rows, _numbers(there), weights)
        back = _exchange(mixed, received, sent, self._group)
        slots = back[order.argsort()].view(*top_k_index.shape, -1)
        return slots.sum(-2).to(hidden.dtype)

    def _counts(self, chosen: Tensor) -> tuple[Tensor, Tensor]:
        here = chosen.bincount(minlength=self._ranks * self._experts.num_experts)
        here = here.view(self._ranks, -1)
        there = torch.empty_like(here)
        dist.all_to_all_single(there, here, group=self._group)
        return here, there

    def _run(self, rows: Tensor, numbers: Tensor, weights: Tensor) -> Tensor:
        """Run its experts; without tokens on a row of zeros, so that all ranks have a gradient."""
        count = len(rows)
        if not count:
            rows = torch.cat((rows, rows.new_zeros(1, rows.shape[-1])))
            weights = torch.cat((weights, weights.new_zeros(1, 1)))
            numbers = numbers.new_zeros(1)
        with self._local_weights():
            mixed: Tensor = self._forward(rows, numbers[:, None], weights)
        return mixed[:count]

    @contextmanager
    def _local_weights(self) -> Iterator[None]:
        held = dict(self._experts._parameters)
        try:
            for name, weight in held.items():
                local = weight.to_local()
                if local.requires_grad:
                    local.register_hook(lambda gradient: gradient / self._ranks)
                self._experts._parameters[name] = local.to(_compute_dtype(local))
            yield
        finally:
            self._experts._parameters.update(held)


def _exchange(
    rows: Tensor, sent: Sequence[int], received: Sequence[int], group: ProcessGroup
) -> Tensor:
    result: Tensor = _Exchange.apply(rows, sent, received, group)  # type: ignore[no-untyped-call]
    return result


class _Exchange(torch.autograd.Function):
    """Sends rows to the ranks of a group and returns those received; gradients go back."""

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, sent: Sequence[int], received: Sequence[int], group: ProcessGroup
    ) -> Tensor:
        ctx.sent, ctx.received, ctx.group = sent, received, group
        result = rows.new_empty((sum(received), *rows.shape[1:]))
        dist.all_to_all_single(result, rows.contiguous(), received, sent, group=group)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        return _exchange(gradient, ctx.received, ctx.sent, ctx.group), None, None, None


def _numbers(counts: Tensor) -> Tensor:
    """The local expert of each received row: ranks follow each other, experts within a rank."""
    ranks, experts = counts.shape
    numbers = torch.arange(experts, device=counts.device).repeat(ranks)
    return numbers.repeat_interleave(counts.flatten())


def _compute_dtype(tensor: Tensor) -> torch.dtype:
    kind = tensor.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else tensor.dtype
