"""FSDP2: gradients (ZeRO 2) or weights too (ZeRO 3) live in shards. Not: ZeRO 0 and 1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from autoconf_launch.core import ConfigError, Precision, ResolvedConfig

from ..model import DTYPES, find_block_lists
from .base import Applied, AroundMicroBatch
from .extras import knob

Unit: TypeAlias = list[nn.Module]
"""Modules whose weights are gathered at once."""


def apply(applied: Applied, mesh: DeviceMesh, config: ResolvedConfig) -> Applied:
    """Shard the repeated blocks, one or several to a unit, then what is left with the root.

    Gradients are reduced to shards after each micro-batch, which is what keeps them small.
    ZeRO 2 keeps the whole weights from a step's first micro-batch to its last.

    Raises:
        ConfigError: the model has fewer blocks, or units, than the configuration asks for.
    """
    stage = config.layout.zero_stage
    if stage < 2:
        return applied
    root = applied.module
    units = _units(root, config)
    after: Any = knob(config, "reshard_after_forward") if stage == 3 else False
    root_after = after if knob(config, "reshard_root") else False
    shard: Any = partial(fully_shard, mesh=mesh, mp_policy=_policy(config.precision))
    _same_weights(root, mesh)
    for unit in units:
        # A list of one would get other hooks than its module.
        shard(unit if len(unit) > 1 else unit[0], reshard_after_forward=after)
    shard(root, reshard_after_forward=root_after)
    _prefetch([[root], *units], config)
    around = _weights_kept(root) if stage == 2 else applied.around
    return Applied(module=root, around=around)


def _units(root: nn.Module, config: ResolvedConfig) -> list[Unit]:
    """Blocks in their order; a unit does not reach from one list of blocks into the next."""
    size = int(knob(config, "blocks_per_unit") or 1)
    lists = [found.pieces for found in find_block_lists(root)]
    most = max((len(pieces) for pieces in lists), default=1)
    if size > most:
        raise ConfigError(
            f"zero_optimization.blocks_per_unit is {size}, but the longest list of repeated "
            f"blocks in the model has {most}; give it at most that."
        )
    return [list(ps[i : i + size]) for ps in lists for i in range(0, len(ps), size)]


def _prefetch(units: list[Unit], config: ResolvedConfig) -> None:
    """Let each unit's forward pass, the root's first, gather the ones after it."""
    depth = int(knob(config, "forward_prefetch") or 0)
    if depth >= len(units):
        raise ConfigError(
            f"zero_optimization.forward_prefetch is {depth}, but the model has only "
            f"{len(units) - 1} units of repeated blocks to gather ahead; give it at most that."
        )
    for index, (first, *_) in enumerate(units):
        ahead = [unit[0] for unit in units[index + 1 : index + 1 + depth]]
        if ahead:
            assert isinstance(first, FSDPModule)
            first.set_modules_to_forward_prefetch(cast(list[FSDPModule], ahead))


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
