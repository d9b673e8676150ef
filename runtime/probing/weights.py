"""The weights that an optimizer updates, and where they are. Not: a model's."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.optim import Optimizer


def weights_of(optimizer: Optimizer) -> list[Tensor]:
    """Weights of all groups of an optimizer."""
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def device_of(optimizer: Optimizer) -> torch.device:
    """Device of an optimizer's first weight; the CPU where it has none."""
    return next((weight.device for weight in weights_of(optimizer)), torch.device("cpu"))
