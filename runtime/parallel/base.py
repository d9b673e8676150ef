"""What a kind of parallelism makes of a model. Not: any kind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from torch import Tensor, nn

from ..model import Batch
from ..rank import StepCutter

AroundMicroBatch: TypeAlias = Callable[[bool], AbstractContextManager[None]]
"""From "is it the last of the step?" to a context for forward and backward."""


def nothing(last: bool) -> AbstractContextManager[None]:
    """A context for models that need nothing around a micro-batch."""
    return nullcontext()


def accept(batch: Batch) -> None:
    """Look at no batch."""


def leave_gradients() -> None:
    """Take gradients as the backward pass leaves them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A model made ready for its steps.

    Attributes:
        module: what the step calls.
        around: what it does around each micro-batch.
        check_batch: looks at a step's batch first, or raises a ConfigError.
        complete_gradients: after the last backward pass, before gradients are used.
    """

    module: nn.Module
    around: AroundMicroBatch = nothing
    check_batch: Callable[[Batch], None] = accept
    complete_gradients: Callable[[], None] = leave_gradients


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
