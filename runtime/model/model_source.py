"""A model as ``initialize`` takes it: built, or a function that builds it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import nn

from autoconf_launch.core import ResolvedConfig

from .loss import LossFunction
from .optimizers import MakeOptimizer

ModelSource: TypeAlias = nn.Module | Callable[[], nn.Module]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingParts:
    """Everything that a training is made of, before anything is built."""

    model: ModelSource
    config: ResolvedConfig
    loss: LossFunction
    make_optimizer: MakeOptimizer


def build_model(source: ModelSource, device: torch.device) -> nn.Module:
    """The live model on a device.

    Raises:
        TypeError: the function gave no module.
    """
    model = source if isinstance(source, nn.Module) else source()
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model= gave {type(model).__name__}, but must be an nn.Module or a function that "
            "returns one."
        )
    return model.to(device)


def held_bytes(source: ModelSource) -> int:
    """Bytes of the weights and buffers that this rank has already; a storage counts once."""
    if not isinstance(source, nn.Module):
        return 0
    held = (*source.parameters(), *source.buffers())
    storages = [getattr(tensor, "_local_tensor", tensor).untyped_storage() for tensor in held]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
