"""Trains a model that context ranks can share out, on samples of TOKENS tokens."""

from __future__ import annotations

import argparse
import os
import sys

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from autoconf_launch import runtime

TOKENS = int(os.environ.get("TOKENS", "16"))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.inner(x).unflatten(-1, (6, 4)).transpose(1, 2).chunk(3, 1)
        mixed = runtime.scaled_dot_product_attention(query, key, value, is_causal=True)
        added: Tensor = self.outer(mixed.transpose(1, 2).flatten(-2))
        return x + added


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(32, 8)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])

    def forward(self, text: Tensor, following: Tensor) -> Tensor:
        x = self.words(text)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy((x @ self.words.weight.T).flatten(0, 1), following.flatten())


parser = argparse.ArgumentParser()
parser.add_argument("--config")
parser.add_argument("--local_rank")
engine = runtime.initialize(Decoder, parser.parse_args().config)
numbers = torch.Generator().manual_seed(0)
for _ in range(60):
    text = torch.randint(32, (engine.global_batch, TOKENS + 1), generator=numbers)
    loss = engine.step((text[engine.share, :-1], text[engine.share, 1:]))
if engine.rank == 0:
    sys.stdout.write(f"last loss {loss:.4f}\n")
