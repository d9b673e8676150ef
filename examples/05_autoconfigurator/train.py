"""Pretrain the model of a base configuration on a text made at run time.

    autoconf-launch recommend --family gpt3 --model-size 0.0145 --gpus 1 --tflops-per-gpu 0.05 \
        --tokens 1M --vocab 512 --seq 64 --global-batch 8 --base-config base.yaml
    python train.py --base-config base.yaml
    python train.py --base-config base.yaml --write-config config.json
    autoconf-launch --autotuning=run train.py --base-config base.yaml --config config.json

The file gives model, batch, rate and schedule; whatever ``recommend`` wrote for NeMo trains here.
Needs transformers. On a CPU it computes in fp32, whatever the file says.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import yaml
from torch.utils.data import DataLoader, Sampler

from autoconf_launch import runtime
from autoconf_launch.autotuner.recommend.native_layout import native_document
from autoconf_launch.core import RawConfig

sys.path.insert(0, str(Path(__file__).parent))
from models import build, family_of, sequence_of, vocabulary_of
from text import LEAST_VOCABULARY, Sums


class RankShare(Sampler[list[int]]):
    """This rank's part of each global batch, out of one order that all layouts share."""

    def __init__(self, engine: runtime.Engine, samples: int, steps: int) -> None:
        self.size, self.rank, self.steps = engine.samples_per_step, engine.rank, steps
        self.world_size = engine.world_size
        self.order = torch.randperm(samples, generator=torch.Generator().manual_seed(0)).tolist()

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self.steps):
            start = (step * self.world_size + self.rank) * self.size
            yield [self.order[i % len(self.order)] for i in range(start, start + self.size)]


def configuration(base: RawConfig, micro_batch: int) -> RawConfig:
    """The runtime's document, in fp32 where there is no GPU."""
    document = native_document(base, micro_batch=micro_batch)
    if torch.cuda.is_available():
        return document
    return document.with_value(("bf16", "enabled"), False)


def train(base: RawConfig, config: str | RawConfig, steps: int) -> None:
    """Train for some optimizer steps."""
    torch.manual_seed(0)
    engine = runtime.initialize(lambda: build(base), config)
    data = Sums(family_of(base), sequence_of(base))
    share = RankShare(engine, len(data), steps)
    for step, batch in enumerate(DataLoader(data, batch_sampler=share), start=1):
        loss = engine.step(batch)
        if engine.rank == 0 and (step % 10 == 0 or step == 1):
            print(f"step {step:4d}  loss {loss:.4f}", flush=True)
    if engine.rank == 0:
        print(f"done: {steps} steps, last loss {loss:.4f}", flush=True)


def main() -> None:
    """Train, or write the runtime's configuration for a search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base-config", required=True)
    parser.add_argument("--config", help="the runtime's own; by default from the base")
    parser.add_argument("--write-config", metavar="FILE", help="write that, and end")
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--local_rank", help="given by launchers; LOCAL_RANK is what counts")
    args = parser.parse_args()

    base = RawConfig(yaml.safe_load(Path(args.base_config).read_text(encoding="utf-8")))
    if vocabulary_of(base) < LEAST_VOCABULARY:
        sys.exit(f"The text needs a vocabulary of {LEAST_VOCABULARY}; give recommend --vocab.")
    document = configuration(base, args.micro_batch)
    if args.write_config:
        Path(args.write_config).write_text(document.to_json(), encoding="utf-8")
        return
    train(base, args.config or document, args.steps)


if __name__ == "__main__":
    main()
