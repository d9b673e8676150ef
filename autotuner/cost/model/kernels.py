"""Seconds of single kernels on one GPU. Not: which kernels a layer has (layer).

A matrix product is cut into tiles, and the multiprocessors take them in waves: a last wave that
is half empty costs a whole one (NVIDIA, "Matrix Multiplication Background User's Guide",
sections 4 and 5, tile and wave quantization). Products with few tiles are cut along k instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from autoconf_launch.core import Precision

from ...table import Floats, Ints
from .hardware import Accelerator
from .physics import Physics

Numbers: TypeAlias = Floats | Ints | float
_TILES = ((256, 128, 1.0), (128, 256, 1.0), (128, 128, 0.92), (64, 128, 0.75), (64, 64, 0.55))
"""Rows, columns, and speed of a tile over the largest one's (same guide, section 5.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels:
    """Kernels of one GPU in one precision."""

    accelerator: Accelerator
    physics: Physics
    precision: Precision = Precision.BF16
    engine: bool = False

    @property
    def peak_flops_per_s(self) -> float:
        """Datasheet rate of the matrix products."""
        return peak_flops_per_s(self.accelerator, self.precision)

    @property
    def bytes_per_s(self) -> float:
        """Memory bandwidth that simple kernels reach."""
        return self.accelerator.memory_bytes_per_s * self.physics.memory_efficiency

    def product_s(self, m: Numbers, n: Numbers, k: Numbers, count: Numbers = 1) -> Floats:
        """``count`` products (m x k) by (k x n) in one launch; sizes are whole, at least 1."""
        m, n, k, count = (np.maximum(np.asarray(x, np.float64), 1.0) for x in (m, n, k, count))
        physics = self.physics
        rate = self.peak_flops_per_s * self.accelerator.reached * physics.sustained
        if self.precision.is_fp8:
            rate *= physics.fp8_efficiency
        units = self.accelerator.multiprocessors
        depth = 2.0 * (k + physics.depth_half) * units / rate
        best: Floats | None = None
        for rows, columns, speed in _TILES:
            tiles = np.ceil(m / rows) * np.ceil(n / columns) * count
            waves = tiles / units
            cut = np.maximum(waves, np.minimum(1.0, waves * k / 256)) / physics.split_efficiency
            taken = np.minimum(np.ceil(waves), cut) * (rows * columns / speed) * depth
            best = taken if best is None else np.minimum(best, taken)
        assert best is not None
        size = 1 if self.precision.is_fp8 else 2
        moved = (size * (m * k + k * n) + 2 * m * n) * count / self.bytes_per_s
        cast: Floats | float = 0.0
        if size == 1:
            passes = physics.fp8_passes * (physics.fp8_engine if self.engine else 1.0)
            passes *= physics.fp8_rowwise if self.precision is Precision.FP8_ROWWISE else 1.0
            cast = passes * (m * k + k * n) * count / self.bytes_per_s
        return np.asarray(np.maximum(best, moved) + cast + physics.kernel_s)

    def traffic_s(self, moved_bytes: Floats, kernels: float = 1.0) -> Floats:
        """Simple kernels that only move bytes."""
        return np.asarray(moved_bytes / self.bytes_per_s + kernels * self.physics.kernel_s)


def peak_flops_per_s(accelerator: Accelerator, precision: Precision) -> float:
    """Datasheet rate; fp8 falls back to 16 bits where the GPU has no such unit.

    fp32 is TF32, half the 16-bit rate, as torch trains with it.
    """
    half = accelerator.half_flops_per_s
    if precision.is_fp8:
        return accelerator.fp8_flops_per_s or half
    return half / 2 if precision is Precision.FP32 else half
