"""Trains, evaluates and saves in its loop: argument 1 says what happens in the pause."""
# mypy: disable-error-code="no-untyped-call, no-any-return, attr-defined"

from __future__ import annotations

import io
import os
import signal
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

AFTER, SLOW_S = 3, 0.5


def pauses(model: nn.Module, how: str) -> None:
    if how == "saves":
        torch.save(model.state_dict(), "checkpoint.pt")
        time.sleep(SLOW_S)
        torch.save({"epoch": 1}, "note.pt")
        return
    if how == "fails_to_save":
        torch.save(model.state_dict(), "no/such/folder/checkpoint.pt")
    if how == "saves_to_memory":
        torch.save(model.state_dict(), io.BytesIO())
        return
    evaluates(model, how)


def evaluates(model: nn.Module, how: str) -> None:
    model.eval()
    with torch.no_grad():
        for _ in range(4):
            model(torch.randn(4, 16))
            if how == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
    if how == "collects":
        torch.ones(1 << 25)
    if how == "collects_too_much":
        torch.empty(1 << 60)
    time.sleep(SLOW_S)  # as metrics of all batches take
    model.train()
    if how == "trains_on_too_much":
        model.register_forward_hook(lambda *_: torch.empty(1 << 60))


def train(model: nn.Module, pause: Callable[[], None]) -> None:
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(TensorDataset(torch.randn(80, 16)), batch_size=4)
    for number, (inputs,) in enumerate(loader, start=1):
        loss: Tensor = model(inputs).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if number == AFTER:
            pause()


def main() -> None:
    how = sys.argv[1]
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
    if how == "inside_ddp":
        dist.init_process_group("gloo")
        inside, wrapped = model, DistributedDataParallel(model)
        train(wrapped, lambda: evaluates(inside, how) if dist.get_rank() == 0 else None)
    else:
        train(model, lambda: pauses(model, how))


if __name__ == "__main__":
    main()
