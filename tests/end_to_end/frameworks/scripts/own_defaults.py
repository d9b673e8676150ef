"""A Trainer script that changes the defaults of arguments, as libraries on top do."""
# mypy: ignore-errors
# ruff: noqa: T201

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
class FineTuningArguments(TrainingArguments):
    per_device_train_batch_size: int = 4
    gradient_accumulation_steps: int = 2
    gradient_checkpointing: bool = True


class Text(Dataset):
    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(0, 128, (128, 32), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def main() -> None:
    (training,) = HfArgumentParser(FineTuningArguments).parse_args_into_dataclasses()
    torch.manual_seed(training.seed)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=32,
        use_cache=False,
    )
    trainer = Trainer(model=LlamaForCausalLM(config), args=training, train_dataset=Text())
    trainer.train()
    batch = training.per_device_train_batch_size * training.gradient_accumulation_steps
    print(f"trained {trainer.state.global_step} steps of {batch} samples")
    print(f"recomputed: {training.gradient_checkpointing}")


main()
