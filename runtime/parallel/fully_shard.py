"""FSDP2: gradients (ZeRO 2) or weights too (ZeRO 3) live in shards.

It also makes ZeRO 0 and 1, in place of DDP, if weights are split in another way, too.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, cast

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.optim import Optimizer

from autoconf_launch.core import (
    FIRST_FSDP_STAGE,
    ConfigError,
    KnobValue,
    Precision,
    ResolvedConfig,
)

from ..model import DTYPES, find_block_lists, repeated_blocks
from .base import Applied, DeviceMeshes, copy_weights, knob_value
from .expert import shard_experts

Unit: TypeAlias = list[nn.Module]
"""Modules whose weights are gathered at once."""


def apply(applied: Applied, meshes: DeviceMeshes, config: ResolvedConfig) -> Applied:
    """Shard the repeated blocks, one or several to a unit, then the rest with the root.

    Gradients are reduced to shards after each micro-batch, which keeps them small.
    ZeRO 2 keeps the whole weights from a step's first micro-batch to its last. ZeRO 0 and 1 of
    split weights reduce with the last micro-batch; ZeRO 0 is FSDP over shards of one rank.

    Raises:
        ConfigError: the model has fewer blocks, or units, than the configuration asks for.
    """
    stage = config.layout.zero_stage
    if stage < FIRST_FSDP_STAGE and meshes.is_data_only:
        return applied
    if stage == 0 and meshes.data.size() == 1:
        return applied
    if meshes.is_data_only:
        copy_weights(applied.module, meshes.world)
    for root in applied.roots:
        _shard(root, meshes, config)
    if stage > FIRST_FSDP_STAGE:
        return applied
    roots = cast(tuple[FSDPModule, ...], applied.roots)
    late = stage < FIRST_FSDP_STAGE
    kind = LateReduction if late else WeightsKept
    return replace(applied, around=(*applied.around, kind(roots)))


def _shard(root: nn.Module, meshes: DeviceMeshes, config: ResolvedConfig) -> None:
    units = _units(root, config)
    is_last_stage = config.layout.zero_stage > FIRST_FSDP_STAGE
    after: Any = knob_value(config, "reshard_after_forward") if is_last_stage else False
    root_after = after if knob_value(config, "reshard_root") else False
    shard: Any = partial(fully_shard, mp_policy=_policy(config.precision))
    alone = shard_experts(root, meshes, partial(shard, reshard_after_forward=bool(after)))
    shard = partial(shard, mesh=meshes.data, ignored_params=alone)
    for unit in units:
        # A list of one would get other hooks than its module.
        shard(unit if len(unit) > 1 else unit[0], reshard_after_forward=after)
    shard(root, reshard_after_forward=root_after)
    _prefetch([[root], *units], config)


def _units(root: nn.Module, config: ResolvedConfig) -> list[Unit]:
    """Blocks in their order; a unit does not reach from one list of blocks into the next."""
    size = int(knob_value(config, "blocks_per_unit") or 1)
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
    depth = int(knob_value(config, "forward_prefetch") or 0)
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


def look(root: nn.Module, optimizer: Optimizer | None, zero_stage: int) -> dict[str, KnobValue]:
    """The knobs of FSDP2 that a live model has; below stage 2 it replaces DDP."""
    if not isinstance(root, FSDPModule) or zero_stage == 0:
        return {}
    seen: dict[str, KnobValue] = {"shard_ranks": _shard_ranks(root)}
    if zero_stage < FIRST_FSDP_STAGE:
        return seen
    modules = [module for module in root.modules() if isinstance(module, FSDPModule)]
    blocks = [block for block in repeated_blocks(root) if isinstance(block, FSDPModule)]
    units = Counter(id(_state(block)) for block in blocks)
    return seen | {
        "blocks_per_unit": max(units.values(), default=1),
        "forward_prefetch": max(len(_state(m)._states_to_forward_prefetch) for m in modules),
        "reshard_after_forward": _reshards(blocks[0] if blocks else root),
        "reshard_root": _reshards(root) is not False,
    }


def _shard_ranks(root: nn.Module) -> bool | int:
    """The number of ranks that share each weight; True: all that train on different samples."""
    groups = [_state(m)._fsdp_param_group for m in root.modules() if isinstance(m, FSDPModule)]
    mesh: Any = next(group for group in groups if group is not None).mesh_info
    copied = getattr(mesh, "replicate_mesh_size", 1) > 1
    return int(mesh.shard_mesh_size) if copied else True


def _reshards(module: FSDPModule) -> bool | int:
    """True if a unit's weights go back to shards, or over how many ranks if not over all."""
    group: Any = _state(module)._fsdp_param_group
    if group is None:
        return True
    after = group.post_forward_mesh_info
    if after is None:
        return False
    size = int(after.shard_mesh_size)
    return size if size < group.mesh_info.shard_mesh_size else True


def _state(module: FSDPModule) -> Any:
    """Internals of torch that nothing public shows; tests fail when a new torch moves them."""
    return module._get_fsdp_state()


class WeightsKept:
    """Around a micro-batch: whole weights stay until the step's last micro-batch."""

    def __init__(self, roots: tuple[FSDPModule, ...]) -> None:
        self._roots = roots

    def __call__(self, last: bool) -> AbstractContextManager[None]:
        for root in self._roots:
            root.set_reshard_after_backward(last)
        return nullcontext()


class LateReduction(WeightsKept):
    """Gradients stay whole, too, and are reduced only with the last micro-batch."""

    def __call__(self, last: bool) -> AbstractContextManager[None]:
        for root in self._roots:
            root.set_requires_gradient_sync(last)
        return super().__call__(last)
