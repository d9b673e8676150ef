"""The engine in this process, the only rank."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import SGD, Optimizer

from autoconf_launch.core import ConfigError
from autoconf_launch.runtime.engine import Engine, initialize

pytestmark = pytest.mark.usefixtures("alone")
SAMPLES, STEPS, RATE = 4, 3, 0.5


def losses(engine: Engine, batches: list[tuple[Tensor, Tensor]]) -> list[float]:
    return [float(engine.step(batch)) for batch in batches]


def plain_losses(tiny: Any) -> list[float]:
    model = tiny.Tiny()
    optimizer, seen = SGD(model.parameters(), lr=RATE, momentum=0.9), []
    for batch in tiny.global_batches(SAMPLES, STEPS):
        loss = model(*batch)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        seen.append(loss.item())
    return seen


def decaying(parameters: Iterable[Parameter]) -> Optimizer:
    """Two groups, as many scripts make them."""
    weights = list(parameters)
    groups = [
        {"params": [w for w in weights if w.dim() > 1], "weight_decay": 0.0},
        {"params": [w for w in weights if w.dim() == 1], "weight_decay": 0.0},
    ]
    return SGD(groups, lr=RATE, momentum=0.9)


@pytest.mark.parametrize("stage", range(4))
def test_every_stage_works_on_one_rank_and_is_seen_after_a_step(tiny: Any, stage: int) -> None:
    engine = initialize(tiny.Tiny, tiny.config(zero_optimization={"stage": stage}))
    assert engine.applied is None
    seen = losses(engine, tiny.global_batches(SAMPLES, STEPS))
    assert seen == pytest.approx(plain_losses(tiny), abs=1e-5)
    assert engine.applied
    assert engine.applied.zero_stage == stage


@pytest.mark.parametrize("stage", range(4))
def test_an_optimizer_of_ones_own_with_groups_is_used(tiny: Any, stage: int) -> None:
    config = tiny.config(
        zero_optimization={"stage": stage}, optimizer={"type": "AdamW", "params": {"lr": 1.0}}
    )
    engine = initialize(tiny.Tiny(), config, optimizer=decaying)
    seen = losses(engine, tiny.global_batches(SAMPLES, STEPS))
    assert seen == pytest.approx(plain_losses(tiny), abs=1e-5)


def test_the_schedule_sets_the_rate(tiny: Any) -> None:
    schedule = {"type": "WarmupLR", "params": {"warmup_max_lr": 0.0}}
    engine = initialize(tiny.Tiny, tiny.config(scheduler=schedule))
    batch = tiny.global_batches(SAMPLES, 1)[0]
    first, second, third = losses(engine, [batch] * STEPS)
    assert first == second == third


def test_samples_per_step_is_micro_batch_times_accumulation(tiny: Any) -> None:
    config = tiny.config(train_micro_batch_size_per_gpu=3, gradient_accumulation_steps=5)
    assert initialize(tiny.Tiny, config).samples_per_step == 15


def test_one_rank_loads_the_whole_global_batch(tiny: Any) -> None:
    engine = initialize(tiny.Tiny, tiny.config())
    assert list(range(engine.global_batch))[engine.share] == [0, 1, 2, 3]


def test_a_batch_of_another_size_is_refused(tiny: Any) -> None:
    engine = initialize(tiny.Tiny, tiny.config())
    with pytest.raises(ConfigError, match=r"got 3 samples"):
        engine.step(tiny.global_batches(3, 1)[0])


def test_the_loss_function_gets_model_and_micro_batch(tiny: Any) -> None:
    seen: list[int] = []

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        seen.append(len(batch[0]))
        mean: Tensor = model(*batch)
        return mean

    losses(initialize(tiny.Tiny, tiny.config(), loss_fn=loss), tiny.global_batches(SAMPLES, 1))
    assert seen == [2, 2]


def test_a_dictionary_is_spread_over_the_models_arguments(tiny: Any) -> None:
    text, target = tiny.global_batches(SAMPLES, 1)[0]
    engine = initialize(tiny.Tiny, tiny.config())
    assert engine.step({"target": target, "text": text}).isfinite()


def test_frozen_weights_stay(tiny: Any) -> None:
    model = tiny.Tiny()
    model.words.weight.requires_grad_(False)
    before = model.words.weight.clone()
    losses(initialize(model, tiny.config()), tiny.global_batches(SAMPLES, 1))
    assert model.words.weight.equal(before)


def test_a_function_that_builds_no_model_is_refused(tiny: Any) -> None:
    with pytest.raises(TypeError, match="gave int"):
        initialize(lambda: 3, tiny.config())  # type: ignore[arg-type, return-value]


def test_an_evaluation_is_the_mean_loss_in_evaluation_mode_and_changes_nothing(tiny: Any) -> None:
    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.drop = tiny.Tiny(), nn.Dropout(0.5)
            self.drop.eval()
            self.modes: list[bool] = []

        def forward(self, text: Tensor, target: Tensor) -> Tensor:
            self.modes.append(self.training or self.drop.training)
            loss: Tensor = self.inner(text, target)
            return loss

    model = Dropping()
    engine = initialize(model, tiny.config())
    (batch,) = tiny.global_batches(SAMPLES, 1)
    assert float(engine.evaluate(batch)) == pytest.approx(float(tiny.Tiny()(*batch)), abs=1e-6)
    assert float(engine.evaluate(batch)) == float(engine.step(batch))
    assert model.modes == [False] * 4 + [True] * 2
    assert (model.training, model.drop.training) == (True, False)
