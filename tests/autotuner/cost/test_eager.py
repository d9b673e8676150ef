from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.cost.hardware import DEFAULT_PHYSICS
from autoconf_launch.autotuner.cost.kernel_times import forward_backward_s, optimizer_traffic_bytes
from autoconf_launch.autotuner.cost.layer import Kernels
from autoconf_launch.core import Optimizer
from autoconf_launch.core.rank import OperationCost
from autoconf_launch.tuning_spaces.machines import machine

KERNELS = Kernels(accelerator=machine("A100-SXM-80GB").accelerator, physics=DEFAULT_PHYSICS)
PRODUCT = OperationCost(flops=1e12, moved_bytes=10**8)
COPY = OperationCost(flops=0.0, moved_bytes=10**9)


def test_without_operations_no_time_is_known() -> None:
    assert math.isnan(forward_backward_s((), KERNELS, share=1.0))


def test_a_product_is_no_faster_than_the_datasheet() -> None:
    assert forward_backward_s((PRODUCT,), KERNELS, share=1.0) > 1e12 / 312e12


def test_a_copy_takes_as_long_as_its_bytes() -> None:
    least = 1e9 / KERNELS.bytes_per_s
    assert least < forward_backward_s((COPY,), KERNELS, share=1.0) < 1.2 * least


@given(st.floats(0.01, 100), st.floats(1.0, 10))
def test_more_samples_never_take_less_time(share: float, more: float) -> None:
    operations = (PRODUCT, COPY)
    once = forward_backward_s(operations, KERNELS, share=share)
    assert forward_backward_s(operations, KERNELS, share=share * more) >= once * (1 - 1e-9)


def test_many_small_operations_wait_for_the_host() -> None:
    small = OperationCost(flops=0.0, moved_bytes=1, count=1000)
    assert forward_backward_s((small,), KERNELS, share=1.0) > 1000 * KERNELS.physics.kernel_s


def test_an_optimizer_with_more_state_takes_longer() -> None:
    adam, sgd = (
        optimizer_traffic_bytes(Optimizer.from_name(name), DEFAULT_PHYSICS)
        for name in ("adam", "sgd")
    )
    assert adam > sgd > 0
