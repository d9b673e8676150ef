"""Trains one model while others of different classes are alive."""

from __future__ import annotations

import copy
import sys

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

WIDE = 512
WHERE = {"sent": "cuda", "named": "cuda" if torch.cuda.is_available() else "cpu"}.get(sys.argv[1])


class Student(nn.Sequential):
    """The trained model."""


class Teacher(nn.Sequential):
    """Frozen, on the device."""


class OnHost(nn.Sequential):
    """Frozen, never sent to a device."""


class SentBack(nn.Sequential):
    """Frozen, sent to the host."""


class WithoutMemory(nn.Sequential):
    """On the meta device."""


class Closed(nn.Sequential):
    """Reached only from a closure."""


class Late(nn.Sequential):
    """Made after the forward pass."""


class Tied(nn.Sequential):
    """Shares its only weight with the trained model."""


class Shared(nn.Sequential):
    """Has the same layer twice, and a teacher's."""


def layer() -> nn.Linear:
    return nn.Linear(WIDE, WIDE, bias=False)


def place(module: nn.Sequential) -> nn.Sequential:
    module.requires_grad_(False)
    return module if WHERE is None else module.to(WHERE)


def closure() -> object:
    inside = place(Closed(layer()))
    return lambda x: inside(x)


student = Student(layer(), nn.ReLU(), layer())
if WHERE is not None:
    student = student.to(WHERE)
ema = copy.deepcopy(student)
ema.__class__ = type("Ema", (Student,), {})
teacher = place(Teacher(layer(), layer()))
host = OnHost(layer()).requires_grad_(False)
back = place(SentBack(layer())).cpu()
with torch.device("meta"):
    nothing = WithoutMemory(layer())
hidden = closure()
tied = Tied(student[0])
half = place(Shared(layer()).half())
shared = Shared(half[0], half[0], teacher[0])
buffer = torch.zeros(WIDE, 1024, device=WHERE)
loader = DataLoader(TensorDataset(torch.zeros(WIDE, 2048)), batch_size=4)


late: list[nn.Module] = []


def loss(x: Tensor) -> Tensor:
    made: Tensor = student(x)
    late[:] = [place(Late(layer()))]
    return made.square().mean()


for _ in range(2):
    x = torch.randn(4, WIDE)
    loss(x if WHERE is None else x.to(WHERE)).backward()  # type: ignore[no-untyped-call]
