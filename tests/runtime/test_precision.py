import torch

from autoconf_launch.core import BUILTIN_PRECISIONS, Layout, Precision, ResolvedConfig
from autoconf_launch.runtime.model import LossScale, compute_in

GOOD, INFINITE = torch.tensor(1.0), torch.tensor(float("inf"))


def scale(precision: Precision, loss_scale: float = 0.0) -> LossScale:
    config = ResolvedConfig(layout=Layout(), precision=precision, loss_scale=loss_scale)
    return LossScale(config)


def test_only_fp16_scales_its_loss() -> None:
    assert [scale(p).value for p in BUILTIN_PRECISIONS] == [1.0, 1.0, 2.0**16]


def test_infinite_gradients_leave_a_step_out_and_halve_a_dynamic_scale() -> None:
    dynamic = scale(Precision.FP16)
    assert not dynamic.admits(INFINITE)
    assert dynamic.value == 2.0**15


def test_a_dynamic_scale_doubles_after_many_good_steps() -> None:
    dynamic = scale(Precision.FP16)
    for _ in range(1000):
        dynamic.admits(GOOD)
    assert dynamic.value == 2.0**17


def test_a_static_scale_stays() -> None:
    static = scale(Precision.FP16, loss_scale=128.0)
    static.admits(INFINITE)
    assert static.value == 128.0


def test_products_are_computed_in_the_precision_asked_for() -> None:
    weight = torch.ones(2, 2)
    with compute_in(Precision.BF16, torch.device("cpu")):
        assert (weight @ weight).dtype is torch.bfloat16
