"""Two ranks that share a model; the first argument says how."""
# mypy: disable-error-code="no-untyped-call, no-any-return, attr-defined"
# ruff: noqa: T201

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

WIDTH, BATCH = 16, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.down(torch.relu(self.up(hidden)))


class Model(nn.Module):
    def __init__(self, contexts: Any = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, 1)
        self.contexts = contexts

    def forward(self, hidden: Tensor) -> Tensor:
        for block in self.blocks:
            if self.contexts:
                hidden = checkpoint(block, hidden, use_reentrant=False, context_fn=self.contexts)
            else:
                hidden = block(hidden)
        return self.head(hidden).mean()


def fsdp2(reshard: bool = True) -> nn.Module:
    model = Model()
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=reshard)
    fully_shard(model, reshard_after_forward=reshard)
    return model


def fsdp1(strategy: ShardingStrategy = ShardingStrategy.FULL_SHARD) -> nn.Module:
    policy = ModuleWrapPolicy({Block})
    return FullyShardedDataParallel(
        Model(),
        auto_wrap_policy=policy,
        sharding_strategy=strategy,
        device_id=torch.device("cpu"),
        use_orig_params=True,
    )


def tensor_parallel() -> nn.Module:
    model = Model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def selective() -> nn.Module:
    def policy(_: Any, operator: Any, *arguments: Any, **named: Any) -> CheckpointPolicy:
        kept = operator in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default)
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return Model(contexts=partial(create_selective_checkpoint_contexts, policy))


def bf16() -> nn.Module:
    model = Model()
    inner = model.forward

    def forward(hidden: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return inner(hidden)

    model.forward = forward  # type: ignore[method-assign]
    return model


HOW: dict[str, Callable[[], nn.Module]] = {
    "fsdp2": fsdp2,
    "fsdp2_keeps": partial(fsdp2, False),
    "fsdp1": fsdp1,
    "fsdp1_keeps": partial(fsdp1, ShardingStrategy.SHARD_GRAD_OP),
    "tensor_parallel": tensor_parallel,
    "selective": selective,
    "bf16": bf16,
}


def main() -> None:
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = HOW[sys.argv[1]]()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(40):
        model(torch.randn(BATCH, WIDTH)).backward()
        optimizer.step()
        optimizer.zero_grad()
    print("reached the end")


if __name__ == "__main__":
    main()
