"""Trains epoch by epoch, then evaluates and saves: argument 1 says how, or what goes wrong.

Prints the length of each batch that it trains on.
"""
# mypy: disable-error-code="no-untyped-call, no-any-return, attr-defined"

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

HOW = sys.argv[1]
BATCHES, LONGEST, EPOCHS = 20, 3, 2
LENGTHS = [LONGEST * 8 if number == LONGEST else 8 for number in range(BATCHES)]


Batch: TypeAlias = dict[str, Any]


class Texts(torch.utils.data.Dataset[Batch]):
    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> Batch:
        return {"text": torch.randn(2, LENGTHS[index], 16)}


def loader(workers: int = 0) -> DataLoader[Batch]:
    return DataLoader(
        Texts(), batch_size=None, num_workers=workers, persistent_workers=workers > 0
    )


def ahead(batches: Iterator[Batch]) -> Iterator[Batch]:
    """Each batch is drawn before it is trained on."""
    current = next(batches)
    for following in batches:
        yield current
        current = following
    yield current


def draw(data: DataLoader[Batch]) -> Iterator[Batch]:
    if HOW == "ahead":
        return ahead(iter(data))
    if HOW == "by_hand":
        return iter([{"text": torch.randn(2, length, 16)} for length in LENGTHS])
    if HOW == "at_once":
        return iter(list(data))
    if HOW == "endless":
        return (batch for _ in range(99) for batch in data)
    if HOW == "cannot_end":
        steps = iter(data)
        return iter([next(steps) if n < 2 else {"steps": steps} for n in range(BATCHES)])
    return iter(data)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    if "steps" in batch:
        batch = next(batch["steps"])
    text = batch.pop("text")
    sys.stdout.write(f"{text.shape[1]}\n")
    sys.stdout.flush()
    loss = model(text).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


@torch.no_grad()
def evaluate(model: nn.Module, data: DataLoader[Batch]) -> None:
    model.eval()
    outputs = [model(batch["text"]) for batch in data]
    if HOW == "survives":
        lacking = model.register_forward_pre_hook(lambda *_: torch.empty(1 << 60))
        with suppress(RuntimeError):
            model(torch.randn(2, 8, 16))
        lacking.remove()
    if HOW == "no_memory":
        torch.empty(1 << 60)
    if HOW == "no_metric":
        raise ZeroDivisionError(f"{len(outputs)} cannot be divided by nothing")
    model.train()


def after_epoch(model: nn.Module, *, speaks: bool) -> None:
    if HOW == "broken":
        raise ValueError(f"an epoch must have {BATCHES} batches")
    if HOW == "fails_to_save":
        torch.save(model.state_dict(), "no/such/folder/checkpoint.pt")
    if HOW != "nothing" and speaks:
        evaluate(model, loader())
        torch.save(model.state_dict(), "checkpoint.pt")
    if dist.is_initialized():
        dist.barrier()


def main() -> None:
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))
    inside, speaks = model, True
    if HOW in ("ranks", "one_rank_by_hand"):
        dist.init_process_group("gloo")
        model, speaks = DistributedDataParallel(model), dist.get_rank() == 0
    optimizer = torch.optim.AdamW(model.parameters())
    data = loader()
    if HOW == "workers":
        data = loader(workers=1)
    for _ in range(EPOCHS):
        by_hand = HOW == "one_rank_by_hand" and not speaks
        for batch in list(loader()) if by_hand else draw(data):
            train(model, optimizer, batch)
        after_epoch(inside, speaks=speaks)


if __name__ == "__main__":
    main()
    sys.stdout.write("the end\n")
