"""Pretrain a small GPT whose every degree of parallelism is searched.

    autoconf-launch --autotuning=run --num_gpus 4 train.py --config config.json

The model is plain torch. Ranks can share it out because it has a ``tensor_plan``, blocks in a
ModuleList, the attention of ``autoconf_launch.runtime`` and ``position_ids``.
"""

from __future__ import annotations

import argparse
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, Sampler

from autoconf_launch import runtime

HERE = Path(__file__).parent
BYTES = 256
WIDTH = 64
HEAD = 8
LAYERS = 8


class Block(nn.Module):
    """Causal attention and a perceptron, each after a norm and added to its input.

    Each product is a separate Linear, so that ranks can share out the heads.
    """

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """From and to (samples, tokens, width)."""
        normed = self.attention_norm(x)
        query, key, value = (
            part(normed).unflatten(-1, (-1, HEAD)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = runtime.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(-2))
        added: Tensor = self.down(F.gelu(self.up(self.mlp_norm(x))))
        return x + added


class GPT(nn.Module):
    """A decoder over bytes that returns the mean loss."""

    tensor_plan: ClassVar = {
        "blocks.*.query": "colwise",
        "blocks.*.key": "colwise",
        "blocks.*.value": "colwise",
        "blocks.*.out": "rowwise",
        "blocks.*.up": "colwise",
        "blocks.*.down": "rowwise",
    }

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.token = nn.Embedding(BYTES, WIDTH)
        self.position = nn.Embedding(tokens, WIDTH)
        self.blocks = nn.ModuleList([Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, BYTES)
        self.apply(self._initialize)

    @staticmethod
    def _initialize(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)

    def forward(
        self, input_ids: Tensor, labels: Tensor, position_ids: Tensor | None = None
    ) -> Tensor:
        """All are (samples, tokens); ranks that share out the tokens are given their places."""
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.token(input_ids) + self.position(position_ids)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), labels.flatten())


class StandardLibrary(Dataset[dict[str, Tensor]]):
    """Windows of bytes of the standard library's top-level modules, with the byte after each."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        sources = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
        text = bytearray(b"".join(path.read_bytes() for path in sources))
        self.text = torch.frombuffer(text, dtype=torch.uint8)

    def __len__(self) -> int:
        return (len(self.text) - 1) // self.tokens

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        window = self.text[index * self.tokens : (index + 1) * self.tokens + 1].long()
        return {"input_ids": window[:-1], "labels": window[1:]}


class RankShare(Sampler[list[int]]):
    """This rank's part of each global batch: the same one for all ranks of a model copy."""

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
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=128, help="of a sample")
    parser.add_argument("--local_rank", help="given by launchers; LOCAL_RANK is what counts")
    args = parser.parse_args()

    torch.manual_seed(0)
    engine = runtime.initialize(lambda: GPT(args.tokens), args.config)
    data = StandardLibrary(args.tokens)
    share = RankShare(engine, len(data), args.steps)
    for step, batch in enumerate(DataLoader(data, batch_sampler=share), start=1):
        loss = engine.step(batch)
        if engine.rank == 0 and (step % 10 == 0 or step == 1):
            print(f"step {step:4d}  loss {loss:.4f}", flush=True)
    if engine.rank == 0:
        print(f"done: {args.steps} steps, last loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
