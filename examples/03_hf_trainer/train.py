"""Train a small Llama on sums, made at run time, with Hugging Face's Trainer.

    python train.py --output_dir sums --per_device_train_batch_size 2 \
        --gradient_accumulation_steps 8
    autoconf-launch --autotuning=run --num_gpus 2 train.py \
        --output_dir sums --per_device_train_batch_size 2 --gradient_accumulation_steps 8

Without a GPU add --use_cpu, without which Trainer does not join ranks on a CPU. Nothing in the
script is ours. Needs transformers and accelerate; neither weights nor data are downloaded.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import torch
from torch.utils.data import Dataset
from transformers import (
    HfArgumentParser,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
    set_seed,
)


@dataclass
class Choices:
    """Arguments of this script besides TrainingArguments."""

    hidden_size: int = field(default=128, metadata={"help": "Width of the model."})
    layers: int = field(default=2, metadata={"help": "Transformer blocks."})
    sequence: int = field(default=64, metadata={"help": "Bytes of a sample."})
    samples: int = field(default=2048, metadata={"help": "Samples of an epoch."})


class Sums(Dataset[dict[str, torch.Tensor]]):
    """Lines like ``17+25=42`` as bytes, cut into samples of one length."""

    def __init__(self, samples: int, sequence: int) -> None:
        numbers, text = random.Random(0), bytearray()
        while len(text) < samples * sequence:
            first, second = numbers.randrange(100), numbers.randrange(100)
            text += f"{first}+{second}={first + second}\n".encode()
        tokens = torch.frombuffer(text, dtype=torch.uint8)[: samples * sequence]
        self.tokens = tokens.long().view(samples, sequence)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def main() -> None:
    """Parse the command line, train, save."""
    parser = HfArgumentParser((Choices, TrainingArguments))
    choices, arguments = parser.parse_args_into_dataclasses()
    set_seed(arguments.seed)
    config = LlamaConfig(
        vocab_size=128,
        hidden_size=choices.hidden_size,
        intermediate_size=4 * choices.hidden_size,
        num_hidden_layers=choices.layers,
        num_attention_heads=4,
        max_position_embeddings=choices.sequence,
        use_cache=False,
    )
    trainer = Trainer(
        model=LlamaForCausalLM(config),
        args=arguments,
        train_dataset=Sums(choices.samples, choices.sequence),
    )
    trainer.train()
    trainer.save_model()


if __name__ == "__main__":
    main()
