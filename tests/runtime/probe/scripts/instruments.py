"""Scripts that look at their own training or compile parts of it: how, says argument 1."""
# mypy: disable-error-code="no-untyped-call, no-any-return, attr-defined"
# ruff: noqa: T201

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections.abc import Iterator
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils.flop_counter import FlopCounterMode

STEPS = 20
INPUTS = torch.ones(2, 4)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layer(inputs)


model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.0)


def step() -> Tensor:
    optimizer.zero_grad()
    loss = model(INPUTS).pow(2).mean()
    loss.backward()
    optimizer.step()
    return loss


def graphs() -> int:
    return counters["stats"]["unique_graphs"]


def scripts_its_model() -> Iterator[object]:
    while True:
        step()
        yield tuple(torch.jit.script(model)(INPUTS).shape)


def counts_flops() -> Iterator[object]:
    while True:
        with FlopCounterMode(display=False) as flops:
            step()
        yield flops.get_total_flops(), _get_current_dispatch_mode()


def evaluates_after_each_step() -> Iterator[object]:
    modes: list[object] = []
    model.layer.register_forward_hook(lambda *_: modes.append(_get_current_dispatch_mode()))
    while True:
        step()
        model.eval()
        with torch.no_grad():
            model(INPUTS)
        model.train()
        yield modes.pop()


def keeps_tensors_elsewhere() -> Iterator[object]:
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    while True:
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            step()
        yield len(kept)


def changes_its_loss() -> Iterator[object]:
    """As a sum over ranks does, in place."""
    while True:
        total = step().detach()
        total *= 1000.0
        yield total.item()


def drops_its_model() -> Iterator[object]:
    global model, optimizer
    for _ in range(4):
        step()
    old = weakref.ref(model)
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    gc.collect()
    yield "lives" if old() else "is gone"
    while True:
        yield step().item()


def compiles_the_optimizers_step() -> Iterator[object]:
    compiled = torch.compile(lambda: optimizer.step(), backend="eager")
    while True:
        model(INPUTS).pow(2).mean().backward()
        compiled()
        yield graphs()


def calls_its_model_compiled_and_not() -> Iterator[object]:
    compiled = torch.compile(lambda: model(INPUTS).pow(2).mean(), backend="eager")
    model(INPUTS)
    while True:
        compiled().backward()
        optimizer.step()
        yield graphs()


def compiles_under_autocast() -> Iterator[object]:
    """The model's weights are fp32."""
    compiled = torch.compile(lambda: model(INPUTS).pow(2).mean(), backend="eager")
    model(INPUTS)
    while True:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = compiled()
        loss.backward()
        optimizer.step()
        yield graphs()


def compiles_a_model_in_bf16() -> Iterator[object]:
    compiled = torch.compile(model.to(torch.bfloat16), backend="eager")
    while True:
        compiled(INPUTS.to(torch.bfloat16)).pow(2).mean().backward()
        optimizer.step()
        yield graphs()


def counts_flops_under_autocast() -> Iterator[object]:
    while True:
        with FlopCounterMode(display=False), torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(INPUTS).pow(2).mean()
        loss.backward()
        with FlopCounterMode(display=False):
            optimizer.step()
            yield 0


def compiles_slowly() -> Iterator[object]:
    """By a backend that takes a second."""

    def slow(graph: Any, inputs: object) -> Any:
        time.sleep(1.0)
        return graph.forward

    compiled = torch.compile(model, backend=slow)
    while True:
        compiled(INPUTS).pow(2).mean().backward()
        optimizer.step()
        yield 0


if __name__ == "__main__":
    torch.manual_seed(0)
    for shown in islice(globals()[sys.argv[1]](), STEPS):
        print(shown, flush=True)
