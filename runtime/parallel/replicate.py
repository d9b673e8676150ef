"""Whole replicas whose gradients are averaged: ZeRO 0 and 1."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from autoconf_launch.core import KnobValue, ResolvedConfig

from .base import Applied, DeviceMeshes, knob_value

_MIB = 1 << 20


def apply(applied: Applied, meshes: DeviceMeshes, config: ResolvedConfig) -> Applied:
    """Wrap in DDP, which averages with the last micro-batch's backward pass only.

    Gradients live in DDP's buckets, so that they are held once, unless the configuration says
    otherwise. Buffers are equal at the start and then each rank's own, as under FSDP. DDP does
    not train a model whose weights are split: see ``fully_shard``.
    """
    if config.layout.zero_stage > 1 or not meshes.is_data_only or meshes.data.size() == 1:
        return applied
    replica = DistributedDataParallel(
        applied.module,
        process_group=meshes.data.get_group(),
        gradient_as_bucket_view=bool(knob_value(config, "gradient_as_bucket_view")),
        bucket_cap_mb=dict(config.extras).get("bucket_cap_mb"),  # None: torch's, the first small
        **_buffers_stay_local(),
    )

    def around(last: bool) -> AbstractContextManager[object]:
        return nullcontext() if last else replica.no_sync()

    return replace(applied, module=replica, around=(*applied.around, around))


def look(root: nn.Module, optimizer: Optimizer | None, zero_stage: int) -> dict[str, KnobValue]:
    """The knobs of DDP and its sharded optimizer that a live model has."""
    seen: dict[str, KnobValue] = {}
    if isinstance(root, DistributedDataParallel):
        seen["bucket_cap_mb"] = root.bucket_bytes_cap // _MIB
        seen["gradient_as_bucket_view"] = bool(root.gradient_as_bucket_view)
    if optimizer is not None and hasattr(optimizer, "parameters_as_bucket_view"):
        seen["parameters_as_bucket_view"] = bool(optimizer.parameters_as_bucket_view)
    return seen


def _buffers_stay_local() -> dict[str, Any]:
    known = inspect.signature(DistributedDataParallel).parameters
    name = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    return {name: False}


def shard_optimizer(
    optimizer: Optimizer, meshes: DeviceMeshes, config: ResolvedConfig
) -> Optimizer:
    """The optimizer with its state in shards under ZeRO 1 of whole replicas; otherwise as it is.

    ``optimizer`` must not have made a step: its kind, groups and settings carry over. Split
    weights get their own groups, as torch updates weights of several meshes one by one.
    """
    if not meshes.is_data_only:
        optimizer.param_groups[:] = [
            {**group, "params": weights}
            for group in optimizer.param_groups
            for weights in _by_mesh(group["params"])
        ]
        return optimizer
    if config.layout.zero_stage != 1:
        return optimizer
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(
        optimizer.param_groups,
        optimizer_class=type(optimizer),
        process_group=meshes.data.get_group(),
        parameters_as_bucket_view=bool(knob_value(config, "parameters_as_bucket_view")),
        **_settings(optimizer),
    )


def _settings(optimizer: Optimizer) -> dict[str, Any]:
    known = inspect.signature(type(optimizer)).parameters
    return {name: value for name, value in optimizer.defaults.items() if name in known}


def _by_mesh(weights: Iterable[Any]) -> Iterable[list[Any]]:
    meshes: dict[object, list[Any]] = {}
    for weight in weights:
        meshes.setdefault(getattr(weight, "device_mesh", None), []).append(weight)
    return meshes.values()
