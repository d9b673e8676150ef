"""The loaders that a soak's training draws from: they end with it, and repeat the longest batch.

What is drawn and then goes through a model without gradients was an evaluation's.

Batches are nested dicts, lists and tuples of tensors, or objects with tensors in them. What is
kept is a copy in host memory: scripts take their batches apart and write into them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor

from ..model import tensors_in

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
        """True if there is one; a batch without tensors has no length."""
        return self._elements > 0

    def see(self, batch: Any) -> None:
        """Keep a copy where it is the longest; one that cannot be copied is not kept."""
        elements = _elements(batch)
        if elements > self._elements:
            with suppress(Exception):  # somebody's own type of batch
                self._batch, self._elements = _change_leaves(batch, Tensor, _keep), elements

    def instead_of(self, batch: Any) -> Any:
        """The longest, where this one is shorter; a copy, so that it can be asked for again."""
        self.see(batch)
        if _elements(batch) >= self._elements:
            return batch
        return _change_leaves(self._batch, _Kept, _give)


def _elements(batch: Any) -> int:
    return sum(tensor.numel() for tensor in tensors_in(batch))


def _keep(tensor: Tensor) -> _Kept:
    return _Kept(tensor.detach().to("cpu", copy=True), tensor.device)


def _give(kept: _Kept) -> Tensor:
    return kept.values.to(kept.device, copy=True)


def _change_leaves(
    value: Any, leaf: type[Any], change: Callable[[Any], Any], deep: int = _DEEP
) -> Any:
    """A copy of nested containers with each leaf changed."""

    def change_inside(item: Any) -> Any:
        return _change_leaves(item, leaf, change, deep - 1)

    if isinstance(value, leaf):
        return change(value)
    if not deep or isinstance(value, (_Kept, Tensor)):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(change_inside, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(change_inside, value))
    made = copy.copy(value)
    if isinstance(value, Mapping):
        made.update((key, change_inside(item)) for key, item in value.items())
    elif hasattr(value, "__dict__") and not callable(value):
        vars(made).update((name, change_inside(item)) for name, item in vars(value).items())
    return made


_AHEAD = 2
"""Last steps that draw the longest batch: a loader may be a step ahead of the training."""
_LEFT_OVER = 2
"""Steps that a script may still make from what it had drawn before its data ended."""


class TrainingData:
    """Told of draws, passes and steps of one rank, in order."""

    def __init__(self, steps: int, *, repeats: bool = True) -> None:
        """``steps`` are those of the soak; ``repeats``: the last ones take the longest batch."""
        self._steps = steps
        self.epoch_batches: int | None = None
        """Batches of the longest loader that the training draws from; None: not known."""
        self._repeats = repeats
        self._longest: dict[int, tuple[object, Longest]] = {}
        """By the identity of the loader's sampler, which lives as long as the loader."""
        self.restart()

    def restart(self) -> None:
        """Steps count anew."""
        self.is_over = False
        """True if the steps were made and the script goes on."""
        self.is_new_epoch = False
        """True if it trains on batches drawn since its data ended."""
        self._new: WeakSet[Any] = WeakSet()
        """Iterators that were drawn from since the last pass: nobody knows yet what for."""
        self._training: WeakSet[Any] = WeakSet()
        self._in_step: WeakSet[Any] = WeakSet()
        """Loaders that the training has drawn from since its last step."""
        self._last: WeakSet[Any] = WeakSet()
        """Loaders that the training drew from for its last step."""
        self._ending: WeakSet[Any] = WeakSet()
        self._has_ended = self._last_ended = self._trained = self._gave = False
        self._made = self._drawn = self._step_drawn = self._left_over = 0
        self._draws: list[int] = []
        """Batches that were drawn for each step."""

    @property
    def can_end(self) -> bool:
        """True if the last step was made from a loader."""
        return bool(self._last) or self._last_ended

    @property
    def gave_longest(self) -> bool:
        """True if the last step was made from the longest batches.

        Known where no more than the batches of a step are drawn ahead, by those of the first.
        """
        if not self._gave or len(self._draws) < _AHEAD:
            return False
        return 0 < self._draws[0] <= _AHEAD * min(self._draws[-_AHEAD:])

    def draw(self, iterator: Any, original: Callable[[Any], Any]) -> Any:
        """The iterator's next batch, or the longest one so far.

        Raises:
            StopIteration: it is at its end, or the training is.
        """
        if iterator in self._ending:
            self._ending.discard(iterator)
            self._has_ended = True
            raise StopIteration
        try:
            batch = original(iterator)
        except StopIteration:
            self._has_ended = self._has_ended or iterator in self._training
            raise
        self._new.add(iterator)
        self._drawn += 1
        try:
            return self._exchange_batch(iterator, batch) if self._repeats else batch
        except Exception:  # somebody's own type of batch
            self._gave = False
            return batch

    def trains(self) -> bool:
        """A pass of the training begins; whether it is of a new epoch after the end."""
        self.is_new_epoch = self.is_over and self._has_ended and bool(self._new)
        self._trained = True
        for iterator in self._new:
            with suppress(Exception):  # a stream has no length, somebody's own may be wrong
                self.epoch_batches = max(self.epoch_batches or 0, len(iterator)) or None
        self._training |= self._new
        self._in_step |= self._new
        self._step_drawn += self._drawn
        self._forget()
        return self.is_new_epoch

    def evaluates(self) -> None:
        """A model is called without gradients: what was drawn last was for that."""
        self._forget()

    def on_step(self) -> None:
        """An optimizer step of the soak has ended."""
        self._made += 1
        self._draws.append(self._step_drawn)
        self._step_drawn = 0
        self._last, self._in_step = self._in_step, WeakSet()
        self._last_ended, self._has_ended = self._has_ended, False
        self._trained = False

    def end(self) -> None:
        """The steps were made: the loaders of the last one give nothing more, once."""
        self.is_over = True
        self._ending |= self._last
        self._has_ended = self._last_ended and not self._last

    def is_left_over(self) -> bool:
        """True if a step after the end may be of batches that were drawn before."""
        self._left_over += self._trained
        self._trained = False
        return self._left_over <= _LEFT_OVER

    def _forget(self) -> None:
        self._new.clear()
        self._drawn = 0

    def _exchange_batch(self, iterator: Any, batch: Any) -> Any:
        sampler = iterator._index_sampler
        _, longest = self._longest.setdefault(id(sampler), (sampler, Longest()))
        if self.is_over or self._made < self._steps - _AHEAD or iterator not in self._training:
            longest.see(batch)
            return batch
        given = longest.instead_of(batch)
        self._gave = longest.is_known
        return given
