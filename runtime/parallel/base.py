"""What a kind of parallelism makes of a model. Not: any kind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeAlias

from torch import nn

from ..model import Batch

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
