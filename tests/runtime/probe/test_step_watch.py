"""A script sees the same training with the probe as without."""

from typing import Any

import pytest
import torch
from torch import nn

from autoconf_launch.core import Precision, compile_sign, sign_path
from autoconf_launch.launcher.launch import compile_time
from autoconf_launch.runtime.observe import StepWatch

STEPS = 5


def show(ended: Any) -> list[str]:
    assert ended.steps()[-1:] == [STEPS], ended.errors
    lines: list[str] = ended.output.split("\n")[: STEPS - 1]
    return lines


def test_a_hooked_model_can_be_compiled_to_torchscript(probed: Any) -> None:
    assert set(show(probed("instruments.py", "scripts_its_model"))) == {"(2, 4)"}


def test_a_script_that_counts_flops_has_its_counter_alone_in_every_step(probed: Any) -> None:
    ended = probed("instruments.py", "counts_flops")
    assert set(show(ended)) == {"(128, None)"}
    assert any("FLOPs are not counted" in note for note in ended.result().notes)


def test_an_evaluation_between_steps_is_not_looked_into(probed: Any) -> None:
    ended = probed("instruments.py", "evaluates_after_each_step")
    assert set(show(ended)) == {"None"}
    assert ended.result().flops_per_step == 3 * 2 * 2 * 4 * 4  # two samples of a 4 by 4 layer


def test_tensors_that_a_script_keeps_elsewhere_go_there_in_every_step(probed: Any) -> None:
    assert len(set(show(probed("instruments.py", "keeps_tensors_elsewhere")))) == 1


def test_a_loss_that_the_script_changes_is_reported_as_it_was(probed: Any) -> None:
    ended = probed("instruments.py", "changes_its_loss")
    losses = [record.loss for record in ended.result().steps]
    assert losses == pytest.approx([float(show(ended)[0]) / 1000] * STEPS)


def test_a_model_that_the_script_drops_is_gone(probed: Any) -> None:
    assert probed("instruments.py", "drops_its_model").output.splitlines()[0] == "is gone"


def test_a_compiled_optimizer_step_is_compiled_once_and_counts(probed: Any) -> None:
    assert show(probed("instruments.py", "compiles_the_optimizers_step")) == ["1"] * (STEPS - 1)


def test_nothing_is_compiled_in_timed_steps(probed: Any) -> None:
    first, *timed = show(probed("instruments.py", "calls_its_model_compiled_and_not"))
    assert (first, len(set(timed))) == ("1", 1)


@pytest.mark.parametrize(
    "how",
    ["compiles_under_autocast", "compiles_a_model_in_bf16", "counts_flops_under_autocast"],
)
def test_the_precision_of_a_training_that_is_not_looked_into_is_known(
    probed: Any, how: str
) -> None:
    result = probed("instruments.py", how).result()
    assert result.applied
    assert result.applied.precision is Precision.BF16
    assert result.flops_per_step is None


def test_a_model_that_was_not_looked_into_is_described_by_its_weights_only(probed: Any) -> None:
    described = probed("instruments.py", "compiles_under_autocast").model_info()
    assert (described["grade"], described["num_params"]) == ("opaque", 20)


def test_a_rank_says_how_long_it_has_compiled(probed: Any) -> None:
    task = probed("instruments.py", "compiles_slowly").task
    pattern = sign_path(task, compile_sign("*"))
    assert list(pattern.parent.glob(pattern.name))
    assert 1.0 <= compile_time(task).seconds < 30.0


@pytest.mark.parametrize("calls", [1, 2])
def test_the_first_of_several_micro_batches_tells_the_flops_of_the_step(calls: int) -> None:
    seen = [watch_of(calls, first_alone=first_alone) for first_alone in (False, True)]
    assert seen[0].step_flops == seen[1].step_flops == 4 * calls * 2 * 8 * 16
    assert seen[1].forward_flops == calls * 2 * 8 * 16


def watch_of(calls: int, *, first_alone: bool) -> StepWatch:
    """A step of four micro-batches, in each of which the model is called ``calls`` times."""
    model, inside = nn.Linear(16, 1), [False]
    watch = StepWatch(model, (model,), lambda: inside[0], first_alone=first_alone)
    watch.start(())
    for _ in range(4):
        losses = [model(torch.ones(8, 16)).sum() for _ in range(calls)]
        with torch.no_grad():
            model(torch.ones(1, 16))
        inside[0] = True
        sum(losses, torch.zeros(())).backward()
        inside[0] = False
    watch.stop()
    return watch
