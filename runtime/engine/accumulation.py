"""Micro-batches one after the other, each forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..model import Batch, TrainingParts, compute_in, split, to_device
from ..parallel import Applied
from ..rank import BACKWARD, FORWARD, Ranks, StepCutter


class Accumulation:
    """Passes of a rank that computes its micro-batches from end to end."""

    def __init__(
        self,
        applied: Applied,
        recipe: TrainingParts,
        ranks: Ranks,
        lap: Callable[[str], None],
        after_forward: Callable[[], None],
    ) -> None:
        self._applied = applied
        self._loss = recipe.loss
        self._config = recipe.config
        self._device = ranks.device
        layout = recipe.config.layout
        data_rank = layout.data_rank(ranks.rank)
        self._micro_batch = layout.micro_batch_of(data_rank)
        self._weight = layout.loss_weight(data_rank)
        self._lap = lap
        self._after_forward = after_forward

    def train(self, batch: Batch, scale: float, cutter: StepCutter | None = None) -> Tensor:
        """Accumulate gradients; see :class:`.parallel.Passes`."""
        accumulation = self._config.layout.accumulation
        weight = scale * self._weight / accumulation
        losses: list[Tensor] = []
        for micro_batch in self._split(batch):
            last = cutter.last() if cutter else accumulation
            with self._applied.around(len(losses) == last - 1):
                losses.append(self._forward_backward(micro_batch, weight))
            if cutter:
                cutter.end_micro_batch()
            if len(losses) == last:
                break
        return torch.stack(losses).mean() * self._weight

    def evaluate(self, batch: Batch) -> Tensor:
        """The mean of the micro-batches' losses."""
        losses = [self._forward(part).float() for part in self._split(batch)]
        return torch.stack(losses).mean() * self._weight

    def _split(self, batch: Batch) -> Iterator[Batch]:
        accumulation = self._config.layout.accumulation
        return split(batch, micro_batch=self._micro_batch, accumulation=accumulation)

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
