"""Train a small Mixtral, with random weights, on sums that the script makes.

    autoconf-launch --autotuning=run --num_gpus 2 train.py --config config.json
    torchrun --nproc_per_node 2 train.py --config config.json

The number of ranks that share out the experts is set only in the configuration, like the
micro-batch and ZeRO. Needs transformers; neither weights nor data are downloaded.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from transformers import MixtralConfig, MixtralForCausalLM

from autoconf_launch import runtime

HERE = Path(__file__).parent
TOKENS = 64


def build() -> MixtralForCausalLM:
    """Two blocks of sixteen experts, two of which see each token: 6.5 million weights."""
    config = MixtralConfig(
        vocab_size=128,
        hidden_size=128,
        intermediate_size=512,
        num_local_experts=16,
        num_experts_per_tok=2,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=TOKENS,
        use_cache=False,
    )
    return MixtralForCausalLM(config)


def sums(samples: int, generator: random.Random) -> Tensor:
    """Lines like ``17+25=42`` as bytes, cut into samples of one length."""
    text = bytearray()
    while len(text) < samples * TOKENS:
        first, second = generator.randrange(100), generator.randrange(100)
        text += f"{first}+{second}={first + second}\n".encode()
    return torch.frombuffer(text, dtype=torch.uint8)[: samples * TOKENS].long().view(samples, -1)


def shares(engine: runtime.Engine, steps: int) -> Iterator[dict[str, Tensor]]:
    """This rank's part of each global batch, out of batches that all layouts share."""
    generator = random.Random(0)
    for _ in range(steps):
        part = sums(engine.global_batch, generator)[engine.share]
        yield {"input_ids": part, "labels": part}


def main() -> None:
    """Train for a fixed number of optimizer steps, and save a model that transformers loads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", default=str(HERE / "config.json"))
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--save", metavar="FOLDER", help="write the trained weights here")
    parser.add_argument("--local_rank", help="given by launchers; LOCAL_RANK is what counts")
    args = parser.parse_args()

    torch.manual_seed(0)
    engine = runtime.initialize(build, args.config)
    for step, batch in enumerate(shares(engine, args.steps), start=1):
        loss = engine.step(batch)
        if engine.rank == 0 and (step % 10 == 0 or step == 1):
            print(f"step {step:4d}  loss {loss:.4f}", flush=True)
    if args.save:
        engine.save(args.save, consolidated=True)


if __name__ == "__main__":
    main()
