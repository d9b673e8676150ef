"""Ranks that train one copy of the model together must be given equal batches."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from autoconf_launch.core import ConfigError

from ..model import Batch, tensors
from .mesh import DeviceMeshes


class SameBatch:
    """Compares the first step's batch over the ranks of a model copy."""

    def __init__(self, meshes: DeviceMeshes) -> None:
        along = (meshes.pipeline, meshes.context, meshes.tensor)
        self._meshes = tuple(mesh for mesh in along if mesh is not None)
        self._checked = not self._meshes

    def __call__(self, batch: Batch) -> None:
        """Look once.

        Raises:
            ConfigError: they differ.
        """
        if self._checked:
            return
        self._checked = True
        parts = tensors(batch)
        digests = torch.stack([_digest(part) for part in parts]) if parts else torch.zeros(1)
        least, most = extremes(digests, self._meshes)
        if not torch.equal(least, most):
            raise ConfigError(
                "Ranks of one model copy were given different batches; load the samples of "
                "engine.share from each global batch, not those of engine.rank."
            )


def extremes(values: Tensor, meshes: Iterable[DeviceMesh]) -> tuple[Tensor, Tensor]:
    """The least and the largest over the ranks along all of these dimensions."""
    both = torch.cat((values, -values))
    for mesh in meshes:
        both = both.to(mesh.device_type)
        dist.all_reduce(both, op=dist.ReduceOp.MAX, group=mesh.get_group())
    most, least = both.chunk(2)
    return -least, most


def _digest(tensor: Tensor) -> Tensor:
    flat = tensor.detach().flatten().double()
    return (flat * torch.arange(1, flat.numel() + 1, device=flat.device)).sum()
