"""Trains a model that tensor, context and pipeline ranks can share out, but for what MODEL says.

FAULT says what goes wrong then; a rank that dies in a collective says when on standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autoconf_launch import runtime

MODEL = os.environ.get("MODEL", "split")
FAULT = os.environ.get("FAULT", "")
WIDTH = 5 if MODEL == "odd" else 8
TOKENS = 10 if MODEL == "short" else 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.Linear(8, 24)
        self.up, self.down = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 8)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.heads(x).unflatten(-1, (6, 4)).transpose(1, 2).chunk(3, 1)
        mixed = runtime.scaled_dot_product_attention(query, key, value, is_causal=True)
        added: Tensor = self.down(torch.tanh(self.up(mixed.transpose(1, 2).flatten(-2))))
        return x + added


class Split(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        if MODEL != "bare":
            self.tensor_plan = {"blocks.*.up": "colwise", "blocks.*.down": "rowwise"}
        self.words = nn.Embedding(32, 8)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(8, 32)

    def forward(self, text: Tensor, following: Tensor) -> Tensor:
        x = self.words(text)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), following.flatten())


parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--local_rank")


def mean_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    loss: Tensor = model(*batch)
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
numbers = torch.Generator().manual_seed(0)
for steps in range(1, 61):  # noqa: B007
    text = torch.randint(32, (engine.global_batch, TOKENS + 1), generator=numbers)
    if FAULT == "other_batch":
        text = text.roll(engine.rank, 0)
    engine.step((text[engine.share, :-1], text[engine.share, 1:]))
