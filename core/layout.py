"""Layouts of a model over the ranks, the knobs of a layout, and candidates.

The field names are the canonical knobs; ``autotuner/space/knobs.py`` says what each one means to a
search, a dialect says how a framework spells it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import TypeAlias

from .equations import data_rank, global_batch

KnobValue: TypeAlias = bool | int | float | str | None
_Sizes: TypeAlias = tuple[int, ...] | None
"""Values to choose from; None for any."""
ALL_LAYERS = -1
"""As a number of recomputed layers of each pipeline stage: all that it has."""


class Precision(str, Enum):
    """Format of the matrix products in forward and backward."""

    FP32 = "fp32"
    TF32 = "tf32"
    """fp32 numbers, whose products tensor cores round to 10 bits; fp32 if a GPU lacks them."""
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    """A scale per tensor, from the largest values of earlier steps."""
    FP8_CURRENT = "fp8_current"
    """A scale per tensor, from its own largest value."""
    FP8_BLOCKWISE = "fp8_blockwise"
    """A scale per block of 128 x 128 weights, or of 128 activations."""
    FP8_ROWWISE = "fp8_rowwise"
    """A scale per row."""
    MXFP8 = "mxfp8"
    """A scale per 32 numbers (OCP Microscaling Formats 1.0)."""
    NVFP4 = "nvfp4"
    """4 bits, one scale per 16 numbers."""

    @property
    def configured(self) -> Precision:
        """The format as configurations name it: TF32 is a switch of torch besides fp32."""
        return Precision.FP32 if self is Precision.TF32 else self

    @property
    def is_fp8(self) -> bool:
        """True if matrix products take 8-bit floating-point numbers, whatever their scales."""
        return "fp8" in self.value

    @property
    def is_quantized(self) -> bool:
        """True if matrix products take scaled numbers of 8 bits or fewer."""
        return self.is_fp8 or self is Precision.NVFP4

    @property
    def product_bytes(self) -> float:
        """Size of a number that a matrix product takes; 4 bits have a byte of scale for 16."""
        if self is Precision.NVFP4:
            return 0.5625
        return 1.0 if self.is_fp8 else float(self.value_bytes)

    @property
    def value_bytes(self) -> int:
        """Size of a weight in forward and backward, and of an activation outside the products."""
        return 4 if self in (Precision.FP32, Precision.TF32) else 2


BUILTIN_PRECISIONS = (Precision.FP32, Precision.BF16, Precision.FP16)
"""Precisions of our runtime; the others are for planning."""


class Recompute(str, Enum):
    """Activations that are computed again in the backward pass."""

    NONE = "none"
    SELECTIVE = "selective"
    """Matrix products and attention are kept, the cheap rest is computed again."""
    FULL = "full"
    """Each block keeps its input only."""


class Offload(str, Enum):
    """Memory of a training that is kept on the host."""

    NONE = "none"
    OPTIMIZER = "optimizer"
    PARAMETERS = "parameters"
    """Weights, gradients and optimizer state."""
    ACTIVATIONS = "activations"
    """Activations that wait for the backward pass; with recomputation the inputs of layers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Degrees of parallelism, batch split and memory savers of one launch.

    ``placement``, ``pipeline_split`` and ``micro_batch_split`` are for unequal machines: the
    slot of each rank, the blocks of each pipeline stage, the micro-batch of each data-parallel
    rank, whose mean is ``micro_batch``; None means even.
    """

    data_parallel: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    virtual_pipeline: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    zero_stage: int = 0
    micro_batch: int = 1
    accumulation: int = 1
    recompute: Recompute = Recompute.NONE
    sequence_parallel: bool = False
    offload: Offload = Offload.NONE
    placement: tuple[int, ...] | None = None
    pipeline_split: tuple[int, ...] | None = None
    micro_batch_split: tuple[int, ...] | None = None

    @property
    def world_size(self) -> int:
        """Ranks of the launch: the mesh equation (expert ranks are data-parallel ranks)."""
        return (
            self.data_parallel
            * self.tensor_parallel
            * self.pipeline_parallel
            * self.context_parallel
        )

    @property
    def mesh(self) -> tuple[int, int, int, int]:
        """Tensor, pipeline, context and expert ranks: the order of NVIDIA's tools."""
        return (
            self.tensor_parallel,
            self.pipeline_parallel,
            self.context_parallel,
            self.expert_parallel,
        )

    def data_rank(self, rank: int) -> int:
        """Number of a rank's model copy, which decides the data that it loads."""
        return data_rank(
            rank,
            data_parallel=self.data_parallel,
            tensor=self.tensor_parallel,
            context=self.context_parallel,
        )

    def micro_batch_of(self, data_rank: int) -> int:
        """Samples that one data-parallel rank computes at once."""
        return self.micro_batch_split[data_rank] if self.micro_batch_split else self.micro_batch

    def samples_of(self, data_rank: int) -> int:
        """Samples of one data-parallel rank in one optimizer step."""
        return self.micro_batch_of(data_rank) * self.accumulation

    def loss_weight(self, data_rank: int) -> float:
        """Factor of one data-parallel rank's loss, so that each sample counts alike."""
        return self.micro_batch_of(data_rank) / self.micro_batch

    def share(self, data_rank: int) -> slice:
        """Samples of each global batch that one data-parallel rank trains on."""
        before = sum(map(self.samples_of, range(data_rank)))
        return slice(before, before + self.samples_of(data_rank))

    @property
    def global_batch(self) -> int:
        """Samples of one optimizer step."""
        return global_batch(
            micro_batch=self.micro_batch,
            accumulation=self.accumulation,
            data_parallel=self.data_parallel,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Values that a :class:`Layout` may have; None leaves a field open.

    Attributes:
        recompute_layers: layers of each stage that are recomputed in full, besides the kinds of
            ``recompute``; empty for no such layouts.
        least_product, most_product: of tensor x pipeline x context x expert ranks.
    """

    tensor_parallel: _Sizes = None
    pipeline_parallel: _Sizes = None
    virtual_pipeline: _Sizes = None
    context_parallel: _Sizes = None
    expert_parallel: _Sizes = None
    micro_batch: _Sizes = None
    zero_stage: _Sizes = None
    recompute: tuple[Recompute, ...] | None = None
    recompute_layers: _Sizes = None
    sequence_parallel: tuple[bool, ...] | None = None
    offload: tuple[Offload, ...] | None = None
    least_product: int | None = None
    most_product: int | None = None

    @property
    def mesh_axes(self) -> tuple[tuple[int, ...], ...]:
        """Tensor, pipeline, context and expert ranks; 1 if they are open."""
        axes = (
            *(self.tensor_parallel, self.pipeline_parallel),
            *(self.context_parallel, self.expert_parallel),
        )
        return tuple(axis or (1,) for axis in axes)

    def allows_product(self, ranks: int) -> bool:
        """True if the degrees of model parallelism may multiply to ``ranks``."""
        return (self.least_product or 1) <= ranks <= (self.most_product or ranks)

    def override(self, wanted: Degrees) -> Degrees:
        """These degrees, with the values of ``wanted`` in their place."""
        listed = {field.name: getattr(wanted, field.name) for field in fields(wanted)}
        return replace(self, **{name: value for name, value in listed.items() if value})


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A value for each knob: the layout, and knobs that only some frameworks have."""

    layout: Layout
    extras: tuple[tuple[str, KnobValue], ...] = ()
