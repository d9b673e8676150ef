"""Two context ranks, and what can be wrong with a model or its batches: as the argument says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from parallel_rows import models  # type: ignore[import-not-found]

from autoconf_launch.runtime.engine import initialize

FAULT = sys.argv[1]


def own_places(module: nn.Module, positional: Any, named: Any) -> Any:
    return positional, {**named, "position_ids": torch.arange(named["input_ids"].shape[1])[None]}


def with_mask(query: Tensor, key: Tensor, value: Tensor, is_causal: bool) -> Tensor:
    mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool).tril()
    mixed: Tensor = shared(query, key, value, attn_mask=mask)
    return mixed


def loss(model: nn.Module, batch: Any) -> Tensor:
    """The model's; in one case a sum over tokens in place of their mean."""
    output = model(**batch)
    found: Tensor = getattr(output, "loss", output)
    return found * batch["labels"].numel() if FAULT == "summed" else found


def build() -> Any:
    model = models.build("llama" if FAULT in ("ignored_shifted", "none") else "own_placed")
    if FAULT == "own_places":
        model.register_forward_pre_hook(own_places, with_kwargs=True)
    return model


def change(batch: dict[str, Tensor]) -> dict[str, Tensor]:
    if FAULT == "odd_tokens":
        return {name: part[:, :14] for name, part in batch.items()}
    if FAULT.startswith("ignored"):
        return {**batch, "labels": batch["labels"].index_fill(1, torch.tensor([3]), -100)}
    if FAULT == "padded":
        return {**batch, "attention_mask": (batch["input_ids"] > 5).long()}
    if FAULT == "packed":
        return {**batch, "position_ids": torch.arange(16).remainder(8).expand(8, -1)}
    if FAULT == "other_batch":
        return {name: part.roll(engine.rank, 0) for name, part in batch.items()}
    return batch


shared = models.scaled_dot_product_attention
torch.set_num_threads(1)
if FAULT == "own_attention":
    models.scaled_dot_product_attention = F.scaled_dot_product_attention
if FAULT == "mask":
    models.scaled_dot_product_attention = with_mask
engine = initialize(
    build,
    {
        "train_micro_batch_size_per_gpu": 8,
        "parallelism": {"context": 2},
        "optimizer": {"type": "SGD", "params": {"lr": 0.1}},
    },
    loss_fn=loss,
)
if FAULT == "none":
    first, *_ = models.batches(1)
    alone = loss(build(), first)
    evaluated = engine.evaluate({name: part[engine.share] for name, part in first.items()})
    assert abs(float(evaluated) - float(alone)) < 1e-5, (evaluated, alone)
for batch in models.batches(8):
    engine.step(change(batch))
