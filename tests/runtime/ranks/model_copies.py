"""Two tensor ranks, and what can be wrong between them: the fault that the argument names."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from parallel_rows.models import (  # type: ignore[import-not-found]
    BLOCK_PLAN,
    WIDTH,
    Split,
    batches,
)

from autoconf_launch.runtime.engine import initialize

FAULT = sys.argv[1]


class Scale(nn.Module):
    """A whole weight between columns and rows."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def build() -> Any:
    torch.manual_seed(0)
    plan = {"half_tied": {**BLOCK_PLAN, "words": "rowwise"}, "no_blocks": {"words": "rowwise"}}
    model = Split(plan.get(FAULT, BLOCK_PLAN), tied=FAULT == "half_tied")
    for block in model.blocks:
        if FAULT == "whole_between":
            block.scale = Scale()
            block.up.register_forward_hook(lambda module, inputs, out, at=block: at.scale(out))
        if FAULT == "dropout":
            block.norm = nn.Sequential(nn.LayerNorm(WIDTH), nn.Dropout(0.5))
    torch.manual_seed(int(os.environ["RANK"]))  # as scripts do whose dropout is to differ
    return model


torch.set_num_threads(1)
engine = initialize(
    build,
    {
        "train_micro_batch_size_per_gpu": 8,
        "parallelism": {"tensor": 2, "sequence_parallel": FAULT in ("odd_tokens", "no_blocks")},
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
    },
)
for batch in batches(8):
    tokens = 15 if FAULT == "odd_tokens" else 16
    shift = engine.rank if FAULT == "other_batch" else 0
    engine.step({name: part[engine.share, :tokens].roll(shift, 0) for name, part in batch.items()})
