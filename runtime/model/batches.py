"""Batches: nested tuples, lists and dicts of tensors that share their first dimension.

Whatever is not a tensor is passed as it is.

The dimension of the samples is not declared. The loader's batch size and what a layer that
takes the sequence first was given decide; then a size that all tensors share; then the first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor

from autoconf_launch.core import ConfigError

Batch: TypeAlias = Any
_MUCH_LARGER = 2
"""Ratio of a storage to its slice, in bytes, from which on the storage is a data set."""
_DEPTH = 4
_COUNTS = ("num_graphs", "batch_size")
"""Attributes by which batch objects without a samples' dimension say their size."""


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
            f"micro-batch {micro_batch} x gradient_accumulation_steps "
            f"{accumulation} = {expected}; load engine.samples_per_step samples (drop_last=True)."
        )
    for start in range(0, samples, micro_batch):
        yield map_tensors(batch, lambda tensor, at=start: tensor[at : at + micro_batch])  # type: ignore[misc]


def first_samples(batch: Batch, count: int) -> Batch:
    """The first samples of a batch, repeated from the start if it has fewer."""
    indices = [index % sample_count(batch) for index in range(count)]
    return map_tensors(batch, lambda tensor: tensor[torch.tensor(indices, device=tensor.device)])


def to_device(batch: Batch, device: torch.device) -> Batch:
    """The batch on a device; copies overlap with computation if the host memory is pinned."""
    return map_tensors(batch, lambda tensor: tensor.to(device, non_blocking=True))


def is_slice(tensor: Tensor) -> bool:
    """True if a tensor is some rows of a much larger tensor, such as a data set."""
    whole = tensor._base
    if whole is None or not tensor.dim() or not whole.dim() or tensor.layout != torch.strided:
        return False
    own_bytes = tensor.numel() * tensor.element_size()
    much_larger = tensor.untyped_storage().nbytes() >= _MUCH_LARGER * own_bytes
    return much_larger and whole.shape[0] != tensor.shape[0]


class SampleCounter:
    """Counts samples as in its first call; each way to call a model has a separate counter."""

    def __init__(self) -> None:
        self._dimension: int | None = None
        self._place = 0
        """Number of the tensor of a call with the dimension; equal in later calls."""
        self._by_length = False
        self.quick = 0
        """Dimension of the samples, from 1, if the first argument has it; else 0."""

    def count(
        self, arguments: tuple[Any, ...], named: Mapping[str, Any], hints: Collection[int]
    ) -> int:
        """Samples in a call's arguments; 0: there is nothing to count.

        ``hints``: numbers, probably among them the samples'; only used for the first batch.
        """
        if self._by_length or (self._dimension is None and _is_list_of_samples(arguments, hints)):
            self._by_length = True
            return len(arguments[0]) if arguments and isinstance(arguments[0], list) else 0
        if self._dimension is not None and not self._place:
            tensor = first_tensor((arguments, named), self._dimension)
            return int(tensor.shape[self._dimension]) if tensor is not None else 0
        tensors = [tensor for tensor in tensors_in((arguments, named)) if tensor.dim()]
        if self._dimension is not None:
            sizes = [t.shape for t in tensors[self._place :] if t.dim() > self._dimension]
            return int(sizes[0][self._dimension]) if sizes else 0
        if not tensors:
            return _declared_count((*arguments, *named.values()))
        self._place, self._dimension = _place_and_dimension(tensors, hints)
        is_first = not self._place and bool(arguments) and arguments[0] is tensors[0]
        if is_first and tensors[0].dim() > self._dimension:
            self.quick = self._dimension + 1
        return self.count(arguments, named, hints)


def first_tensor(value: Any, dimension: int = 0, depth: int = _DEPTH) -> Tensor | None:
    """The first tensor in nested containers that has the dimension."""
    if isinstance(value, Tensor):
        return value if value.dim() > dimension else None
    if depth:
        for item in _items(value):
            found = first_tensor(item, dimension, depth - 1)
            if found is not None:
                return found
    return None


def tensors_in(value: Any, depth: int = _DEPTH) -> list[Tensor]:
    """Every tensor in nested containers and in objects' attributes."""
    if isinstance(value, Tensor):
        return [value]
    if not depth:
        return []
    return [tensor for item in _items(value) for tensor in tensors_in(item, depth - 1)]


def _items(value: Any) -> Collection[Any]:
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, (tuple, list)):
        return value
    if isinstance(value, (str, bytes, int, float, type(None))):
        return ()
    return vars(value).values() if hasattr(value, "__dict__") and not callable(value) else ()


def _is_list_of_samples(arguments: tuple[Any, ...], hints: Collection[int]) -> bool:
    """True if the first argument is a list with one tensor or dict for each sample."""
    first = arguments[0] if arguments else None
    if not isinstance(first, list) or not first:
        return False
    if not all(isinstance(item, (Tensor, Mapping)) for item in first):
        return False
    shapes = {tuple(item.shape) for item in first if isinstance(item, Tensor)}
    leading = {shape[0] for shape in shapes if shape}
    if not shapes:
        return True
    if leading & set(hints):
        return False  # inputs and targets of a batch
    of_a_kind = len({len(shape) for shape in shapes}) == 1
    return len(first) in hints or (len(shapes) > 1 and of_a_kind)


def _place_and_dimension(tensors: list[Tensor], hints: Collection[int]) -> tuple[int, int]:
    """The tensor that counts the samples, and its dimension that does."""
    for hint in hints:
        for dimension in (0, 1):
            wide = (n for n, t in enumerate(tensors) if t.dim() > dimension)
            place = next((n for n in wide if tensors[n].shape[dimension] == hint), None)
            if place is not None:
                return place, dimension
    return 0, _shared_dimension(tensors)


def _shared_dimension(tensors: list[Tensor]) -> int:
    if len({tensor.shape[0] for tensor in tensors}) == 1:
        return 0
    wide = [tensor for tensor in tensors if tensor.dim() > 1]
    shared = set.intersection(*(set(tensor.shape) for tensor in wide)) if len(wide) > 1 else set()
    return int(len(shared) == 1 and wide[0].shape[1] in shared and wide[0].shape[0] not in shared)


def _declared_count(values: tuple[Any, ...]) -> int:
    for value in values:
        for name in _COUNTS:
            said = getattr(value, name, None)
            if isinstance(said, int) and not isinstance(said, bool):
                return said
    return 0
