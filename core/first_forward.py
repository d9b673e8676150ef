"""What a probe leaves of a script that it stopped at its first forward pass. Not: a prediction.

Everything is of one rank and of the micro-batch that the script made.
"""

from __future__ import annotations

from dataclasses import dataclass

from .layout import Recompute
from .model_spec import ModelSpec, TracedPeak
from .precision import Precision

FIRST_FORWARD_FILE = "first_forward.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationCost:
    """``count`` operations that cost the same: FLOPs, and bytes read and written."""

    flops: float
    moved_bytes: int
    count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstForward:
    """A script's model, and one forward and backward pass of its own.

    Attributes:
        model: its blocks for one sample; without peaks and seconds.
        micro_batch: samples of the pass.
        fake: nothing was computed; False: on the CPU, with the script's real tensors.
        peaks: of each phase, with weights and gradients but without optimizer state; "optimizer"
            is there where its step was tried.
        operations: of forward and backward.
        backward: whether the script came to a backward pass.
        optimizer: name of the class; None: none was made before the pass.
        state_bytes: what the optimizer keeps; None where its step could not be tried.
        wrapper: class of the module around the model, such as ``DistributedDataParallel``.
        config: ``model.config`` as JSON, where it has one as Hugging Face's models do.
        left_behind: new paths in the working directory.
    """

    model: ModelSpec
    micro_batch: int
    fake: bool
    peaks: tuple[TracedPeak, ...] = ()
    operations: tuple[OperationCost, ...] = ()
    backward: bool = True
    precision: Precision = Precision.FP32
    recompute: Recompute = Recompute.NONE
    optimizer: str | None = None
    state_bytes: int | None = None
    wrapper: str | None = None
    config: str | None = None
    left_behind: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
