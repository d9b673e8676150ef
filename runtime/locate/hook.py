"""The probe's hooks in torch: backward passes, optimizer steps, scalers, loaders.

Installed once, before the script can have made anything. What a listener raises never reaches
the script. Not: forward passes (``root_module``), ends of the process (``ending``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torch.utils.hooks import RemovableHandle

from ..soak import TrainingData


class ScriptListener(Protocol):
    """Is told what the script does, in order."""

    def backward_begins(self, tensors: Any) -> None:
        """An outermost backward pass, from these tensors."""

    def on_step(self, optimizer: Optimizer) -> None:
        """An optimizer's step is complete."""

    def on_skip(self) -> None:
        """A scaler left the optimizer's step out."""

    def drew(self, batch_size: int | None) -> None:
        """A loader gave a batch, nominally of so many samples."""

    def on_failure(self, error: BaseException) -> None:
        """The script's computation raised; the script may still catch it."""


class Hooks:
    """The state that the hooks share."""

    def __init__(self, listener: ScriptListener) -> None:
        self._listener = listener
        self.running: list[bool] = []
        """An entry for each backward pass that runs; a list, as every step reads it."""
        self.after_backward: Callable[[], None] | None = None
        """Called once, when the backward pass that runs has returned."""
        self._steps = 0
        self._after_each: RemovableHandle | None = None
        """Hook for steps until anything is compiled."""
        self._batch_sizes: WeakKeyDictionary[Any, int | None] = WeakKeyDictionary()
        self._handed: WeakKeyDictionary[Any, deque[int]] = WeakKeyDictionary()
        """Samples of the batches that each loader was asked for and has not given yet."""
        self.data: TrainingData | None = None
        """Loaders that a soak watches."""

    @property
    def in_backward(self) -> bool:
        """True if a backward pass runs, and forward passes are recomputation."""
        return bool(self.running)

    def reset(self) -> None:
        """Forget calls that are going on; for a process just forked."""
        self.running.clear()
        self.after_backward = None

    def install(self) -> None:
        """Listen from here on."""
        torch.autograd.backward = self._backward(torch.autograd.backward)
        Optimizer.profile_hook_step = staticmethod(  # type: ignore[method-assign]
            self._watch_step(Optimizer.profile_hook_step)
        )
        self._after_each = register_optimizer_step_post_hook(self._after_step)
        scaler: Any = getattr(getattr(torch, "amp", None), "GradScaler", None)
        if scaler is not None:
            scaler.step = self._watch_scaler(scaler.step)
        loader: Any = _BaseDataLoaderIter
        loader.__next__ = self._draw(loader.__next__)
        loader._next_index = self._hand_out(loader._next_index)

    def compiles(self) -> None:
        """The script compiles something, its optimizer's step perhaps: stay outside of it."""
        if self._after_each is not None:
            self._after_each.remove()
            self._after_each = None
            outside: Any = torch.compiler.disable
            register_optimizer_step_post_hook(outside(self._after_step))

    def _backward(self, original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def backward(*arguments: Any, **named: Any) -> None:
            if self.running:  # of a recomputed part, inside of another
                original(*arguments, **named)
                return
            self._listener.backward_begins(arguments[0] if arguments else named.get("tensors"))
            self.running.append(True)
            try:
                original(*arguments, **named)
            except Exception as error:
                self._listener.on_failure(error)
                raise
            finally:
                self.running.pop()
            if (after := self.after_backward) is not None:
                self.after_backward = None
                after()

        return backward

    def _watch_step(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def profile_hook_step(step: Callable[..., Any]) -> Any:
            hooked = original(step)

            @wraps(hooked)
            def run_hooked(*arguments: Any, **named: Any) -> Any:
                try:
                    return hooked(*arguments, **named)
                except Exception as error:
                    self._listener.on_failure(error)
                    raise

            return run_hooked

        return profile_hook_step

    def _after_step(self, optimizer: Optimizer, arguments: Any, named: Any) -> None:
        self._steps += 1
        self._listener.on_step(optimizer)

    def _watch_scaler(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def step(*arguments: Any, **named: Any) -> Any:
            before = self._steps
            result = original(*arguments, **named)
            if self._steps == before:
                self._listener.on_skip()
            return result

        return step

    def _draw(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @wraps(original)
        def __next__(iterator: Any) -> Any:
            data = self.data
            batch = original(iterator) if data is None else data.draw(iterator, original)
            if handed := self._handed.get(iterator):
                self._listener.drew(handed.popleft())
                return batch
            if iterator not in self._batch_sizes:
                self._batch_sizes[iterator] = _batch_size(iterator._index_sampler)
            self._listener.drew(self._batch_sizes[iterator])
            return batch

        return __next__

    def _hand_out(self, original: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Count the indices of each batch, whatever the class of its sampler."""

        @wraps(original)
        def _next_index(iterator: Any) -> Any:
            indices = original(iterator)
            if isinstance(indices, (list, tuple)):
                self._handed.setdefault(iterator, deque(maxlen=_MOST_AHEAD)).append(len(indices))
            return indices

        return _next_index


_MOST_AHEAD = 1024
"""Batches that workers prepare at most before the first one is used."""


def _batch_size(sampler: Any) -> int | None:
    """Samples of a loader's full batch: those asked for, or all where there are fewer."""
    size: int | None = getattr(sampler, "batch_size", None)
    with suppress(Exception):  # a stream has no length, somebody's own sampler anything
        return min(size, len(sampler.sampler))  # type: ignore[type-var]
    return size
