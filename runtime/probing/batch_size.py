"""Samples of a batch as a foreign model takes it. Not: of our own batches (``batches.py``).

Nobody says which dimension holds the samples. The loader's batch size and what a layer that
takes the sequence first was given decide; then a size that all tensors share; then the first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor

_DEPTH = 4
_COUNTS = ("num_graphs", "batch_size")
"""Attributes by which batch objects without a samples' dimension say their size."""


class SampleCounter:
    """Counts like the first time it was asked; one for each way that a model is called."""

    def __init__(self) -> None:
        self._dimension: int | None = None
        self._by_length = False
        self.quick = 0
        """Where not 0: the dimension, from 1, of a tensor that is the first argument."""

    def count(
        self, arguments: tuple[Any, ...], named: Mapping[str, Any], hints: Collection[int]
    ) -> int:
        """Samples in a call's arguments; 0: there is nothing to count.

        Args:
            arguments: positional ones.
            named: keyword ones.
            hints: numbers one of which is likely the samples'; not used again after the first.
        """
        if self._by_length or (self._dimension is None and _is_list_of_samples(arguments, hints)):
            self._by_length = True
            return len(arguments[0]) if arguments and isinstance(arguments[0], list) else 0
        if self._dimension is not None:
            tensor = first_tensor((arguments, named), self._dimension)
            return int(tensor.shape[self._dimension]) if tensor is not None else 0
        tensors = [tensor for tensor in tensors_in((arguments, named)) if tensor.dim()]
        if not tensors:
            return _said((*arguments, *named.values()))
        self._dimension = _dimension(tensors, hints)
        if arguments and arguments[0] is tensors[0] and tensors[0].dim() > self._dimension:
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
    """Whether the first argument is a list with one tensor or dict for each sample."""
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


def _dimension(tensors: list[Tensor], hints: Collection[int]) -> int:
    for hint in hints:
        if any(tensor.shape[0] == hint for tensor in tensors):
            return 0
        if any(tensor.dim() > 1 and tensor.shape[1] == hint for tensor in tensors):
            return 1
    if len({tensor.shape[0] for tensor in tensors}) == 1:
        return 0
    wide = [tensor for tensor in tensors if tensor.dim() > 1]
    shared = set.intersection(*(set(tensor.shape) for tensor in wide)) if len(wide) > 1 else set()
    return int(len(shared) == 1 and wide[0].shape[1] in shared and wide[0].shape[0] not in shared)


def _said(values: tuple[Any, ...]) -> int:
    for value in values:
        for name in _COUNTS:
            said = getattr(value, name, None)
            if isinstance(said, int) and not isinstance(said, bool):
                return said
    return 0
