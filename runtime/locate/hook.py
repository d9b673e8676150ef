"""The probe's hooks in torch: backward passes, optimizer steps, scalers, loaders.

Installed once, before the script can have made anything. An exception of a listener never reaches
the script. Not: forward passes (``root_module``), ends of the process (``ending``).

A script may also update its weights itself, without a torch optimizer. A step then has as many
backward passes as there are between two changes of the weights, and ends with the last of them,
so that the update itself is timed with the step that follows.
"""

from __future__ import annotations

import heapq
import inspect
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter
from torch.utils.hooks import RemovableHandle

from autoconf_launch.core import real_time

from ..rank import leave
from ..soak import TrainingData

_MOST_AHEAD = 1024
"""Batches that workers prepare at most before the first one is used."""
_MOST_WEIGHTS = 64
"""The smallest ones, which are read around each backward pass until a step is known."""
_MOST_PASSES = 100
"""Backward passes within which weights that change must do so at equal intervals."""
_POLL_S = 0.2
BATCH_VARIABLE = "AUTOCONF_LAUNCH_DATALOADER_BATCH"


class ScriptListener(Protocol):
    """Receives the script's actions, in order."""

    def backward_begins(self, tensors: Any) -> None:
        """An outermost backward pass, from these tensors."""

    def on_step(self, optimizer: Optimizer) -> None:
        """An optimizer's step is complete."""

    def on_skip(self) -> None:
        """A scaler left the optimizer's step out."""

    def drew(self, batch_size: int | None) -> None:
        """A loader gave a batch, nominally of ``samples``."""

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
        """Samples of the requested batches that each loader has not given yet."""
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


def _batch_size(sampler: Any) -> int | None:
    """Samples of a loader's full batch: those asked for, or all if there are fewer."""
    size: int | None = getattr(sampler, "batch_size", None)
    with suppress(Exception):  # a stream has no length, somebody's own sampler anything
        return min(size, len(sampler.sampler))  # type: ignore[type-var]
    return size


class UpdatesByHand(Optimizer):
    """Represents the script's own update if a step needs an optimizer; it never steps."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        super().__init__(weights, {})


class ManualUpdates:
    """Counts backward passes for as long as no torch optimizer has stepped."""

    def __init__(self) -> None:
        self.is_irregular = False
        """True if weights change, but not at equal intervals."""
        self.optimizer: UpdatesByHand | None = None
        """The optimizer of the steps; None until they are known."""
        self.steps = 0
        """Steps that have ended since; the start of the first was not observed."""
        self._passes = 0
        self._changed_at = 1
        self._interval = 0
        """Backward passes between the last two changes of the weights."""
        self._before: list[tuple[Tensor, float]] = []
        """Weights with their sums when the last backward pass had ended."""

    @property
    def note(self) -> str:
        """The unit that is measured as a step."""
        passes = f"{self._interval} backward passes" if self._interval > 1 else "backward pass"
        return (
            "No torch optimizer made a step in the script; its weights changed after every "
            f"{passes}, which is measured as a step."
        )

    def ends_step(self, modules: Sequence[nn.Module]) -> bool:
        """True if the backward pass that begins is the last of its step."""
        self._passes += 1
        if self.optimizer is None and any(_sum(weight) != was for weight, was in self._before):
            interval, self._changed_at = self._passes - self._changed_at, self._passes
            if interval == self._interval:
                self.optimizer = UpdatesByHand(_trainable(modules))
            self._interval = interval
        self.is_irregular = self._interval > 0 and self._passes >= _MOST_PASSES
        if self.optimizer is None or (self._passes - self._changed_at + 1) % self._interval:
            return False
        self.steps += 1
        return True

    def end_pass(self, modules: Sequence[nn.Module]) -> None:
        """The backward pass has ended: remember the weights, those with a gradient if any has."""
        weights = _trainable(modules)
        weights = [weight for weight in weights if weight.grad is not None] or weights
        smallest = heapq.nsmallest(_MOST_WEIGHTS, weights, key=Tensor.numel)
        self._before = [(weight, _sum(weight)) for weight in smallest]


def _trainable(modules: Iterable[nn.Module]) -> list[Tensor]:
    """Weights whose sum is a number, without a message to other ranks."""
    weights = {id(w): w for module in modules for w in module.parameters() if w.requires_grad}
    return [w for w in weights.values() if type(w) is nn.Parameter and w.is_floating_point()]


def _sum(weight: Tensor) -> float:
    with torch.no_grad():
        return float(weight.detach().sum(dtype=torch.float64))


def leave_after(result: Path) -> None:
    """End this process soon after the reporting process has left its result."""

    def wait() -> None:
        while not result.exists():
            real_time.sleep(_POLL_S)
        leave(0)

    threading.Thread(target=wait, daemon=True).start()


def set_batch_size() -> None:
    """Apply the batch size of the environment, if it has one."""
    value = os.environ.get(BATCH_VARIABLE)
    if not value:
        return
    size = int(value)
    loader: Any = DataLoader
    original = loader.__init__
    signature = inspect.signature(original)

    @wraps(original)
    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        given = signature.bind(self, *arguments, **named)
        batched = given.arguments.get("batch_size", 1) is not None
        if batched and given.arguments.get("batch_sampler") is None:
            given.arguments["batch_size"] = size
        original(*given.args, **given.kwargs)

    loader.__init__ = __init__
