"""An optimizer step: passes, clipping, update."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
import torch.distributed as dist
from torch import Tensor, nn

from autoconf_launch.core import AppliedStrategy

from ..model import Batch, LossScale, TrainingParts, build_model, evaluation_mode
from ..parallel import Passes, Pipeline, make_meshes, parallelize, shard_optimizer
from ..rank import UPDATE, PhaseClock, Ranks, StepCutter
from .accumulation import Accumulation
from .checkpoints import Trained
from .gradients import clipping_factor, global_norm, multiply
from .observer import Observer
from .schedules import build_schedule


class Trainer:
    """Builds and lays out the model, then trains it step by step.

    ``clock`` takes every step apart, which slows it.
    """

    def __init__(
        self, recipe: TrainingParts, ranks: Ranks, clock: PhaseClock | None = None
    ) -> None:
        self._lap: Callable[[str], None] = clock.lap if clock else _no_lap
        self._config = recipe.config
        self._ranks = ranks
        meshes = make_meshes(ranks.device, recipe.config.layout, recipe.config.extras)
        model = build_model(recipe.model, ranks.device)
        self._laid_out = parallelize(model, meshes, recipe.config)
        recipe = replace(recipe, loss=self._laid_out.wrap_loss(recipe.loss))
        self._observer = Observer(self._laid_out)
        make_passes = Pipeline if self._laid_out.stages else Accumulation
        self._passes: Passes = make_passes(
            self._laid_out, recipe, ranks, self._lap, self._observer.after_forward
        )
        weights = self._weights = self._laid_out.weights()
        self._parameters = [weight for weight in weights.values() if weight.requires_grad]
        optimizer = recipe.make_optimizer(self._parameters)
        self._optimizer = shard_optimizer(optimizer, meshes, recipe.config)
        self._schedule = build_schedule(recipe.config.scheduler, self._optimizer)
        self._scale = LossScale(recipe.config)
        self._applied: AppliedStrategy | None = None

    @property
    def module(self) -> nn.Module:
        """The model with its wrappers."""
        return self._laid_out.module

    @property
    def applied(self) -> AppliedStrategy | None:
        """The strategy seen in the first step."""
        return self._applied

    @property
    def samples_per_step(self) -> int:
        """Samples of this rank in one optimizer step."""
        layout = self._config.layout
        return layout.samples_of(layout.data_rank(self._ranks.rank))

    @property
    def counted_samples(self) -> int:
        """Samples that no other rank reports: ranks of one model copy see the same."""
        layout = self._config.layout
        of_one_stage = layout.world_size // layout.pipeline_parallel
        inner = layout.tensor_parallel * layout.context_parallel
        is_first = self._ranks.rank < of_one_stage and self._ranks.rank % inner == 0
        return self.samples_per_step if is_first else 0

    @property
    def micro_batches(self) -> int:
        """Micro-batches of this rank in one optimizer step."""
        return self._config.layout.accumulation

    @property
    def can_be_cut(self) -> bool:
        """True if a step may end before its last micro-batch; a pipeline's overlap."""
        return not self._laid_out.stages

    @property
    def trained(self) -> Trained:
        """The state that a checkpoint holds."""
        return Trained(
            model=self._laid_out,
            optimizer=self._optimizer,
            schedule=self._schedule,
            scale=self._scale,
        )

    def step(self, batch: Batch) -> Tensor:
        """Mean loss over the global batch, after the update; see :meth:`.engine.Engine.step`."""
        return self._mean_over_ranks(self._step(batch))

    def step_and_agree(
        self, batch: Batch, asks: Callable[[], bool], cutter: StepCutter | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean loss after the update, and above 0 if any rank asks, in one all-reduce.

        Args:
            batch: of the whole step.
            asks: called once the update is done.
            cutter: may end the step before its last micro-batch.
        """
        loss = self._step(batch, cutter)
        both = self._mean_over_ranks(torch.stack((loss, torch.full_like(loss, float(asks())))))
        return both[0], both[1]

    def evaluate(self, batch: Batch) -> Tensor:
        """Mean loss over a global batch; see :meth:`.engine.Engine.evaluate`."""
        with evaluation_mode(self.module), torch.no_grad():
            self._laid_out.check_batch(batch)
            return self._mean_over_ranks(self._passes.evaluate(batch))

    def _step(self, batch: Batch, cutter: StepCutter | None = None) -> Tensor:
        self._laid_out.check_batch(batch)
        if self._applied is None:
            with evaluation_mode(self.module), torch.no_grad():
                self._laid_out.rehearse(batch, self._passes.evaluate)
        loss = self._passes.train(batch, self._scale.value, cutter)
        self._laid_out.complete_gradients(self._weights)
        self._update()
        if self._applied is None:
            self._applied = self._observer.strategy(
                self._passes, self._optimizer, self._config.layout
            )
        return loss

    def _update(self) -> None:
        if self._prepare_gradients():
            self._optimizer.step()
            if self._schedule is not None:
                self._schedule.advance()
        self._optimizer.zero_grad(set_to_none=True)
        self._lap(UPDATE)

    def _prepare_gradients(self) -> bool:
        """Undo the loss scale and clip; False where the step must be skipped."""
        limit = self._config.gradient_clipping
        if not limit and not self._scale.active:
            return True
        unscaled = 1.0 / self._scale.value
        norm = self._norm() * unscaled
        if self._scale.active and not self._scale.admits(norm):
            return False
        clip = clipping_factor(norm, limit) if limit else torch.ones_like(norm)
        multiply(self._parameters, clip * unscaled)
        return True

    def _norm(self) -> Tensor:
        """The norm over all stages; a weight that two of them have counts once."""
        copies, along = self._laid_out.copies, self._laid_out.along
        if along is None:
            return global_norm(self._parameters)
        own = [w for n, w in self._weights.items() if w.requires_grad and n not in copies]
        return global_norm(own, along.get_group())

    def _mean_over_ranks(self, values: Tensor) -> Tensor:
        if self._ranks.world_size > 1:
            dist.all_reduce(values)
        return values / self._ranks.world_size


def _no_lap(phase: str) -> None:
    """Ignore the end of a phase, where no clock takes steps apart."""
