"""What a kind of parallelism makes of a model. Not: any kind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TypeAlias

from torch import nn

AroundMicroBatch: TypeAlias = Callable[[bool], AbstractContextManager[None]]
"""From "is it the last of the step?" to a context for forward and backward."""


def nothing(last: bool) -> AbstractContextManager[None]:
    """A context for models that need nothing around a micro-batch."""
    return nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """A model made ready: what the step calls, and what it does around each micro-batch."""

    module: nn.Module
    around: AroundMicroBatch = nothing
