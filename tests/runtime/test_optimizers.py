from typing import Any

import pytest
import torch
from torch.nn import Parameter
from torch.optim import Optimizer

from autoconf_launch.core import OPTIMIZERS, ConfigError, OptimizerConfig
from autoconf_launch.runtime.model import base_learning_rate, optimizer_maker


def make(kind: str, **parameters: Any) -> Optimizer:
    config = OptimizerConfig(kind=kind, parameters=tuple(parameters.items()))
    return optimizer_maker(config)([Parameter(torch.zeros(2))])


def test_adam_decays_weights_as_adamw_does_unless_its_mode_is_off() -> None:
    off = {"adam_w_mode": False}
    made = [make("Adam"), make("Adam", **off), make("AdamW", **off)]
    assert [type(one) for one in made] == [torch.optim.AdamW, torch.optim.Adam, torch.optim.AdamW]


@pytest.mark.parametrize(("torch_adam", "decay"), [(False, 0.0), (True, 0.01)])
def test_weight_decay_that_is_not_given(torch_adam: bool, decay: float) -> None:
    assert make("AdamW", torch_adam=torch_adam).defaults["weight_decay"] == decay


@pytest.mark.parametrize("kind", sorted(OPTIMIZERS))
def test_every_kind_can_be_made(kind: str) -> None:
    assert make(kind, lr=0.1, weight_decay=0.2).defaults["lr"] == 0.1


def test_a_list_becomes_a_tuple() -> None:
    assert make("AdamW", betas=[0.8, 0.9]).defaults["betas"] == (0.8, 0.9)


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"weigth_decay": 0.1}, "did you mean 'weight_decay'"),
        ({"lr": "auto"}, "autoconf-launch"),
        ({"lr": -1.0}, "optimizer AdamW: Invalid learning rate"),
        ({"bias_correction": False}, "bias_correction"),
    ],
)
def test_a_wrong_parameter_is_refused(parameters: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make("AdamW", **parameters)


def test_no_optimizer_at_all_says_what_to_add() -> None:
    with pytest.raises(ConfigError, match="has no optimizer; add"):
        optimizer_maker(None)


def test_the_base_learning_rate_is_the_one_that_a_schedule_starts_from() -> None:
    optimizer = make("SGD", lr=0.5)
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.1 * step)
    assert optimizer.param_groups[0]["lr"] == 0.0
    assert base_learning_rate((optimizer, make("SGD", lr=0.25))) == 0.5


def test_there_is_no_learning_rate_without_an_optimizer() -> None:
    assert base_learning_rate(()) is None
