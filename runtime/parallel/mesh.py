"""The one mesh of all ranks and the parts of it that a kind of parallelism works on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from autoconf_launch.core import Layout

REPLICATE, SHARD, TENSOR = "replicate", "shard", "tensor"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMeshes:
    """Dimensions stand in the order replicate, shard, tensor; those not needed are missing."""

    world: DeviceMesh

    @property
    def is_data_only(self) -> bool:
        """Whether each rank, or each group that shards, holds all of the model."""
        return self.tensor is None

    @property
    def data(self) -> DeviceMesh:
        """Ranks that train on different samples: what FSDP shards and copies over."""
        names = tuple(name for name in (REPLICATE, SHARD) if name in _names(self.world))
        return self.world if self.is_data_only else self.world[names]

    @property
    def tensor(self) -> DeviceMesh | None:
        """Ranks that share out the products of one model copy."""
        return self.world[TENSOR] if TENSOR in _names(self.world) else None


def make_meshes(device: torch.device, layout: Layout) -> DeviceMeshes:
    """A mesh of all ranks of the process group."""
    data, tensor = layout.data_parallel, layout.tensor_parallel
    sizes = {SHARD: data}
    if tensor > 1:
        copied = {REPLICATE: data, SHARD: 1}  # FSDP with whole weights: ZeRO 0
        sizes = {**(sizes if layout.zero_stage else copied), TENSOR: tensor}
    world = init_device_mesh(device.type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    return DeviceMeshes(world=world)


def copy_weights(module: nn.Module, mesh: DeviceMesh) -> None:
    """All ranks of the process group get the weights and buffers of rank 0."""
    if mesh.size() == 1:
        return
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            dist.broadcast(tensor, src=0)


def mesh_degree(module: nn.Module, *names: str) -> int:
    """Ranks along these dimensions, as the live weights have them; 1 where none has."""
    sizes = dict.fromkeys(names, 1)
    for weight in module.parameters():
        mesh = getattr(weight, "device_mesh", None)
        if mesh is not None:
            known = _names(mesh)
            sizes |= {name: mesh.size(known.index(name)) for name in names if name in known}
    return math.prod(sizes.values())


def _names(mesh: DeviceMesh) -> tuple[str, ...]:
    return mesh.mesh_dim_names or ()
