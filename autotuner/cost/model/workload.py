"""What is trained and by which kernels, as the time model sees it. Not: how it is laid out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from autoconf_launch.core import Architecture


class Arithmetic(str, Enum):
    """Format of the matrix products."""

    HALF = "half"
    """fp16 or bf16."""
    FP8 = "fp8"
    FP8_ROWWISE = "fp8-rowwise"
    FP32 = "fp32"


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One step's model and software.

    Attributes:
        seq: tokens of one sample.
        flash: attention in one kernel that never writes the scores.
        compiled: a compiler fuses the small operations.
        engine: kernels of a vendor's training library (Transformer Engine).
        flat_gathers: weights of a layer are gathered as one buffer, not matrix by matrix.
        selective_products: share of the matrix products that selective recomputation repeats;
            0 where it repeats small operations only.
        async_tensor: tensor-parallel communication is cut up to run beside its products.
        overlapped_reduce: gradients are reduced while the backward pass still runs.
        gradient_bytes_each: size of a gradient on its way between replicas.
        trained: share of the weights that have gradients (below 1 for LoRA).
    """

    architecture: Architecture
    seq: int
    arithmetic: Arithmetic = Arithmetic.HALF
    flash: bool = True
    compiled: bool = False
    engine: bool = False
    flat_gathers: bool = True
    selective_products: float = 0.0
    async_tensor: bool = False
    overlapped_reduce: bool = False
    gradient_bytes_each: int = 2
    trained: float = 1.0

    @property
    def weight_bytes_each(self) -> int:
        """Size of a weight in forward and backward."""
        return 4 if self.arithmetic is Arithmetic.FP32 else 2
