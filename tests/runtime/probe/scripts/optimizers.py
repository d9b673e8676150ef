"""Scripts with other optimizers than one; the first argument says which."""
# mypy: disable-error-code="no-untyped-call, no-any-return, attr-defined"
# ruff: noqa: T201

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 5


def loader(count: int = 200) -> DataLoader[tuple[Tensor, ...]]:
    data = TensorDataset(torch.randn(count, 8), torch.randint(0, 2, (count,)))
    return DataLoader(data, batch_size=BATCH)


def gan() -> None:
    """Two steps for each batch, as in the DCGAN example; the discriminator is the larger one."""
    generator = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8))
    discriminator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
    take_turns(generator, discriminator)


def gan_with_a_large_generator() -> None:
    generator = nn.Sequential(nn.Linear(3, 64), nn.ReLU(), nn.Linear(64, 8))
    discriminator = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 1))
    take_turns(generator, discriminator)


def take_turns(generator: nn.Module, discriminator: nn.Module) -> None:
    of_generator = torch.optim.Adam(generator.parameters())
    of_discriminator = torch.optim.Adam(discriminator.parameters())
    judge = nn.BCEWithLogitsLoss()
    for real, _ in loader():
        yes, no = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        discriminator.zero_grad()
        judge(discriminator(real), yes).backward()
        fake = generator(torch.randn(len(real), 3))
        judge(discriminator(fake.detach()), no).backward()
        of_discriminator.step()
        generator.zero_grad()
        judge(discriminator(fake), yes).backward()
        of_generator.step()


def several() -> None:
    """Matrices and the rest have an optimizer each, and a third one does nothing much."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    weights = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    extra = nn.Parameter(torch.zeros(1))
    optimizers = [
        torch.optim.SGD(others, lr=0.1),
        torch.optim.AdamW(weights),
        torch.optim.SGD([extra], lr=0.1),
    ]
    for inputs, labels in loader():
        nn.functional.cross_entropy(model(inputs), labels).backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()


def scaled_steps() -> None:
    """A scaler whose first steps overflow, so that the optimizer is not called."""
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    for number, (inputs, labels) in enumerate(loader(), start=1):
        scaler.scale(nn.functional.cross_entropy(model(inputs), labels) * 100).backward()
        before = scaler.get_scale()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        print("batch", number, "skipped" if scaler.get_scale() < before else "stepped", flush=True)


def closure() -> None:
    """L-BFGS runs forward and backward several times inside of one step."""
    model = nn.Linear(8, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    for inputs, labels in loader():

        def again(inputs: Tensor = inputs, labels: Tensor = labels) -> Tensor:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            return loss

        optimizer.step(again)


def in_backward() -> None:
    """Each weight is updated as soon as it has its gradient."""
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizers: dict[Tensor, torch.optim.SGD] = {}
    for weight in model.parameters():
        optimizers[weight] = torch.optim.SGD([weight], lr=0.1)

    def update(weight: Tensor) -> None:
        optimizers[weight].step()
        optimizers[weight].zero_grad()

    for weight in model.parameters():
        weight.register_post_accumulate_grad_hook(update)
    for inputs, labels in loader():
        nn.functional.cross_entropy(model(inputs), labels).backward()


def by_hand() -> None:
    """No torch optimizer at all; the second argument says after how many micro-batches."""
    every = int(sys.argv[2])
    descend(lambda number: number % every == 0)


def at_unequal_intervals() -> None:
    triangular = {count * (count + 1) // 2 for count in range(100)}
    descend(triangular.__contains__)


def descend(updates: Callable[[int], bool]) -> None:
    """Change the weights after the backward passes of these numbers."""
    model, number = Rotated(8, 2), 0
    for _ in range(20):
        for inputs, labels in loader():
            nn.functional.cross_entropy(model(inputs), labels).backward()
            number += 1
            if updates(number):
                for weight in model.parameters():
                    assert weight.grad is not None
                    weight.data.sub_(0.1 * weight.grad)
                    weight.grad = None


class Rotated(nn.Linear):
    """Has a complex weight, too."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.phase = nn.Parameter(torch.ones(outputs, dtype=torch.cfloat))

    def forward(self, inputs: Tensor) -> Tensor:
        return (super().forward(inputs) * self.phase).real


def warm_up() -> None:
    """The first three steps have one micro-batch, the others two."""
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number, (inputs, labels) in enumerate(loader()):
        nn.functional.cross_entropy(model(inputs), labels).backward()
        if number < 3 or number % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()


def late_optimizer() -> None:
    """A copy that follows the model's weights in each micro-batch, of which a step has eight."""
    model = nn.ModuleDict({"own": nn.Linear(8, 2), "copy": nn.Linear(8, 2)})
    train = Trained(model)
    optimizer = torch.optim.SGD(model["own"].parameters(), lr=0.1)
    for number, (inputs, labels) in enumerate(loader(1000), start=1):
        train(inputs, labels).backward()
        with torch.no_grad():
            for copied in model["copy"].parameters():
                copied.add_(0.01)
        if number % 8 == 0:
            optimizer.step()
            optimizer.zero_grad()


class Trained(nn.Module):
    """The loss of a model beside a copy that gets no gradients."""

    def __init__(self, models: nn.ModuleDict) -> None:
        super().__init__()
        self.models = models

    def forward(self, inputs: Tensor, labels: Tensor) -> Tensor:
        with torch.no_grad():
            self.models["copy"](inputs)
        return nn.functional.cross_entropy(self.models["own"](inputs), labels)


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
    print("reached the end")
