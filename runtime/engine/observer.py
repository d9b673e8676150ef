"""Looks at a live model and optimizer and says which strategy runs."""

from __future__ import annotations

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from autoconf_launch.core import (
    AppliedStrategy,
    Layout,
    even_pipeline_split,
)

from ..model import base_learning_rate, precision_of, repeated_blocks
from ..parallel import (
    REPLICATE,
    SHARD,
    Applied,
    LateReduction,
    Passes,
    Pipeline,
    context_degree,
    expert_degree,
    found_extras,
    is_sequence_parallel,
    mesh_degree,
    recompute_of_blocks,
    tensor_degree,
)


class Observer:
    """Watches one block (or a model without blocks) through the first forward pass."""

    def __init__(self, applied: Applied) -> None:
        self._laid_out = applied
        self._blocks = repeated_blocks(applied.module)
        self._watched = self._blocks[0] if self._blocks else applied.module
        self._hook = self._watched.register_forward_pre_hook(self._before_forward)
        self._compute: torch.dtype = torch.float32
        self._whole_after_forward: bool | None = None

    def _before_forward(self, module: nn.Module, arguments: tuple[object, ...]) -> None:
        self._hook.remove()
        device = next(module.parameters()).device.type
        if torch.is_autocast_enabled(device):
            self._compute = torch.get_autocast_dtype(device)
        else:
            self._compute = next(module.parameters()).dtype

    def after_forward(self) -> None:
        """Look once whether the block's weights stay whole until the backward pass."""
        if self._whole_after_forward is None:
            self._whole_after_forward = not _is_sharded(self._watched)

    def strategy(self, passes: Passes, optimizer: Optimizer, layout: Layout) -> AppliedStrategy:
        """The strategy that runs; call it on all ranks, between steps, after the first one.

        ``layout`` says the batch split, which the model does not show.
        """
        module = self._laid_out.module
        recompute, layers = recompute_of_blocks(self._blocks)
        stage = self._zero_stage(optimizer)
        pipeline = passes.look() if isinstance(passes, Pipeline) else None
        schedule = pipeline.extras if pipeline else ()
        extras = found_extras(self._laid_out.roots[0], optimizer, stage)
        return AppliedStrategy(
            zero_stage=stage,
            data_parallel=_averaging_ranks(module) // context_degree(module),
            tensor_parallel=tensor_degree(module),
            context_parallel=context_degree(module),
            expert_parallel=expert_degree(module),
            sequence_parallel=is_sequence_parallel(module),
            pipeline_parallel=pipeline.ranks if pipeline else 1,
            virtual_pipeline=pipeline.stages_each if pipeline else 1,
            pipeline_split=_split_seen(pipeline.split, layout) if pipeline else None,
            micro_batch=layout.micro_batch,
            micro_batch_split=layout.micro_batch_split,
            accumulation=layout.accumulation,
            precision=precision_of(self._compute),
            recompute=recompute,
            description=self._describe(module, optimizer),
            extras=(*schedule, *layers, *extras),
            learning_rate=base_learning_rate((optimizer,)),
            optimizer=type(getattr(optimizer, "optim", optimizer)).__name__,
        )

    def _zero_stage(self, optimizer: Optimizer) -> int:
        root = self._laid_out.roots[0]
        if isinstance(root, FSDPModule):
            if isinstance(self._laid_out.around, LateReduction):
                shards, data = mesh_degree(root, SHARD), _averaging_ranks(root)
                return 0 if shards == 1 < data else 1
            return 2 if self._whole_after_forward else 3
        return 1 if type(optimizer).__name__ == "ZeroRedundancyOptimizer" else 0

    def _describe(self, module: nn.Module, optimizer: Optimizer) -> str:
        inner = getattr(optimizer, "optim", optimizer)
        shards = f", state in {type(optimizer).__name__}" if inner is not optimizer else ""
        return (
            f"{type(module).__name__} with {len(self._blocks)} repeated blocks, computes in "
            f"{str(self._compute).removeprefix('torch.')}, {type(inner).__name__}{shards}"
        )


def _split_seen(split: tuple[int, ...], layout: Layout) -> tuple[int, ...] | None:
    """None for an even one that nobody asked for."""
    is_even = split == even_pipeline_split(sum(split), len(split))
    return None if is_even and layout.pipeline_split is None else split


def _is_sharded(module: nn.Module) -> bool:
    """True if weights lie in shards of FSDP; those of tensor ranks are whole to their rank."""
    return any(
        isinstance(weight, DTensor) and SHARD in (weight.device_mesh.mesh_dim_names or ())
        for weight in module.parameters()
    )


def _averaging_ranks(module: nn.Module) -> int:
    """Data and context ranks."""
    if isinstance(module, DistributedDataParallel):
        return int(module.process_group.size())
    return mesh_degree(module, REPLICATE, SHARD)
