"""FSDP2: gradients (ZeRO 2) or weights too (ZeRO 3) live in shards. Not: ZeRO 0 and 1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from autoconf_launch.core import Precision, ResolvedConfig

from ..blocks import repeated_blocks
from ..precision import DTYPES
from .base import Applied, AroundMicroBatch


def apply(applied: Applied, mesh: DeviceMesh, config: ResolvedConfig) -> Applied:
    """Shard each repeated block, then what is left with the root.

    Gradients are reduced to shards after each micro-batch, which is what keeps them small.
    ZeRO 2 keeps the whole weights from a step's first micro-batch to its last.
    """
    stage = config.layout.zero_stage
    if stage < 2:
        return applied
    _same_weights(applied.module, mesh)
    for module in (*repeated_blocks(applied.module), applied.module):
        fully_shard(
            module,
            mesh=mesh,
            reshard_after_forward=stage == 3,
            mp_policy=_policy(config.precision),
        )
    around = _weights_kept(applied.module) if stage == 2 else applied.around
    return Applied(module=applied.module, around=around)


def _policy(precision: Precision) -> MixedPrecisionPolicy:
    if precision is Precision.FP32:
        return MixedPrecisionPolicy()
    return MixedPrecisionPolicy(param_dtype=DTYPES[precision], reduce_dtype=torch.float32)


def _weights_kept(module: nn.Module) -> AroundMicroBatch:
    @contextmanager
    def around(last: bool) -> Iterator[None]:
        assert isinstance(module, FSDPModule)
        module.set_reshard_after_backward(last)
        yield

    return around


def _same_weights(module: nn.Module, mesh: DeviceMesh) -> None:
    if mesh.size() == 1:
        return
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            dist.broadcast(tensor, group=mesh.get_group(), group_src=0)
