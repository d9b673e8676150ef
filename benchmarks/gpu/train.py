"""The script that is tuned on one GPU: plain PyTorch, without any code for the tuner.

It trains on random tokens, because only speed and memory are measured.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A decoder; ``gated`` ones are built as Llama's, others as GPT-2's."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    ffn: int
    vocabulary: int
    tokens: int
    gated: bool = False


SHAPES = {
    "gpt2": Shape(
        layers=12, width=768, heads=12, kv_heads=12, ffn=3072, vocabulary=50257, tokens=1024
    ),
    "gpt2-medium": Shape(
        layers=24, width=1024, heads=16, kv_heads=16, ffn=4096, vocabulary=50257, tokens=1024
    ),
    "gpt2-large": Shape(
        layers=36, width=1280, heads=20, kv_heads=20, ffn=5120, vocabulary=50257, tokens=1024
    ),
    "gpt2-xl": Shape(
        layers=48, width=1600, heads=25, kv_heads=25, ffn=6400, vocabulary=50257, tokens=1024
    ),
    "llama3.2-1b": Shape(
        layers=16,
        width=2048,
        heads=32,
        kv_heads=8,
        ffn=8192,
        vocabulary=128256,
        tokens=2048,
        gated=True,
    ),
    "llama3.2-3b": Shape(
        layers=28,
        width=3072,
        heads=24,
        kv_heads=8,
        ffn=8192,
        vocabulary=128256,
        tokens=2048,
        gated=True,
    ),
    "tiny": Shape(layers=2, width=64, heads=4, kv_heads=2, ffn=128, vocabulary=256, tokens=32),
}


class Block(nn.Module):
    """Attention and a perceptron, each after a norm and added to what came in."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width, head = shape.width, shape.width // shape.heads
        norm = nn.RMSNorm if shape.gated else nn.LayerNorm
        self.shape, self.head = shape, head
        self.norms = nn.ModuleList([norm(width), norm(width)])
        self.query = nn.Linear(width, width, bias=not shape.gated)
        self.key_value = nn.Linear(width, 2 * shape.kv_heads * head, bias=not shape.gated)
        self.out = nn.Linear(width, width, bias=not shape.gated)
        self.up = nn.Linear(width, (1 + shape.gated) * shape.ffn, bias=not shape.gated)
        self.down = nn.Linear(shape.ffn, width, bias=not shape.gated)

    def forward(self, x: Tensor, turns: Tensor) -> Tensor:
        """From and to (samples, tokens, width)."""
        inside = self.norms[0](x)
        query = self.query(inside).unflatten(-1, (self.shape.heads, self.head)).transpose(1, 2)
        pairs = self.key_value(inside).unflatten(-1, (2, self.shape.kv_heads, self.head))
        key, value = pairs.permute(2, 0, 3, 1, 4)
        if self.shape.gated:
            query, key = turn(query, turns), turn(key, turns)
        few = self.shape.kv_heads < self.shape.heads
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=few)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        wide = self.up(self.norms[1](x))
        if self.shape.gated:
            gate, wide = wide.chunk(2, dim=-1)
            return x + self.down(F.silu(gate) * wide)
        return x + self.down(F.gelu(wide))


def turn(heads: Tensor, turns: Tensor) -> Tensor:
    """Rotary positions; ``turns`` is (tokens, head / 2) of angles."""
    even, odd = heads.float().chunk(2, dim=-1)
    cos, sin = turns.cos(), turns.sin()
    both = torch.cat((even * cos - odd * sin, odd * cos + even * sin), dim=-1)
    return both.to(heads.dtype)


class Decoder(nn.Module):
    """Called with tokens it returns the mean loss of the next one."""

    def __init__(self, shape: Shape, *, recompute: bool) -> None:
        super().__init__()
        self.shape, self.recompute = shape, recompute
        self.words = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(0 if shape.gated else shape.tokens, shape.width)
        self.blocks = nn.ModuleList([Block(shape) for _ in range(shape.layers)])
        self.norm = nn.RMSNorm(shape.width) if shape.gated else nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.head.weight = self.words.weight
        half = shape.width // shape.heads // 2
        rate = 10000.0 ** (-torch.arange(half) / half)
        turns = torch.arange(shape.tokens)[:, None] * rate
        self.register_buffer("turns", turns, persistent=False)

    def forward(self, text: Tensor) -> Tensor:
        """``text`` is (samples, tokens + 1)."""
        x = self.words(text[:, :-1])
        if not self.shape.gated:
            x = x + self.positions.weight
        for block in self.blocks:
            if self.recompute:
                x = checkpoint(block, x, self.turns, use_reentrant=False)
            else:
                x = block(x, self.turns)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), text[:, 1:].flatten())


def train(model: nn.Module, options: argparse.Namespace, shape: Shape) -> None:
    """Train on random tokens, and print loss and seconds of each optimizer step."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    samples = options.steps * options.accumulation * options.batch_size
    texts = torch.randint(shape.vocabulary, (samples, shape.tokens + 1))
    loader = DataLoader(TensorDataset(texts), batch_size=options.batch_size, drop_last=True)
    half = torch.autocast(DEVICE.type, torch.bfloat16, enabled=options.precision == "bf16")
    began_s = time.perf_counter()
    for number, (text,) in enumerate(loader, start=1):
        with half:
            loss = model(text.to(DEVICE))
        (loss / options.accumulation).backward()
        if number % options.accumulation == 0:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            step, last_loss = number // options.accumulation, loss.item()
            ended_s = time.perf_counter()
            print(f"step {step} loss {last_loss:.4f} {ended_s - began_s:.4f} s", flush=True)
            began_s = ended_s


def main() -> None:
    """Build the model that the command line asks for, and train it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=sorted(SHAPES), default="gpt2-large")
    parser.add_argument("--batch_size", type=int, default=1)
    parser.add_argument("--accumulation", type=int, default=32)
    parser.add_argument("--checkpointing", choices=("none", "full"), default="none")
    parser.add_argument("--compile", type=int, choices=(0, 1), default=0)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    shape = SHAPES[options.model]
    torch.manual_seed(0)
    with DEVICE:
        model: nn.Module = Decoder(shape, recompute=options.checkpointing == "full")
    if options.compile:
        model.compile()
    train(model, options, shape)


if __name__ == "__main__":
    main()
