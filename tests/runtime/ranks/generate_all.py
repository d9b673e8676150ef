"""Texts of models of several families on these ranks: one JSON list of answers."""

from __future__ import annotations

import json
import sys
from typing import Any

from autoconf_launch.core import ConfigError, GenerationTask, Layout, RawConfig
from autoconf_launch.runtime.generation import prepare_generator
from autoconf_launch.runtime.rank import Ranks, join

STACK = {
    "num_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "ffn_hidden_size": 128,
    "kv_channels": 16,
    "init_method_std": 0.02,
    "hidden_dropout": 0.1,
}
FURTHER: dict[str, dict[str, Any]] = {
    "llama": {"num_query_groups": 2},
    "mixtral": {"num_moe_experts": 4, "moe_router_topk": 2},
}


def base_of(family: str) -> RawConfig:
    """A tiny model of a family, with 512 tokens and 128 positions."""
    stack = {**STACK, **FURTHER.get(family, {})}
    model = {"encoder": stack, "decoder": stack} if family == "t5" else stack
    return RawConfig(
        {
            "autoconf": {"family": family, "vocab_size": 512},
            "model": {**model, "data": {"seq_length": 128}},
        }
    )


def answer(ranks: Ranks, family: str, layout: dict[str, Any], input_len: int) -> dict[str, Any]:
    """The tokens and what this rank holds, or why there are none."""
    asked = GenerationTask(
        layout=Layout(**layout, micro_batch=3), input_len=input_len, output_len=9
    )
    try:
        generator = prepare_generator(base_of(family), asked, ranks).load()
    except ConfigError as error:
        return {"refused": str(error)}
    first, second = generator.write(), generator.write()
    return {
        "tokens": first.tokens.tolist(),
        "again": second.tokens.tolist(),
        "weights": sum(weight.numel() for weight in generator.model.parameters()),
        "cache": generator.cache_numel,
    }


if __name__ == "__main__":
    ranks = join()
    answers = [answer(ranks, *case) for case in json.loads(sys.argv[1])]
    if ranks.rank == 0:
        sys.stdout.write(json.dumps(answers))
