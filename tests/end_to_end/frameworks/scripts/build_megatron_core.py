"""Counts the weights of the model that Megatron-LM's arguments describe, by megatron-core itself.

A port and files of arguments are given; the models are made without memory, on one rank.
"""
# mypy: ignore-errors
# ruff: noqa: T201

import dataclasses
import os
import sys
from pathlib import Path

import torch
from megatron.core import parallel_state
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.T5.t5_model import T5Model
from megatron.core.models.T5.t5_spec import (
    get_t5_decoder_with_local_block_spec,
    get_t5_encoder_with_local_block_spec,
)
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.nn import functional as F

ON_ONE_RANK = (
    "tensor_model_",
    "pipeline_model_",
    "context_",
    "expert_model_",
    "sequence_",
    "num_l",
)


def value(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def arguments(path):
    lines = [line.split() for line in Path(path).read_text().splitlines() if line[:2] == "--"]
    return {line[0][2:].replace("-", "_"): value(line[1]) if line[1:] else True for line in lines}


def config_of(said):
    fields = {field.name for field in dataclasses.fields(TransformerConfig)}
    words = {name: given for name, given in said.items() if name in fields}
    words = {name: given for name, given in words.items() if not name.startswith(ON_ONE_RANK)}
    words["num_layers"] = said.get("num_layers", said.get("decoder_num_layers"))
    words["num_moe_experts"] = said.get("num_experts")
    words["add_bias_linear"] = "disable_bias_linear" not in said
    if "swiglu" in said:
        words |= {"activation_func": F.silu, "gated_linear_unit": True}
    return TransformerConfig(**words, use_cpu_initialization=True, perform_initialization=False)


def build(said):
    config = config_of(said)
    common = {
        "config": config,
        "vocab_size": said["vocab_size"],
        "max_sequence_length": said["max_position_embeddings"],
        "position_embedding_type": said.get("position_embedding_type", "learned_absolute"),
        "share_embeddings_and_output_weights": "untie_embeddings_and_output_weights" not in said,
    }
    if "encoder_num_layers" in said:
        return T5Model(
            **common,
            encoder_config=config,
            transformer_encoder_layer_spec=get_t5_encoder_with_local_block_spec(config.num_layers),
            transformer_decoder_layer_spec=get_t5_decoder_with_local_block_spec(config.num_layers),
        )
    spec = get_gpt_layer_local_spec(
        num_experts=config.num_moe_experts, normalization=config.normalization
    )
    return GPTModel(**common, transformer_layer_spec=spec)


def main():
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": sys.argv[1]}
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    if not torch.cuda.is_available():
        torch.cuda.current_device = lambda: "cpu"
    for path in sys.argv[2:]:
        with torch.device("meta"):
            model = build(arguments(path))
        print("weights", Path(path).stem, sum(weight.numel() for weight in model.parameters()))


main()
