"""Looks at a live model and optimizer and says which strategy runs. Not: what was asked for."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from autoconf_launch.core import AppliedStrategy, Precision, Recompute

from ..model import DTYPES, base_learning_rate, repeated_blocks
from ..parallel import found_extras, recompute_of

_PRECISIONS = {dtype: precision for precision, dtype in DTYPES.items()}


class Observer:
    """Watches one block (or a model without blocks) through the first forward pass."""

    def __init__(self, model: nn.Module) -> None:
        self._blocks = repeated_blocks(model)
        self._watched = self._blocks[0] if self._blocks else model
        self._hook = self._watched.register_forward_pre_hook(self._before_forward)
        self._compute: torch.dtype = torch.float32
        self._whole_after_forward = True

    def _before_forward(self, module: nn.Module, arguments: tuple[object, ...]) -> None:
        self._hook.remove()
        device = next(module.parameters()).device.type
        if torch.is_autocast_enabled(device):
            self._compute = torch.get_autocast_dtype(device)
        else:
            self._compute = next(module.parameters()).dtype

    def after_forward(self) -> None:
        """Look whether the block's weights stay whole until the backward pass."""
        self._whole_after_forward = not _is_sharded(self._watched)

    def strategy(
        self, module: nn.Module, optimizer: Optimizer, *, micro_batch: int, accumulation: int
    ) -> AppliedStrategy:
        """What runs; to be asked between steps, after the first one."""
        modes = {recompute_of(block) for block in self._blocks}
        recompute = modes.pop() if len(modes) == 1 else Recompute.NONE
        stage = self._zero_stage(module, optimizer)
        return AppliedStrategy(
            zero_stage=stage,
            data_parallel=_data_parallel(module),
            micro_batch=micro_batch,
            accumulation=accumulation,
            precision=_PRECISIONS.get(self._compute, Precision.FP32),
            recompute=recompute,
            description=self._describe(module, optimizer),
            extras=found_extras(module, optimizer),
            learning_rate=base_learning_rate((optimizer,)),
            optimizer=type(getattr(optimizer, "optim", optimizer)).__name__,
        )

    def _zero_stage(self, module: nn.Module, optimizer: Optimizer) -> int:
        if _is_sharded(module):
            return 2 if self._whole_after_forward else 3
        return 1 if type(optimizer).__name__ == "ZeroRedundancyOptimizer" else 0

    def _describe(self, module: nn.Module, optimizer: Optimizer) -> str:
        inner = getattr(optimizer, "optim", optimizer)
        shards = f", state in {type(optimizer).__name__}" if inner is not optimizer else ""
        return (
            f"{type(module).__name__} with {len(self._blocks)} repeated blocks, computes in "
            f"{str(self._compute).removeprefix('torch.')}, {type(inner).__name__}{shards}"
        )


def _is_sharded(module: nn.Module) -> bool:
    return any(isinstance(parameter, DTensor) for parameter in module.parameters())


def _data_parallel(module: nn.Module) -> int:
    if isinstance(module, DistributedDataParallel):
        return int(module.process_group.size())
    for parameter in module.parameters():
        data: Tensor = parameter
        if isinstance(data, DTensor):
            return data.device_mesh.size()
    return 1
