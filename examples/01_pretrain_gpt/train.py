"""Pretrain a small GPT, byte by byte, on the sources of Python's standard library.

    autoconf-launch --autotuning=run train.py --config config.json
    torchrun --nproc_per_node 2 train.py --config config.json
    python train.py --config config.json

The micro-batch, the accumulation, ZeRO and the rest are only in the configuration: the script
asks the engine for the number of samples of a step. The loss curve depends on the global
batch only, not on how the ranks share it.
"""

from __future__ import annotations

import argparse
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from autoconf_launch import runtime

HERE = Path(__file__).parent
BYTES = 256
TOKENS = 64
WIDTH = 128
HEADS = 4
LAYERS = 8


class Block(nn.Module):
    """Causal attention and a perceptron, each after a norm and added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """From and to (samples, tokens, width)."""
        heads = self.qkv(self.norms[0](x)).unflatten(-1, (3, HEADS, WIDTH // HEADS))
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        return x + self.mlp(self.norms[1](x))


class GPT(nn.Module):
    """A decoder over bytes; called with a text it returns the mean loss of the next byte."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(BYTES, WIDTH)
        self.position = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, BYTES)
        self.apply(self._initialize)

    @staticmethod
    def _initialize(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(self, text: Tensor) -> Tensor:
        """``text`` holds bytes as (samples, tokens + 1)."""
        x = self.token(text[:, :-1]) + self.position.weight
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), text[:, 1:].flatten())


class StandardLibrary(Dataset[Tensor]):
    """Windows of ``TOKENS + 1`` bytes of the standard library's top-level modules."""

    def __init__(self) -> None:
        sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
        text = bytearray(b"".join(path.read_bytes() for path in sources))
        self.text = torch.frombuffer(text, dtype=torch.uint8)

    def __len__(self) -> int:
        return (len(self.text) - 1) // TOKENS

    def __getitem__(self, index: int) -> Tensor:
        return self.text[index * TOKENS : (index + 1) * TOKENS + 1].long()


class RankShare(Sampler[list[int]]):
    """This rank's part of each global batch, out of one order that all layouts share."""

    def __init__(self, engine: runtime.Engine, samples: int, steps: int) -> None:
        self.engine, self.steps = engine, steps
        self.order = torch.randperm(samples, generator=torch.Generator().manual_seed(0)).tolist()

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.steps):
            start = step * self.engine.global_batch
            batch = range(start, start + self.engine.global_batch)
            yield [self.order[i % len(self.order)] for i in batch[self.engine.share]]


def main() -> None:
    """Train for a fixed number of optimizer steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default=str(HERE / "config.json"))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--local_rank", help="given by launchers; LOCAL_RANK is what counts")
    args = parser.parse_args()

    torch.manual_seed(0)
    engine = runtime.initialize(GPT, args.config)
    data = StandardLibrary()
    share = RankShare(engine, len(data), args.steps)
    for step, batch in enumerate(DataLoader(data, batch_sampler=share), start=1):
        loss = engine.step(batch)
        if engine.rank == 0 and (step % 10 == 0 or step == 1):
            print(f"step {step:4d}  loss {loss:.4f}", flush=True)
    if engine.rank == 0:
        print(f"done: {args.steps} steps, last loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
