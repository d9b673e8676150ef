"""A training script that goes well or wrong in the way that its argument names."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from tiny import (  # type: ignore[import-not-found]
    WIDTH,
    WORDS,
    Tiny,
    config,
    global_batches,
    share,
)
from torch import Tensor, nn

from autoconf_launch.core import END_FILE
from autoconf_launch.runtime.engine import initialize
from autoconf_launch.runtime.rank import task_from_environment

NAME = sys.argv[1]
STEPS = {"ends_before_it_counts": 2, "ends_early": 4}.get(NAME, 8)
TOLD = {"told_to_end_at_3": 3, "told_to_end_at_1": 1, "told_to_end_at_7": 7, "told_late": 99}
CONFIGS = {
    "unknown_parameter": config(optimizer={"type": "SGD", "params": {"momentun": 0.9}}),
    "long_step": config(gradient_accumulation_steps=64),
    "long_sharded_step": config(gradient_accumulation_steps=64, zero_optimization={"stage": 3}),
    "slow_steps": config(gradient_accumulation_steps=4),
}
SLEEP_S = 0.1
HUGE = 1 << 28


class Big(Tiny):  # type: ignore[misc]
    """30 MB of weights in one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.big = nn.Linear(WIDTH, 30_000_000 // 4 // WIDTH)


class Untraceable(Tiny):  # type: ignore[misc]
    """Its path depends on data, which fake tensors do not have."""

    def forward(self, text: Tensor, target: Tensor) -> Tensor:
        mean: Tensor = super().forward(text, target)
        return mean * (1.0 if text.sum().item() >= 0 else 2.0)


class Simple(nn.Module):
    """TorchScript can say it."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WORDS)

    def forward(self, text: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.words(text).flatten(0, 1), target.flatten())


def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    mean: Tensor = model(*batch)
    if NAME in ("long_step", "long_sharded_step", "slow_steps"):
        time.sleep(SLEEP_S * (1 + engine.rank))
    if engine.steps < 2:
        return mean
    if NAME == "not_finite":
        return mean * float("nan")
    if NAME == "raises_in_step":
        raise ValueError("a mistake in the model")
    if NAME == "needs_too_much" or (NAME == "one_of_two_needs_too_much" and engine.rank == 1):
        return mean + torch.ones(HUGE).square().sum() * 0.0
    return mean


class Progress:
    steps = 0
    rank = 0


MODELS = {
    "big": Big,
    "big_and_built": Big(),
    "untraceable": Untraceable,
    "to_torchscript": Simple,
}

engine = Progress()
model: Any = MODELS.get(NAME, Tiny)
live = initialize(model, CONFIGS.get(NAME, config()), loss_fn=loss)
engine.rank = live.rank
for batch in global_batches(live.samples_per_step * live.world_size, STEPS):
    if NAME == "slow_loader":
        time.sleep(SLEEP_S)
    live.step(share(batch, live.rank, live.samples_per_step))
    engine.steps += 1
    if NAME in TOLD and live.rank == 0 and engine.steps == 2:
        task = task_from_environment()
        assert task
        Path(task.folder, END_FILE).write_text(f"{task.attempt} {TOLD[NAME]}")
    if NAME == "to_torchscript":
        inside: Any = torch.jit.script(getattr(live.module, "module", live.module))
        sys.stdout.write(f"{inside(*batch).dim()}\n")
    if NAME == "helper_fails" and engine.steps == 3:
        if (helper := os.fork()) == 0:
            raise KeyError("a mistake in a helper")
        os.waitpid(helper, 0)
        task = task_from_environment()
        assert task
        sys.stdout.write(f"{[path.name for path in Path(task.folder).glob('result*')]}\n")
    if NAME == "raises_between_steps" and engine.steps == 1:
        raise KeyError("a mistake in the script")
sys.stdout.write("reached the end")
