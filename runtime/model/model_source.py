"""The user's model: built or made by a function, its loss, and its mode between steps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from autoconf_launch.core import ResolvedConfig

from .batches import Batch
from .optimizers import MakeOptimizer

LossFunction: TypeAlias = Callable[[nn.Module, Batch], Tensor]
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


@contextmanager
def evaluation_mode(module: nn.Module) -> Iterator[None]:
    """Put all its modules into evaluation mode; afterwards each is in the mode it was in."""
    training = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


def model_loss(model: nn.Module, micro_batch: Batch) -> Tensor:
    """Call the model with the micro-batch's parts and take its result as the mean loss.

    A tuple or list is spread over positional, a dict over keyword arguments. Models that
    return an object with ``loss`` (Hugging Face's do) are understood.

    Raises:
        TypeError: the model returns no scalar.
    """
    return scalar_loss(_output(model, micro_batch))


def scalar_loss(output: Any) -> Tensor:
    """The loss in a model's output.

    Raises:
        TypeError: there is no scalar tensor.
    """
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", output)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        kind = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss)
        raise TypeError(
            f"the loss is {kind}, but must be a scalar tensor, the mean over the micro-batch; "
            "return it from the model or pass loss_fn= to initialize."
        )
    return loss.reshape(())


def _output(model: nn.Module, micro_batch: Batch) -> Any:
    if isinstance(micro_batch, dict):
        return model(**micro_batch)
    if isinstance(micro_batch, (tuple, list)):
        return model(*micro_batch)
    return model(micro_batch)
