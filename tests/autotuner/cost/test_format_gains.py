import pytest

from autoconf_launch.autotuner.cost import measured_format_gains
from autoconf_launch.core import Precision
from autoconf_launch.tuning_spaces import machine

FLOPS = 1e12
FP32_S = FLOPS / (67e12 * 0.79)


def gains(now: Precision, step_s: float, gpu: str = "H100") -> dict[Precision, float]:
    found = measured_format_gains(now, machine(gpu), flops=FLOPS, step_s=step_s)
    return {one.precision: one.speed_up for one in found}


def test_products_gain_by_the_rates_and_nothing_else() -> None:
    found = gains(Precision.FP32, FP32_S)
    for precision, rate in ((Precision.TF32, 494.5e12), (Precision.BF16, 989e12)):
        assert found[precision] == pytest.approx(rate * 0.803 * 0.867 * FP32_S / FLOPS, rel=0.01)
    assert gains(Precision.FP32, FP32_S + 1.0) == {}
    assert gains(Precision.TF32, FLOPS / 200e12).keys() == {Precision.BF16}
    assert gains(Precision.FP32, FLOPS / 13e12, "V100").keys() == {Precision.FP16}


@pytest.mark.parametrize("now", [Precision.BF16, Precision.FP16])
def test_16_bits_have_nothing_to_gain(now: Precision) -> None:
    assert gains(now, 1.0) == {}
