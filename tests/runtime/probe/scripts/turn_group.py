"""Launches of a group, which differ: each does what the argument of its place says."""
# mypy: disable-error-code="no-untyped-call, no-any-return, attr-defined"
# ruff: noqa: T201

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

PLACE = int(os.environ["PLACE"])
LOG = Path(os.environ["LOG"])


def note(what: str) -> None:
    """A line in a file that all launches share, without ``open``: that gives each its own."""
    log = os.open(LOG, os.O_WRONLY | os.O_APPEND)
    os.write(log, f"{PLACE} {what}\n".encode())
    os.close(log)


def train(steps: int = 100, *, sleep_s: float = 0.0) -> Iterator[int]:
    """Yield after each step; its computation is noted at its begin and its end."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    for number in range(1, steps + 1):
        note(f"begins {number}")
        time.sleep(sleep_s)
        model(torch.randn(8, 4)).sum().backward()
        note(f"ends {number}")
        optimizer.step()
        optimizer.zero_grad()
        yield number


def plain() -> None:
    list(train(sleep_s=0.01))


def short() -> None:
    """Fewer steps than are asked for."""
    list(train(steps=4, sleep_s=0.01))


def exits() -> None:
    for number in train(sleep_s=0.01):
        if number == 4:
            sys.exit(0)


def leaves_suddenly() -> None:
    for number in train(sleep_s=0.01):
        if number == 4:
            os._exit(0)


def catches() -> None:
    """An error in each third step, after which it goes on."""
    for number in train(sleep_s=0.01):
        if number % 3 == 0:
            try:
                nn.Linear(4, 1)(torch.randn(2, 5)).sum().backward()
            except RuntimeError as error:
                print("caught", type(error).__name__)


def slow_start() -> None:
    time.sleep(1.0)
    plain()


def gan() -> None:
    """The larger optimizer steps after the smaller one, and sets the pace from there on."""
    small, large = nn.Linear(4, 1), nn.Linear(4, 64)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in (small, large)]
    for number in range(1, 101):
        for model, optimizer in zip((small, large), optimizers, strict=True):
            note(f"begins {number}")
            model(torch.randn(8, 4)).sum().backward()
            note(f"ends {number}")
            optimizer.step()


class Counts(Dataset[Tensor]):
    """Samples that take as long as it takes to count."""

    def __len__(self) -> int:
        return 10_000

    def __getitem__(self, number: int) -> Tensor:
        end_s = time.process_time() + 0.05
        while time.process_time() < end_s:
            pass
        return torch.randn(4)


def data_bound() -> None:
    """Steps wait for a worker, which counts for 50 ms for each of them."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in DataLoader(Counts(), batch_size=1, num_workers=1):
        model(batch).sum().backward()
        optimizer.step()


def long_steps() -> None:
    list(train(sleep_s=0.15))


def two_ranks() -> None:
    dist.init_process_group("gloo")
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    for number in range(1, 101):
        note(f"begins {number}")
        model(torch.randn(8, 4)).sum().backward()
        note(f"ends {number}")
        optimizer.step()


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1 + PLACE]]()
    note("is over")
