"""Which optimizer steps are steps of the training."""

from __future__ import annotations

from typing import Any

import pytest

from autoconf_launch.core import FailureKind, Mode

FIRST_FIVE = [1, 2, 3, 4, 5]
BATCH = 5


@pytest.mark.parametrize("which", ["gan", "gan_with_a_large_generator"])
def test_a_gan_makes_one_step_for_each_batch(probed: Any, which: str) -> None:
    ended = probed("optimizers.py", which)
    assert (ended.batches(), ended.steps()) == ((BATCH, 1), FIRST_FIVE)


@pytest.mark.parametrize("which", ["several", "closure", "in_backward"])
def test_all_updates_after_one_backward_are_one_step(probed: Any, which: str) -> None:
    ended = probed("optimizers.py", which)
    assert (ended.batches(), ended.steps()) == ((BATCH, 1), FIRST_FIVE), ended.errors


def test_flops_are_counted_though_the_updates_are_made_in_the_backward_pass(probed: Any) -> None:
    blocks = probed("optimizers.py", "in_backward", mode=Mode.PROFILE).model_info()["blocks"]
    assert sum(block["flops"] for block in blocks) == 2 * (8 * 16 + 16 * 2)


def test_steps_that_a_scaler_skips_are_no_steps(probed: Any) -> None:
    lines = probed("optimizers.py", "scaled_steps").output.splitlines()
    stepped = [line for line in lines if line.endswith("stepped")]
    skipped = [line for line in lines if line.endswith("skipped")]
    assert (len(stepped), len(skipped) > 0) == (4, True)  # the process ends inside of the fifth


def test_what_a_scaler_skips_is_no_accumulation(probed: Any) -> None:
    ended = probed("optimizers.py", "scaled_steps")
    assert {record.samples for record in ended.result().steps} == {BATCH}


def test_training_without_a_torch_optimizer_is_said(probed: Any) -> None:
    ended = probed("optimizers.py", "by_hand")
    assert ended.failure_kind() is FailureKind.NO_STEPS


def test_training_without_a_torch_optimizer_is_explained(probed: Any) -> None:
    assert "no torch.optim.Optimizer" in probed("optimizers.py", "by_hand").failure().detail
