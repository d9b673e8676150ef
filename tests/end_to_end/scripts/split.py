"""Trains a model that tensor ranks can share out, or that MODEL says they cannot.

FAULT says what goes wrong then; a rank that dies in a collective says when on standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import torch
from torch import Tensor, nn

from autoconf_launch import runtime

MODEL = os.environ.get("MODEL", "split")
FAULT = os.environ.get("FAULT", "")
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


def mean_loss(model: nn.Module, batch: Tensor) -> Tensor:
    loss: Tensor = model(batch)
    if FAULT in ("exits", "raises"):
        loss.register_hook(die)  # type: ignore[no-untyped-call]
    return loss


def die(gradient: Tensor) -> None:
    """Rank 0 goes on, to wait for this one."""
    if steps == 2 and engine.rank == 1:
        sys.stderr.write(f"died {time.time()}\n")
        sys.stderr.flush()
        if FAULT == "exits":
            os._exit(3)
        raise ValueError("a mistake in the model")


steps = 0
engine = runtime.initialize(Split, parser.parse_args().config, loss_fn=mean_loss)
if FAULT == "no_checkpoint":
    engine.load("no/such/folder")
for steps in range(1, 61):  # noqa: B007
    batch = torch.ones(engine.global_batch, 4, 8)
    if FAULT == "other_batch":
        batch += engine.rank
    loss = engine.step(batch[engine.share])
if engine.rank == 0:
    sys.stdout.write(f"last loss {loss:.4f}\n")
