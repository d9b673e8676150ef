"""Scripts that call their model in other ways than a tutorial does: how, says argument 1."""
# mypy: disable-error-code="no-untyped-call, no-any-return, attr-defined"
# ruff: noqa: T201

from __future__ import annotations

import copy
import io
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

WIDTH, BATCH = 16, 6


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + self.down(torch.relu(self.up(hidden)))


class Model(nn.Module):
    """Takes nothing but keywords; recomputes its blocks where asked."""

    def __init__(self, recompute: str = "", blocks: int = 3) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.head = nn.Linear(WIDTH, 2)
        self.recompute = recompute

    def forward(self, *, inputs: Tensor, labels: Tensor | None = None) -> Tensor:
        for block in self.blocks:
            if self.recompute and self.training:
                reentrant = self.recompute == "reentrant"
                inputs = checkpoint(block, inputs, use_reentrant=reentrant)
            else:
                inputs = block(inputs)
        logits = self.head(inputs)
        return logits if labels is None else nn.functional.cross_entropy(logits, labels)


def batches(size: int = BATCH, count: int = 40) -> Iterator[tuple[Tensor, Tensor]]:
    for _ in range(count):
        yield torch.randn(size, WIDTH), torch.randint(0, 2, (size,))


def train(model: nn.Module, call: Callable[..., Tensor], size: int = BATCH) -> None:
    optimizer = torch.optim.AdamW(model.parameters())
    for inputs, labels in batches(size):
        call(inputs, labels).backward()
        optimizer.step()
        optimizer.zero_grad()


def keyword_only() -> None:
    model = Model()
    train(model, lambda inputs, labels: model(inputs=inputs, labels=labels))


def recomputes(how: str) -> None:
    model = Model(how)

    def call(inputs: Tensor, labels: Tensor) -> Tensor:
        return model(inputs=inputs.requires_grad_(), labels=labels)

    train(model, call)


def reentrant() -> None:
    recomputes("reentrant")


def not_reentrant() -> None:
    recomputes("not reentrant")


def another_model_first() -> None:
    probe = nn.Linear(WIDTH, 2)
    optimizer = torch.optim.SGD(probe.parameters(), lr=0.1)
    for inputs, labels in batches(size=2, count=3):
        nn.functional.cross_entropy(probe(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    keyword_only()


def one_model_per_fold() -> None:
    for _ in range(3):
        model = nn.Linear(WIDTH, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for inputs, labels in batches(count=3):
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
            optimizer.zero_grad()


def evaluates() -> None:
    """Every third step is followed by a slow evaluation."""
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    for number, (inputs, labels) in enumerate(batches(), start=1):
        model.train()
        model(inputs=inputs, labels=labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        if number % 3 == 0:
            model.eval()
            with torch.no_grad():
                for evaluated, _ in batches(size=50, count=4):
                    time.sleep(0.1)
                    model(inputs=evaluated)


def evaluates_first_with_gradients() -> None:
    model = Model().eval()
    for inputs, labels in batches(size=50, count=2):
        model(inputs=inputs, labels=labels)
    model.train()
    train(model, lambda inputs, labels: model(inputs=inputs, labels=labels))


def pipeline_stage() -> None:
    """All forward passes of a step's micro-batches, then all backward passes."""
    stage = Model()
    optimizer = torch.optim.AdamW(stage.parameters())
    for inputs, labels in batches(size=8):
        pieces = zip(inputs.chunk(4), labels.chunk(4), strict=True)
        losses = [stage(inputs=one, labels=two) for one, two in pieces]
        for loss in losses:
            torch.autograd.backward(loss / 4)
        optimizer.step()
        optimizer.zero_grad()


def one_forward_one_backward() -> None:
    """The schedule 1F1B of a first stage."""
    stage = Model()
    optimizer = torch.optim.AdamW(stage.parameters())
    for inputs, labels in batches(size=8):
        pieces = list(zip(inputs.chunk(4), labels.chunk(4), strict=True))
        waiting = [stage(inputs=one, labels=two) for one, two in pieces[:2]]
        for one, two in pieces[2:]:
            waiting.append(stage(inputs=one, labels=two))
            waiting.pop(0).backward()
        for loss in waiting:
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def copies() -> None:
    """Keeps an average of the model and saves both, hooks and all."""
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    for inputs, labels in batches():
        model(inputs=inputs, labels=labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        average = copy.deepcopy(model)
        with torch.no_grad():
            average(inputs=inputs)
        saved = io.BytesIO()
        torch.save(average, saved)
        saved.seek(0)
        torch.load(saved, weights_only=False)(inputs=inputs)


def compiled_model() -> None:
    model: Any = torch.compile(Model())
    train(model, lambda inputs, labels: model(inputs=inputs, labels=labels))


def compiled_in_place() -> None:
    model = Model()
    model.compile()
    train(model, lambda inputs, labels: model(inputs=inputs, labels=labels))


def compiled_function() -> None:
    model = Model()

    @torch.compile(fullgraph=True)
    def loss_of(inputs: Tensor, labels: Tensor) -> Tensor:
        return model(inputs=inputs, labels=labels)

    train(model, loss_of)


class Attention(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        heads = inputs.view(len(inputs), 1, 4, WIDTH // 4)
        return nn.functional.scaled_dot_product_attention(heads, heads, heads).flatten(1)


def attends() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), Attention(), nn.Linear(WIDTH, 2))
    train(model, lambda inputs, labels: nn.functional.cross_entropy(model(inputs), labels))


def large() -> None:
    """Weights, gradients and moments of 16 MB each."""
    model = nn.Linear(2000, 2000)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(10):
        model(torch.randn(4, 2000)).sum().backward()
        optimizer.step()


def uneven(*shapes: tuple[int, ...]) -> None:
    """Activations of 32 MB each in the large steps."""
    model = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for shape in shapes * 4:
        model(torch.randn(*shape, 256)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def short_second_batch() -> None:
    uneven((1 << 15,), (16,))


def longer_later() -> None:
    uneven((4, 16), (4, 16), (4, 1 << 13))


def calls_forward() -> None:
    model = Model()
    train(model, lambda inputs, labels: model.forward(inputs=inputs, labels=labels))


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
    print("reached the end")
