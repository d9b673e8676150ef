"""The longest batch so far, for a soak to end with. Not: where batches come from.

Batches are nested dicts, lists and tuples of tensors, or objects with tensors in them. What is
kept is a copy in host memory: scripts take their batches apart and write into them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .probing.batch_size import tensors_in

_DEEP = 5


@dataclass(frozen=True, slots=True)
class _Kept:
    """A tensor's values, and where they were."""

    values: Tensor
    device: torch.device


class Longest:
    """Keeps the batch whose tensors have the most elements."""

    def __init__(self) -> None:
        self._batch: Any = None
        self._elements = 0

    @property
    def is_known(self) -> bool:
        """Whether there is one; a batch without tensors has no length."""
        return self._elements > 0

    def see(self, batch: Any) -> None:
        """Keep a copy where it is the longest; one that cannot be copied is not kept."""
        elements = _elements(batch)
        if elements > self._elements:
            with suppress(Exception):  # somebody's own type of batch
                self._batch, self._elements = _changed(batch, Tensor, _keep), elements

    def instead_of(self, batch: Any) -> Any:
        """The longest, where this one is shorter; a copy, so that it can be asked for again."""
        self.see(batch)
        if _elements(batch) >= self._elements:
            return batch
        return _changed(self._batch, _Kept, _give)


def _elements(batch: Any) -> int:
    return sum(tensor.numel() for tensor in tensors_in(batch))


def _keep(tensor: Tensor) -> _Kept:
    return _Kept(tensor.detach().to("cpu", copy=True), tensor.device)


def _give(kept: _Kept) -> Tensor:
    return kept.values.to(kept.device, copy=True)


def _changed(value: Any, leaf: type[Any], change: Callable[[Any], Any], deep: int = _DEEP) -> Any:
    """The same structure in containers of its own, with each leaf changed."""

    def changed(item: Any) -> Any:
        return _changed(item, leaf, change, deep - 1)

    if isinstance(value, leaf):
        return change(value)
    if not deep or isinstance(value, (_Kept, Tensor)):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(changed, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(changed, value))
    made = copy.copy(value)
    if isinstance(value, Mapping):
        made.update((key, changed(item)) for key, item in value.items())
    elif hasattr(value, "__dict__") and not callable(value):
        vars(made).update((name, changed(item)) for name, item in vars(value).items())
    return made
