from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autoconf_launch.autotuner.cost import DEFAULT_PHYSICS, Kernels, peak_flops_per_s
from autoconf_launch.core import Precision

from .conftest import MACHINE

PLAIN = replace(
    DEFAULT_PHYSICS, sustained=1.0, kernel_s=0.0, depth_half=0.0, split_efficiency=0.01
)
"""No overhead and no cutting along k, so that only tiles and waves are seen."""


def test_products_fill_whole_tiles_and_waves_unless_memory_bounds_them() -> None:
    kernels = Kernels(accelerator=MACHINE.accelerator, physics=PLAIN)
    m, n, k = 256 * 10, 128 * 10, 4096  # 100 tiles on 100 multiprocessors
    assert float(kernels.product_s(m, n, k)) == pytest.approx(2 * m * n * k / 100e12)
    whole, more = kernels.product_s(np.array([2560, 2816]), 1280, 4096)
    assert more > 1.2 * whole
    odd, even = kernels.product_s(4096, np.array([14336 - 100, 14336]), 4096)
    assert odd == even
    moved_bytes = 2 * (1 * 65536 + 65536 * 65536) + 2 * 65536
    least = moved_bytes / (1e12 * PLAIN.memory_efficiency)
    assert float(kernels.product_s(1, 65536, 65536)) >= least
    slow, fast = (
        replace(MACHINE.accelerator, half_flops_per_s=rate, memory_bytes_per_s=2e12)
        for rate in (100e12, 900e12)
    )
    small, large = (
        Kernels(accelerator=gpu, physics=DEFAULT_PHYSICS).depth_half for gpu in (slow, fast)
    )
    assert small == DEFAULT_PHYSICS.depth_half
    assert large > 2 * small
    gpu = replace(MACHINE.accelerator, fp8_flops_per_s=None)
    assert peak_flops_per_s(gpu, Precision.FP8) == gpu.half_flops_per_s


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(m=st.integers(1, 1 << 16), n=st.integers(1, 1 << 14), k=st.integers(1, 1 << 14))
def test_no_product_beats_the_datasheet(m: int, n: int, k: int) -> None:
    kernels = Kernels(accelerator=MACHINE.accelerator, physics=DEFAULT_PHYSICS)
    assert float(kernels.product_s(m, n, k)) >= 2.0 * m * n * k / 100e12
