"""What a kind of parallelism makes of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from autoconf_launch.core import RUNTIME_KNOBS, KnobValue, ResolvedConfig

from ..model import Batch, LossFunction
from ..rank import StepCutter
from ..stages import Stage

AroundMicroBatch: TypeAlias = Callable[[bool], AbstractContextManager[None]]
"""From "is it the last of the step?" to a context for forward and backward."""


def nothing(last: bool) -> AbstractContextManager[None]:
    """A context for models that need nothing around a micro-batch."""
    return nullcontext()


Extras: TypeAlias = tuple[tuple[str, KnobValue], ...]


def knob_value(config: ResolvedConfig, name: str) -> Any:
    """The value of a knob in a configuration, else its default."""
    return dict(config.extras).get(name, RUNTIME_KNOBS[name].default)


Weights: TypeAlias = Mapping[str, nn.Parameter]
"""This rank's, by the names that they have in the model as it was built."""


def accept(batch: Batch) -> None:
    """Look at no batch."""


def leave_gradients(weights: Weights) -> None:
    """Take gradients as the backward pass leaves them."""


def skip_rehearsal(batch: Batch, evaluate: Callable[[Batch], Tensor]) -> None:
    """Train at once."""


def keep_loss(loss: LossFunction) -> LossFunction:
    """Work on micro-batches as they come."""
    return loss


@dataclass(frozen=True, slots=True, kw_only=True)
class Owned:
    """A weight or buffer of the model and the rank along a pipeline that has it."""

    rank: int
    shape: torch.Size
    dtype: torch.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A model made ready for its steps.

    Attributes:
        module: what the step calls.
        around: what it does around each micro-batch.
        check_batch: looks at a step's batch first, or raises a ConfigError.
        rehearse: before the first step, given its batch and what evaluates one; may raise, too.
        wrap_loss: from the loss of a micro-batch to what a rank computes of it.
        complete_gradients: after the last backward pass, before gradients are used.
        stages: those of a pipeline that this rank has, which ``module`` then holds.
        along: the pipeline's ranks.
        owners: all weights and buffers of a pipeline's model, by name.
        copies: weights that are another stage's too, with the name that they have there.
    """

    module: nn.Module
    stages: tuple[Stage, ...] = ()
    along: DeviceMesh | None = None
    owners: Mapping[str, Owned] = field(default_factory=dict)
    copies: Mapping[str, str] = field(default_factory=dict)
    around: AroundMicroBatch = nothing
    check_batch: Callable[[Batch], None] = accept
    rehearse: Callable[[Batch, Callable[[Batch], Tensor]], None] = skip_rehearsal
    wrap_loss: Callable[[LossFunction], LossFunction] = keep_loss
    complete_gradients: Callable[[Weights], None] = leave_gradients

    @property
    def roots(self) -> tuple[nn.Module, ...]:
        """What is called as a whole: the module, or each stage."""
        return self.stages or (self.module,)

    @property
    def models(self) -> tuple[nn.Module, ...]:
        """What has its weights under the names that they had in the model as it was built."""
        if self.stages:
            return tuple(stage.model for stage in self.stages)
        module = self.module
        return (module.module if isinstance(module, DistributedDataParallel) else module,)

    def weights(self) -> dict[str, nn.Parameter]:
        """Weights of this rank, trained or not."""
        return {n: weight for model in self.models for n, weight in model.named_parameters()}

    def completed_by(self, complete: Callable[[Weights], None]) -> Applied:
        """This layout, with one more thing done to gradients after those that are."""

        def both(weights: Weights) -> None:
            self.complete_gradients(weights)
            complete(weights)

        return replace(self, complete_gradients=both)


class Passes(Protocol):
    """Makes a step's micro-batches: a loop over them, or the schedule of a pipeline.

    Losses are such that their mean over all ranks is that of the global batch.
    """

    def train(self, batch: Batch, scale: float, cutter: StepCutter | None = None) -> Tensor:
        """Forward and backward passes of a rank's share; their loss.

        Args:
            batch: of the whole step.
            scale: what gradients are multiplied with.
            cutter: may end the step before its last micro-batch.
        """

    def evaluate(self, batch: Batch) -> Tensor:
        """The loss of a rank's share, by forward passes alone."""
