"""Trainings of one small model, each in its own way; the first argument says which.

None of them may come to a step: each would print it, and save a file.
"""
# mypy: disable-error-code="no-untyped-call, no-any-return"
# ruff: noqa: T201

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader

SAMPLES, WIDTH, CLASSES, TOKENS = 16, 64, 8, 128


class Config:
    def to_dict(self) -> dict[str, Any]:
        return {"model_type": "llama", "hidden_size": WIDTH}


class Model(nn.Module):
    def __init__(self, *, recompute: bool = False, looks: bool = False) -> None:
        super().__init__()
        layers = (nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(4))
        self.layers = nn.ModuleList(layers)
        self.out = nn.Linear(WIDTH, CLASSES)
        self.recompute, self.looks = recompute, looks

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        if self.looks and x.sum().item() > 1e9:
            x = x / 2
        return self.out(x)


def batch() -> tuple[Tensor, Tensor]:
    return torch.randn(SAMPLES, WIDTH), torch.randint(0, CLASSES, (SAMPLES,))


def train(
    model: nn.Module,
    loss: Callable[[], Tensor] | None = None,
    make: Callable[[Any], torch.optim.Optimizer] = torch.optim.AdamW,
) -> None:
    optimizer = make(model.parameters())
    for _ in range(3):
        x, y = batch()
        value = loss() if loss else cross_entropy(model(x), y)
        value.backward()
        optimizer.step()
        print("a step was made")
        Path("checkpoint.pt").touch()


def reads_its_loss() -> None:
    model = Model()

    def loss() -> Tensor:
        x, y = batch()
        value = cross_entropy(model(x), y)
        if not torch.isfinite(value) or value.item() > 1e6:
            raise ValueError("the loss is not finite")
        return value

    train(model, loss)


def evaluates_first() -> None:
    model = Model()
    with torch.no_grad():
        for _ in range(3):
            model(batch()[0])
    train(model)


def tries_it_first() -> None:
    model = Model()
    model(torch.ones(3, WIDTH))
    train(model)


def with_teacher() -> None:
    """``sys.argv[2]`` says when the teacher is called."""
    when, model = sys.argv[2], Model()
    teacher = Model().requires_grad_(when == "not frozen")
    if when == "for all data":
        for _ in range(100):
            teacher(batch()[0])
    data: Any = [torch.randn(WIDTH) for _ in range(2 * SAMPLES)]
    if when == "for another batch":
        for x in DataLoader(data, SAMPLES):
            teacher(x)

    def loss() -> Tensor:
        x = next(iter(DataLoader(data, SAMPLES))) if when == "for another batch" else batch()[0]
        if when in ("before", "not frozen"):
            with torch.no_grad():
                wanted = teacher(x)
            return (model(x) - wanted).square().mean()
        own = model(x)
        wanted = teacher(x) if when == "after" else torch.zeros_like(own)
        return (own - wanted).square().mean()

    train(model, loss)


def in_two_parts() -> None:
    whole = nn.ModuleDict({"body": nn.Linear(WIDTH, WIDTH), "head": nn.Linear(WIDTH, CLASSES)})

    def loss() -> Tensor:
        x, y = batch()
        return cross_entropy(whole["head"](torch.relu(whole["body"](x))), y)

    train(whole, loss)


def with_momentum() -> None:
    train(Model(), make=lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9))


def configure() -> None:
    model = Model()
    model.config = Config()  # type: ignore[assignment]
    train(model)


def on_a_gpu() -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "RANK": "0", "WORLD_SIZE": "1"}
    os.environ["MASTER_PORT"] = sys.argv[2]
    dist.init_process_group("nccl")
    torch.cuda.set_device(0)
    model = torch.compile(Model().cuda())
    wrapped = nn.parallel.DistributedDataParallel(model, device_ids=[0])
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    optimizer = torch.optim.AdamW(wrapped.parameters())
    x = torch.randn(SAMPLES, WIDTH, device="cuda")
    y = torch.zeros(SAMPLES, dtype=torch.long).pin_memory().to("cuda:0", non_blocking=True)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = cross_entropy(wrapped(x), y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    print("a step was made")


def swallows_everything() -> None:
    atexit.register(Path("at_exit.txt").touch)
    Path("before.txt").touch()
    try:
        train(Model())
    except BaseException:
        print("a step was made")
    finally:
        Path("finally.txt").touch()


def runs_out_of_memory() -> None:
    model = Model()

    def loss() -> Tensor:
        raise torch.OutOfMemoryError("no room for the batch")

    train(model, loss)


def asks_for_tf32() -> None:
    """Each way that torch or a framework has for it."""
    if sys.argv[2] == "matmul_precision":
        torch.set_float32_matmul_precision("high")
    elif sys.argv[2] == "allow_tf32":
        torch.backends.cuda.matmul.allow_tf32 = True
    elif sys.argv[2] == "everywhere":
        torch.backends.fp32_precision = "tf32"  # type: ignore[attr-defined]
    elif sys.argv[2] == "fp32_precision":
        torch.backends.cuda.matmul.fp32_precision = "tf32"
    else:
        from transformers import TrainingArguments

        asked: dict[str, Any] = dict.fromkeys(sys.argv[2:], True)
        TrainingArguments(output_dir="out", report_to="none", **asked)
    train(Model())


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x)[0][:, -1]


def recurrent() -> None:
    model = Recurrent()
    train(model, lambda: model(torch.randn(SAMPLES, TOKENS, WIDTH)).square().mean())


def graphs() -> None:
    """Each sample has a different number of rows."""
    data: Any = [torch.randn(20 + place % 7, WIDTH) for place in range(64)]
    loader = DataLoader(data, batch_size=4, collate_fn=torch.cat)
    model = Model()
    for x in loader:
        model(x).square().mean().backward()


KINDS: dict[str, Callable[[], None]] = {
    "plain": lambda: train(Model()),
    "looks": lambda: train(Model(looks=True)),
    "recomputes": lambda: train(Model(recompute=True)),
    "reads_its_loss": reads_its_loss,
    "evaluates_first": evaluates_first,
    "tries_it_first": tries_it_first,
    "with_teacher": with_teacher,
    "in_two_parts": in_two_parts,
    "with_momentum": with_momentum,
    "configured": configure,
    "on_a_gpu": on_a_gpu,
    "swallows_everything": swallows_everything,
    "runs_out_of_memory": runs_out_of_memory,
    "asks_for_tf32": asks_for_tf32,
    "recurrent": recurrent,
    "graphs": graphs,
    "never": lambda: None,
}
KINDS[sys.argv[1]]()
