"""A Hugging Face Trainer script as people write it: a tiny Llama from a config, its own text."""
# mypy: ignore-errors
# ruff: noqa: T201

import os
import sys
from dataclasses import dataclass

import torch
from torch.utils.data import Dataset
from transformers import (
    HfArgumentParser,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)


@dataclass
class ModelArguments:
    hidden_size: int = 64
    samples: int = 256
    sequence: int = 32
    greedy_from: int = 0


class Text(Dataset):
    def __init__(self, samples: int, sequence: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(0, 128, (samples, sequence), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def main() -> None:
    parser = HfArgumentParser((ModelArguments, TrainingArguments))
    if len(sys.argv) == 2 and sys.argv[1].endswith(".json"):
        own, training = parser.parse_json_file(sys.argv[1])
    elif len(sys.argv) == 2 and sys.argv[1].endswith((".yaml", ".yml")):
        own, training = parser.parse_yaml_file(sys.argv[1])
    else:
        own, training = parser.parse_args_into_dataclasses()
    torch.manual_seed(training.seed)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=own.hidden_size,
        intermediate_size=2 * own.hidden_size,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=own.sequence,
        use_cache=False,
    )
    model = LlamaForCausalLM(config)
    if own.greedy_from and os.environ.get("RANK") == "1":
        model.register_forward_pre_hook(
            lambda module, arguments, named: (
                torch.empty(2**50) if len(named["input_ids"]) >= own.greedy_from else None
            ),
            with_kwargs=True,
        )
    text = Text(own.samples, own.sequence)
    trainer = Trainer(model=model, args=training, train_dataset=text, eval_dataset=text)
    trainer.train()
    trainer.save_model()
    if trainer.is_world_process_zero():
        batch = training.per_device_train_batch_size * training.gradient_accumulation_steps
        batch *= training.world_size
        print(f"trained {trainer.state.global_step} steps of {batch} samples")


main()
