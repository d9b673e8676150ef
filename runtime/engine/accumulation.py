"""Micro-batches one after the other, each forward and backward. Not: pipelines."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..model import Batch, TrainingParts, compute_in, split, to_device
from ..parallel import Applied
from ..rank import BACKWARD, FORWARD, StepCutter


class Accumulation:
    """Passes of a rank that computes its micro-batches from end to end."""

    def __init__(
        self,
        applied: Applied,
        recipe: TrainingParts,
        device: torch.device,
        lap: Callable[[str], None],
        after_forward: Callable[[], None],
    ) -> None:
        self._applied = applied
        self._loss = recipe.loss
        self._config = recipe.config
        self._device = device
        self._lap = lap
        self._after_forward = after_forward

    def train(self, batch: Batch, scale: float, cutter: StepCutter | None = None) -> Tensor:
        """Accumulate gradients; see :class:`.parallel.Passes`."""
        micro, accumulation = self._config.layout.micro_batch, self._config.layout.accumulation
        losses: list[Tensor] = []
        for micro_batch in split(batch, micro_batch=micro, accumulation=accumulation):
            last = cutter.last() if cutter else accumulation
            with self._applied.around(len(losses) == last - 1):
                losses.append(self._forward_backward(micro_batch, scale / accumulation))
            if cutter:
                cutter.end_micro_batch()
            if len(losses) == last:
                break
        return torch.stack(losses).mean()

    def evaluate(self, batch: Batch) -> Tensor:
        """The mean of the micro-batches' losses."""
        micro, accumulation = self._config.layout.micro_batch, self._config.layout.accumulation
        parts = split(batch, micro_batch=micro, accumulation=accumulation)
        return torch.stack([self._forward(part).float() for part in parts]).mean()

    def _forward(self, micro_batch: Batch) -> Tensor:
        with compute_in(self._config.precision, self._device):
            return self._loss(self._applied.module, to_device(micro_batch, self._device))

    def _forward_backward(self, micro_batch: Batch, weight: float) -> Tensor:
        loss = self._forward(micro_batch)
        self._after_forward()
        self._lap(FORWARD)
        torch.autograd.backward(loss * weight)
        self._lap(BACKWARD)
        return loss.detach().float()
