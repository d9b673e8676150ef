"""Trains on our engine epoch by epoch, evaluates and saves: argument 1 says when, or what fails.

Prints the length of each batch that goes through the model, with a ``v`` where it is evaluated.
"""
# mypy: disable-error-code="no-untyped-call, no-any-return, attr-defined"

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import torch
import torch.distributed as dist
from tiny import config  # type: ignore[import-not-found]
from torch import Tensor, nn
from torch.utils.data import DataLoader

from autoconf_launch.runtime.engine import Engine, initialize
from autoconf_launch.runtime.rank import task_from_environment

HOW = sys.argv[1]
WITHIN, SLOW_S, EPOCHS, BATCHES = 4, 0.5, 2, 20
LENGTHS = [24 if number == 1 else 8 for number in range(BATCHES)]


class Model(nn.Module):
    """Says what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 4)

    def forward(self, text: Tensor) -> Tensor:
        sys.stdout.write(f"{'' if self.training else 'v'}{text.shape[1]}\n")
        return self.layer(text).square().mean()


class Texts(torch.utils.data.Dataset[Tensor]):
    """Batches of one length each, but for one."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> Tensor:
        return torch.randn(self.samples, LENGTHS[index], 16)


def ahead(batches: Iterator[Tensor]) -> Iterator[Tensor]:
    current = next(batches)
    for following in batches:
        yield current
        current = following
    yield current


@torch.no_grad()
def evaluate(engine: Engine, model: nn.Module) -> None:
    engine.module.eval()
    evaluated = model if HOW == "inside" else engine.module
    if HOW == "average":
        evaluated = deepcopy(evaluated)
    for text in list(DataLoader(Texts(2), batch_size=None))[:3]:
        evaluated(text)
    if HOW == "no_memory":
        torch.empty(1 << 60)
    if HOW == "no_metric":
        raise ZeroDivisionError("nothing to divide by")
    time.sleep(SLOW_S)
    engine.module.train()


def pause(engine: Engine, model: nn.Module) -> None:
    if HOW == "saves_over" or engine.rank == 0:
        torch.save(engine.module if HOW == "whole" else model.state_dict(), "checkpoint.pt")
    if HOW == "plain" and engine.rank == 0:
        Path("losses.txt").write_text("none")
    evaluate(engine, model)
    if dist.is_initialized():
        dist.barrier()


def main() -> None:
    task = task_from_environment()
    work = Path(f"{task.folder}-work" if task else ".")
    work.mkdir(exist_ok=True)
    os.chdir(work)
    torch.manual_seed(0)
    model = Model()
    zero = {"stage": 3 if HOW == "sharded" else 0}
    engine = initialize(model, config(zero_optimization=zero))
    if HOW == "plain" and engine.rank == 0:
        Path("data.txt").write_text("made before the training")
    loader = DataLoader(Texts(engine.samples_per_step), batch_size=None)
    steps = 0
    for _ in range(EPOCHS):
        batches = iter([*loader]) if HOW == "by_hand" else iter(loader)
        for text in ahead(batches) if HOW == "ahead" else batches:
            engine.step(text)
            steps += 1
            if HOW == "within" and steps == WITHIN:
                pause(engine, model)
        if HOW == "broken":
            raise ValueError(f"an epoch must have {BATCHES} batches")
        if HOW not in ("within", "nothing"):
            pause(engine, model)
    sys.stdout.write("the end\n")


if __name__ == "__main__":
    main()
