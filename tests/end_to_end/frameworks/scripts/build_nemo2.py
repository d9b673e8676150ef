"""Builds every part of an exported recipe by NeMo 2.0 and counts its model's weights.

What needs a GPU or Transformer Engine is left out: the trainer, fused rotary positions, the
flash backend and norms around zero. None of these has weights.
"""
# mypy: ignore-errors
# ruff: noqa: T201

import os
import runpy
import sys
from pathlib import Path

import fiddle
import torch
from megatron.core import parallel_state
from megatron.core.transformer.enums import AttnBackend


class NoStream:
    """Experts ask for one."""

    def __init__(self, *_, **__):
        pass


def build(path):
    recipe = runpy.run_path(path, run_name="recipe")["recipe"]
    if hasattr(recipe.model.config, "apply_rope_fusion"):
        recipe.model.config.apply_rope_fusion = False
    if hasattr(recipe.model.config, "attention_backend"):
        recipe.model.config.attention_backend = AttnBackend.auto
    for part in (recipe.trainer.strategy, recipe.trainer.plugins, recipe.optim, recipe.log):
        fiddle.build(part)
    data, config = fiddle.build(recipe.data), fiddle.build(recipe.model.config)
    config.use_cpu_initialization, config.perform_initialization = True, False
    config.sequence_parallel = config.layernorm_zero_centered_gamma = False
    for fused in ("gradient_accumulation_fusion", "masked_softmax_fusion", "persist_layer_norm"):
        setattr(config, fused, False)
    ends = {} if hasattr(config, "encoder_num_layers") else {"pre_process": 1, "post_process": 1}
    with torch.device("meta"):
        return config.configure_model(data.tokenizer, **ends)


def main():
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": sys.argv[1]}
    torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    if not torch.cuda.is_available():
        torch.cuda.current_device = lambda: "cpu"
        torch.cuda.Stream = NoStream
    for path in sys.argv[2:]:
        model = build(path)
        print("weights", Path(path).stem, sum(weight.numel() for weight in model.parameters()))


main()
