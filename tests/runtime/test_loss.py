from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from autoconf_launch.runtime.model import model_loss
from autoconf_launch.runtime.model.model_source import scalar_loss


class Product(nn.Module):
    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return (left * right).sum()


TWO, THREE = torch.tensor([2.0]), torch.tensor([3.0])


@pytest.mark.parametrize("batch", [(TWO, THREE), [TWO, THREE], {"right": THREE, "left": TWO}])
def test_parts_of_a_micro_batch_become_arguments(batch: Any) -> None:
    assert model_loss(Product(), batch).item() == 6.0


@pytest.mark.parametrize("output", [SimpleNamespace(loss=TWO), {"loss": TWO}, TWO])
def test_the_loss_is_found_in_the_output(output: Any) -> None:
    assert scalar_loss(output).shape == ()


@pytest.mark.parametrize("output", [torch.zeros(2, 3), None, {"logits": TWO}])
def test_an_output_without_a_scalar_is_refused(output: Any) -> None:
    with pytest.raises(TypeError, match="must be a scalar tensor"):
        scalar_loss(output)
