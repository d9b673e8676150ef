"""Notices a training whose weights change although no torch optimizer steps. Not: what does it.

Such a script would otherwise run to its own end, hours later, to say that nothing was measured.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn

_EVERY = 50
"""Backward passes between two looks; accumulation leaves the weights as they are."""


class ByHand:
    """Counts backward passes for as long as no optimizer has stepped."""

    def __init__(self) -> None:
        self._passes = 0
        self._before: tuple[float, ...] | None = None

    def found(self, modules: Iterable[nn.Module]) -> bool:
        """Whether weights have changed; to be asked at the start of each backward pass."""
        self._passes += 1
        if self._passes % _EVERY:
            return False
        now = tuple(_sums(modules))
        changed = self._before is not None and len(now) == len(self._before)
        changed = changed and now != self._before
        self._before = now
        return changed


def _sums(modules: Iterable[nn.Module]) -> Iterable[float]:
    for module in modules:
        for weight in module.parameters():
            if weight.requires_grad and type(weight) is nn.Parameter:
                with torch.no_grad():
                    yield float(weight.detach().double().sum())
