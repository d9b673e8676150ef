import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from autoconf_launch.runtime.engine.trainer import clipping_factor, global_norm, multiply


def with_gradients(*values: float) -> list[Tensor]:
    parameters = [torch.zeros(1, requires_grad=True) for _ in values]
    for parameter, value in zip(parameters, values, strict=True):
        parameter.grad = torch.tensor([value])
    return parameters


def test_the_norm_is_over_all_parameters() -> None:
    assert global_norm(with_gradients(3.0, 4.0)).item() == pytest.approx(5.0)


def test_parameters_without_a_gradient_do_not_matter() -> None:
    assert global_norm([*with_gradients(3.0), torch.zeros(1)]).item() == pytest.approx(3.0)


@given(norm=st.floats(0, 1e6), limit=st.floats(1e-3, 1e3))
def test_a_clipped_norm_is_at_most_the_limit(norm: float, limit: float) -> None:
    clipped = norm * clipping_factor(torch.tensor(norm), limit).item()
    assert clipped <= limit * 1.001


def test_a_small_norm_is_not_changed() -> None:
    assert clipping_factor(torch.tensor(0.5), 1.0).item() == 1.0


def test_all_gradients_are_multiplied_in_place() -> None:
    parameters = with_gradients(3.0, 4.0)
    multiply(parameters, 0.5)
    assert [float(p.grad) for p in parameters if p.grad is not None] == [1.5, 2.0]
