"""Scripts that save and go on with what they saved: how, says argument 1."""
# mypy: disable-error-code="no-untyped-call, attr-defined"
# ruff: noqa: T201

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.distributed import checkpoint
from torch.utils.data import DataLoader, TensorDataset

STEPS = 20
model = nn.Linear(4, 1)
best = Path("best.pt")


def loads_after_an_evaluation_in_workers() -> None:
    torch.save(model.state_dict(), best)
    for (inputs,) in DataLoader(TensorDataset(torch.ones(4, 4)), num_workers=1):
        model.eval()
        with torch.no_grad():
            model(inputs)
    model.train().load_state_dict(torch.load(best))
    print("loaded")


def loads_what_a_helper_saved() -> None:
    context = multiprocessing.get_context("fork")
    helper = context.Process(target=torch.save, args=(model.state_dict(), best))
    helper.start()
    helper.join()
    model.load_state_dict(torch.load(best))
    print("loaded")


def loads_after_a_fork() -> None:
    torch.save(model.state_dict(), best)
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
    model.load_state_dict(torch.load(best))
    print("loaded")


def in_parts() -> None:
    """As torch.distributed.checkpoint does."""
    state = {"weight": torch.ones(2)}
    checkpoint.save(state, checkpoint_id="parts")
    state["weight"] = torch.zeros(2)
    checkpoint.load(state, checkpoint_id="parts")
    print("loaded" if state["weight"].sum() == 2 else "something else")


def train(after: Callable[[], None]) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(1, STEPS):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if number == 2:
            after()


if __name__ == "__main__":
    train(globals()[sys.argv[1]])
