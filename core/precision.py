"""Number formats of a training's computation."""

from __future__ import annotations

from enum import Enum


class Precision(str, Enum):
    """Format of the matrix products in forward and backward."""

    FP32 = "fp32"
    TF32 = "tf32"
    """fp32 numbers, whose products tensor cores round to 10 bits; fp32 where a GPU lacks them."""
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    """One scale per tensor, from the largest values of earlier steps."""
    FP8_CURRENT = "fp8_current"
    """One scale per tensor, from its own largest value."""
    FP8_BLOCKWISE = "fp8_blockwise"
    """One scale per block of 128 x 128 weights, or of 128 activations."""
    FP8_ROWWISE = "fp8_rowwise"
    """One scale per row."""
    MXFP8 = "mxfp8"
    """One scale per 32 numbers (OCP Microscaling Formats 1.0)."""
    NVFP4 = "nvfp4"
    """4 bits, one scale per 16 numbers."""

    @property
    def configured(self) -> Precision:
        """The format as configurations name it: TF32 is a switch of torch beside fp32."""
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
