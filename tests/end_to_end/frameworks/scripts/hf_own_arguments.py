"""A Trainer script with additional arguments, which saves at each epoch and can resume."""
# mypy: ignore-errors
# ruff: noqa: T201

import argparse

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch.utils.data import Dataset
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)


class Text(Dataset):
    def __init__(self, samples: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.tokens = torch.randint(0, 128, (samples, 32), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=8)
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--resume", action="store_true")
own = parser.parse_args()
training = TrainingArguments(
    output_dir="out",
    save_strategy="epoch",
    eval_strategy="epoch",
    load_best_model_at_end=True,
    per_device_train_batch_size=own.batch_size,
    num_train_epochs=own.epochs,
    use_cpu=True,
    report_to="none",
)
config = LlamaConfig(
    vocab_size=128,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
    max_position_embeddings=32,
)
words = Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="b"))
trainer = Trainer(
    model=LlamaForCausalLM(config),
    args=training,
    train_dataset=Text(88),
    eval_dataset=Text(16),
    processing_class=PreTrainedTokenizerFast(tokenizer_object=words, pad_token="a"),
)
trainer.train(resume_from_checkpoint=own.resume or None)
trainer.save_model()
print(f"trained {trainer.state.global_step} steps of {own.batch_size} samples")
