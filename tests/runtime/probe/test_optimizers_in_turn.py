"""Optimizer steps that are steps of the training."""

from typing import Any

import pytest

from autoconf_launch.core import FailureKind, Mode

FIRST_FIVE = [1, 2, 3, 4, 5]
BATCH = 5


@pytest.mark.parametrize(
    "which", ["gan", "gan_with_a_large_generator", "several", "closure", "in_backward"]
)
def test_all_updates_of_a_batch_are_one_step(probed: Any, which: str) -> None:
    ended = probed("optimizers.py", which)
    assert (ended.batches(), ended.steps()) == ((BATCH, 1), FIRST_FIVE), ended.errors


def test_flops_are_counted_though_the_updates_are_made_in_the_backward_pass(probed: Any) -> None:
    blocks = probed("optimizers.py", "in_backward", mode=Mode.PROFILE).model_info()["blocks"]
    assert sum(block["flops"] for block in blocks) == 2 * (8 * 16 + 16 * 2)


def test_steps_that_a_scaler_skips_are_neither_steps_nor_accumulation(probed: Any) -> None:
    ended = probed("optimizers.py", "scaled_steps")
    lines = ended.output.splitlines()
    stepped = [line for line in lines if line.endswith("stepped")]
    skipped = [line for line in lines if line.endswith("skipped")]
    assert (len(stepped), len(skipped) > 0) == (4, True)  # the process ends inside of the fifth

    assert {record.samples for record in ended.result().steps} == {BATCH}


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_weights_that_the_script_changes_itself_end_a_step(
    probed: Any, micro_batches: int
) -> None:
    ended = probed("optimizers.py", "by_hand", str(micro_batches))
    assert (ended.batches(), ended.steps()) == ((BATCH, micro_batches), FIRST_FIVE), ended.errors


def test_it_is_said_what_counts_as_a_step_without_a_torch_optimizer(probed: Any) -> None:
    ended = probed("optimizers.py", "by_hand", "3", mode=Mode.PROFILE)
    assert "its weights changed after every 3 backward passes" in " ".join(ended.result().notes)


def test_a_torch_optimizer_counts_as_soon_as_it_steps(probed: Any) -> None:
    """Weights that somebody else changes between its micro-batches end no step."""
    ended = probed("optimizers.py", "late_optimizer")
    assert (ended.batches(), ended.steps()) == ((BATCH, 8), FIRST_FIVE), ended.errors
    assert not ended.result().notes


def test_weights_that_change_at_unequal_intervals_make_no_steps(probed: Any) -> None:
    ended = probed("optimizers.py", "at_unequal_intervals")
    assert ended.failure_kind() is FailureKind.NO_STEPS
    assert "at equal intervals" in ended.failure().detail


def test_accumulation_that_grows_while_the_script_trains_is_said(probed: Any) -> None:
    ended = probed("optimizers.py", "warm_up")
    assert [record.samples for record in ended.result().steps] == [5, 5, 5, 10, 10]
    notes = " ".join(ended.result().notes)
    assert "had 1 micro-batch at first and 2 later" in notes
