import pytest

from autoconf_launch.autotuner.cost import measured_format_gains
from autoconf_launch.core import BlockSpec, Grade, MicroBatchTiming, ModelSpec, Precision
from autoconf_launch.tuning_spaces import machine

FLOPS = 1e12


def gains(
    now: Precision, step_s: float | None, gpu: str = "H100", flops: float = FLOPS
) -> dict[Precision, float]:
    timing = MicroBatchTiming(micro_batch=4, forward_backward_s=step_s, activation_bytes=0)
    block = BlockSpec(name="all", parameters=10, flops=flops)
    spec = ModelSpec(grade=Grade.MEASURED, blocks=(block,), timings=(timing,))
    found = measured_format_gains(now, machine(gpu), spec)
    return {one.precision: one.speed_up for one in found}


def test_a_step_of_products_alone_gains_by_the_rates() -> None:
    found = gains(Precision.FP32, 12 * FLOPS / (67e12 * 0.79))
    rates = {Precision.TF32: 494.5e12, Precision.BF16: 989e12}
    for precision, rate in rates.items():
        assert found[precision] == pytest.approx(rate * 0.803 * 0.867 / (67e12 * 0.79), rel=0.01)


def test_what_is_not_a_product_takes_as_long() -> None:
    found = gains(Precision.FP32, 10.0 + 12 * FLOPS / (67e12 * 0.79))
    assert found == {}


def test_tf32_gains_by_16_bits_only() -> None:
    assert gains(Precision.TF32, 12 * FLOPS / 200e12).keys() == {Precision.BF16}


@pytest.mark.parametrize("now", [Precision.BF16, Precision.FP16])
def test_16_bits_have_nothing_to_gain(now: Precision) -> None:
    assert gains(now, 1.0) == {}


def test_nothing_is_said_of_a_model_without_operations_or_times() -> None:
    assert gains(Precision.FP32, 1.0, flops=0.0) == {}
    assert gains(Precision.FP32, None) == {}
