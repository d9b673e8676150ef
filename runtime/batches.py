"""Batches: nested tuples, lists and dicts of tensors that share their first dimension.

Not: where they come from. Whatever is not a tensor is passed as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor

from autoconf_launch.core import ConfigError

Batch: TypeAlias = Any


def map_tensors(batch: Batch, change: Callable[[Tensor], Any]) -> Batch:
    """A batch of the same structure with each tensor changed."""
    if isinstance(batch, Tensor):
        return change(batch)
    if isinstance(batch, dict):
        return {key: map_tensors(value, change) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(map_tensors(value, change) for value in batch))
    if isinstance(batch, (tuple, list)):
        return type(batch)(map_tensors(value, change) for value in batch)
    return batch


def tensors(batch: Batch) -> list[Tensor]:
    """Every tensor of a batch, in order."""
    found: list[Tensor] = []
    map_tensors(batch, found.append)
    return found


def sample_count(batch: Batch) -> int:
    """Samples of a batch: the first dimension that all its tensors share.

    Raises:
        ConfigError: there is no tensor, or they differ in their first dimension.
    """
    counts = {tensor.shape[0] if tensor.dim() else 0 for tensor in tensors(batch)}
    if len(counts) != 1 or counts == {0}:
        raise ConfigError(
            f"the batch holds tensors with first dimensions {sorted(counts)}, but all tensors of "
            "a batch must share one: its samples."
        )
    return counts.pop()


def split(batch: Batch, *, micro_batch: int, accumulation: int) -> Iterator[Batch]:
    """The micro-batches of one rank's share of an optimizer step, in order, as views.

    Raises:
        ConfigError: the batch does not have ``micro_batch * accumulation`` samples.
    """
    samples, expected = sample_count(batch), micro_batch * accumulation
    if samples != expected:
        raise ConfigError(
            f"engine.step got {samples} samples, but one rank's share of an optimizer step is "
            f"train_micro_batch_size_per_gpu {micro_batch} x gradient_accumulation_steps "
            f"{accumulation} = {expected}; load engine.samples_per_step samples (drop_last=True)."
        )
    for start in range(0, samples, micro_batch):
        yield map_tensors(batch, lambda tensor, at=start: tensor[at : at + micro_batch])  # type: ignore[misc]


def first_samples(batch: Batch, count: int) -> Batch:
    """The first samples of a batch, repeated from the start where it has fewer."""
    indices = [index % sample_count(batch) for index in range(count)]
    return map_tensors(batch, lambda tensor: tensor[torch.tensor(indices, device=tensor.device)])


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch on a device; copies overlap with computation where the host memory is pinned."""
    return map_tensors(batch, lambda tensor: tensor.to(device, non_blocking=True))
