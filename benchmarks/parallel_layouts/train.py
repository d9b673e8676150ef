"""Train a small Llama or Mixtral of transformers' classes on random tokens.

python train.py --model llama --config config.json
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from autoconf_launch import runtime

WORDS, TOKENS, WIDTH, HEADS, LAYERS = 1024, 32, 512, 8, 8
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"intermediate_size": 3 * WIDTH},
    "mixtral": {
        "intermediate_size": WIDTH,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
    },
}


def build(name: str) -> nn.Module:
    """A decoder with random weights."""
    title = name.capitalize()
    shape = getattr(transformers, f"{title}Config")(
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS // 2,
        head_dim=WIDTH // HEADS,
        vocab_size=WORDS,
        max_position_embeddings=TOKENS,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
        use_cache=False,
        attn_implementation="sdpa",
        **SHAPES[name],
    )
    model: nn.Module = getattr(transformers, f"{title}ForCausalLM")(shape)
    return model


def batches(engine: runtime.Engine, steps: int) -> Iterator[dict[str, Tensor]]:
    """This rank's samples of each step."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        texts = torch.randint(WORDS, (engine.global_batch, TOKENS), generator=generator)
        mine = texts[engine.share]
        yield {"input_ids": mine, "labels": mine}


def main() -> None:
    """Train for a fixed number of optimizer steps."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=SHAPES, default="llama")
    parser.add_argument("--config", required=True)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--local_rank", help="given by launchers; LOCAL_RANK is what counts")
    options = parser.parse_args()
    torch.manual_seed(0)
    engine = runtime.initialize(lambda: build(options.model), options.config)
    for batch in batches(engine, options.steps):
        engine.step(batch)


if __name__ == "__main__":
    main()
