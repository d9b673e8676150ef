"""Steps of a training whose weights the script updates itself, without a torch optimizer.

A step then has as many backward passes as lie between two changes of the weights. It ends with
the last of them, so that the update itself is timed with the step that follows.

A launch would otherwise wait for processes whose training nobody ends.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from autoconf_launch.core import real_time

from ..rank import leave

_MOST_WEIGHTS = 64
"""The smallest ones, which are read around each backward pass until a step is known."""
_MOST_PASSES = 100
"""Backward passes within which weights that change must do so at equal intervals."""


class UpdatesByHand(Optimizer):
    """Represents the script's own update where a step needs an optimizer; it never steps."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        super().__init__(weights, {})


class ManualUpdates:
    """Counts backward passes for as long as no torch optimizer has stepped."""

    def __init__(self) -> None:
        self.is_irregular = False
        """Whether weights change, but not at equal intervals."""
        self.optimizer: UpdatesByHand | None = None
        """The optimizer of the steps; None until they are known."""
        self.steps = 0
        """Steps that have ended since; where the first one began nobody has seen."""
        self._passes = 0
        self._changed_at = 1
        self._interval = 0
        """Backward passes between the last two changes of the weights."""
        self._before: list[tuple[Tensor, float]] = []
        """Weights with their sums when the last backward pass had ended."""

    @property
    def note(self) -> str:
        """What is measured as a step."""
        passes = f"{self._interval} backward passes" if self._interval > 1 else "backward pass"
        return (
            "No torch optimizer made a step in the script; its weights changed after every "
            f"{passes}, which is measured as a step."
        )

    def ends_step(self, modules: Sequence[nn.Module]) -> bool:
        """Whether the backward pass that begins is the last one of a step."""
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


_POLL_S = 0.2


def leave_after(result: Path) -> None:
    """End this process soon after the one that reports has left its result."""
    threading.Thread(target=_wait, args=(result,), daemon=True).start()


def _wait(result: Path) -> None:
    while not result.exists():
        real_time.sleep(_POLL_S)
    leave(0)
