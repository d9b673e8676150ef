"""Trains a model that tensor ranks can share out, or that MODEL says they cannot."""

from __future__ import annotations

import argparse
import os
import sys

import torch
from torch import Tensor, nn

from autoconf_launch import runtime

MODEL = os.environ.get("MODEL", "split")
WIDTH = 5 if MODEL == "odd" else 8


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 8)

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = self.down(torch.tanh(self.up(x)))
        return x + added


class Split(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        if MODEL != "bare":
            self.tensor_plan = {"blocks.*.up": "colwise", "blocks.*.down": "rowwise"}
        self.blocks = nn.Sequential(Block(), Block())

    def forward(self, x: Tensor) -> Tensor:
        mean: Tensor = self.blocks(x).square().mean()
        return mean


parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--local_rank")
engine = runtime.initialize(Split, parser.parse_args().config)
for _ in range(60):
    loss = engine.step(torch.ones(engine.global_batch, 4, 8)[engine.share])
if engine.rank == 0:
    sys.stdout.write(f"last loss {loss:.4f}\n")
