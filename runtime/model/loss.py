"""The loss of one micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from torch import Tensor, nn

from .batches import Batch

LossFunction: TypeAlias = Callable[[nn.Module, Batch], Tensor]


def model_loss(model: nn.Module, micro_batch: Batch) -> Tensor:
    """Call the model with the micro-batch's parts and take what it returns as the mean loss.

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
