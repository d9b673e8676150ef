"""The engine that a training script holds."""

from __future__ import annotations

import os
from typing import Protocol

import torch
from torch import Tensor, nn

from autoconf_launch.core import AppliedStrategy, Layout

from ..model import Batch
from ..rank import Ranks
from .checkpoints import Trained


class Stepper(Protocol):
    """Takes optimizer steps in one of the modes of a rank."""

    @property
    def module(self) -> nn.Module:
        """The model as the script may look at it."""

    @property
    def applied(self) -> AppliedStrategy | None:
        """The strategy that was seen to run."""

    @property
    def trained(self) -> Trained | None:
        """The state that a checkpoint holds; None if nothing is trained."""

    def step(self, batch: Batch) -> Tensor:
        """Make an optimizer step and return its loss."""

    def evaluate(self, batch: Batch) -> Tensor:
        """The loss without an update."""


class Engine:
    """A model that trains as its configuration says; made by ``initialize``."""

    def __init__(self, stepper: Stepper, ranks: Ranks, layout: Layout) -> None:
        self._stepper = stepper
        self._ranks = ranks
        self._layout = layout

    def step(self, batch: Batch) -> Tensor:
        """Train on this rank's share of one optimizer step.

        Args:
            batch: a tensor, or tuples, lists and dicts of tensors, whose first dimension is
                ``samples_per_step``: the part ``share`` of the global batch. It is moved to the
                device by micro-batches.

        Returns:
            The mean loss over the global batch, the same on all ranks, before the update: a
            tensor without dimensions on the device. Reading its value waits for the device.

        Raises:
            ConfigError: the batch has another number of samples.
        """
        return self._stepper.step(batch)

    def evaluate(self, batch: Batch) -> Tensor:
        """The mean loss over a global batch, in evaluation mode, without an update.

        To be called on all ranks, each with its ``share``, as ``step`` is.

        Raises:
            ConfigError: the batch has another number of samples.
        """
        return self._stepper.evaluate(batch)

    def save(self, folder: str | os.PathLike[str], *, consolidated: bool = False) -> None:
        """Write weights, optimizer, schedule and loss scale; to be called on all ranks.

        ``consolidated`` writes whole weights alone, by rank 0: what ``from_pretrained`` loads
        for a model of transformers, ``pytorch_model.bin`` for another.
        """
        trained = self._stepper.trained
        if trained is not None:
            (trained.save_weights if consolidated else trained.save)(folder)

    def load(self, folder: str | os.PathLike[str]) -> None:
        """Go on from what ``save`` wrote, under this or any other layout; call it on all ranks.

        The configuration's own learning rate and schedule count; the schedule goes on from the
        step that was saved.

        Raises:
            ConfigError: there is no checkpoint, or it is of another model or optimizer.
        """
        if (trained := self._stepper.trained) is not None:
            trained.load(folder)

    @property
    def samples_per_step(self) -> int:
        """Samples of this rank in one optimizer step: its micro-batch times accumulation."""
        return self._layout.samples_of(self._layout.data_rank(self._ranks.rank))

    @property
    def global_batch(self) -> int:
        """Samples of all ranks in one optimizer step."""
        return self._layout.global_batch

    @property
    def share(self) -> slice:
        """Which samples of each global batch this rank loads: ``samples[engine.share]``.

        Ranks that train one copy of the model together load the same.
        """
        return self._layout.share(self._layout.data_rank(self._ranks.rank))

    @property
    def module(self) -> nn.Module:
        """The model, wrapped where the layout needs it."""
        return self._stepper.module

    @property
    def device(self) -> torch.device:
        """Device on which this rank computes."""
        return self._ranks.device

    @property
    def rank(self) -> int:
        """This rank's number, from 0."""
        return self._ranks.rank

    @property
    def world_size(self) -> int:
        """Ranks of the launch."""
        return self._ranks.world_size

    @property
    def applied(self) -> AppliedStrategy | None:
        """The strategy found by looking at the live model; None before the first step."""
        return self._stepper.applied
