"""A tiny model and its data, for the scripts beside this file."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WORDS, WIDTH, TOKENS = 50, 16, 8


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.qkv(self.norm(x)).unflatten(-1, (3, 2, WIDTH // 2)).unbind(-3)
        mixed = F.scaled_dot_product_attention(
            query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), is_causal=True
        )
        mixed_in: Tensor = self.down(torch.tanh(self.up(mixed.transpose(1, 2).flatten(-2))))
        return x + mixed_in


class Tiny(nn.Module):
    def __init__(self, layers: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(layers)])
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, text: Tensor, target: Tensor) -> Tensor:
        x = self.words(text)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), target.flatten())


def global_batches(samples: int, steps: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    texts = torch.randint(WORDS, (steps, samples, TOKENS), generator=generator)
    return [(text, (7 * text + 3) % WORDS) for text in texts]


def share(batch: tuple[Tensor, Tensor], rank: int, size: int) -> tuple[Tensor, Tensor]:
    text, target = (tensor[rank * size : (rank + 1) * size] for tensor in batch)
    return text, target


def config(**changes: Any) -> dict[str, Any]:
    return {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "optimizer": {"type": "SGD", "params": {"lr": 0.5, "momentum": 0.9}},
        **changes,
    }
