"""ZeRO 1: each rank keeps the optimizer state of a part of the weights."""

from __future__ import annotations

import inspect
from typing import Any

from torch.distributed.device_mesh import DeviceMesh
from torch.optim import Optimizer

from autoconf_launch.core import ResolvedConfig

from .extras import knob


def shard_optimizer(optimizer: Optimizer, mesh: DeviceMesh, config: ResolvedConfig) -> Optimizer:
    """The same optimizer with its state in shards under ZeRO 1; otherwise as it is.

    ``optimizer`` must not have made a step: its kind, groups and settings carry over.
    """
    if config.layout.zero_stage != 1:
        return optimizer
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(
        optimizer.param_groups,
        optimizer_class=type(optimizer),
        process_group=mesh.get_group(),
        parameters_as_bucket_view=bool(knob(config, "parameters_as_bucket_view")),
        **_settings(optimizer),
    )


def _settings(optimizer: Optimizer) -> dict[str, Any]:
    known = inspect.signature(type(optimizer)).parameters
    return {name: value for name, value in optimizer.defaults.items() if name in known}
