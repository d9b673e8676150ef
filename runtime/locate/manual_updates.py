"""Notices a training whose weights change although no torch optimizer steps.

Such a script would otherwise run to its own end, hours later, to say that nothing was measured.

A launch would otherwise wait for processes whose training nobody ends.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import nn

from autoconf_launch.core import real_time

from ..rank import leave

_EVERY = 50
"""Backward passes between two looks; accumulation leaves the weights as they are."""


class ManualUpdates:
    """Counts backward passes for as long as no optimizer has stepped."""

    def __init__(self) -> None:
        self._passes = 0
        self._before: tuple[float, ...] | None = None

    def detect(self, modules: Iterable[nn.Module]) -> bool:
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


_POLL_S = 0.2


def leave_after(result: Path) -> None:
    """End this process soon after the one that reports has left its result."""
    threading.Thread(target=_wait, args=(result,), daemon=True).start()


def _wait(result: Path) -> None:
    while not result.exists():
        real_time.sleep(_POLL_S)
    leave(0)
