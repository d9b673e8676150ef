"""Scripts without surprises: what the probe finds in a loop, with accumulation, under DDP."""

from typing import Any

import pytest

from autoconf_launch.core import Mode


@pytest.fixture(scope="module")
def plain(probed: Any) -> Any:
    return probed("plain.py")


@pytest.fixture(scope="module")
def two_ranks(probed: Any) -> Any:
    return probed("ddp.py", "--accumulation=2", ranks=2)


def test_a_plain_script_ends_with_success_after_the_last_step(plain: Any) -> None:
    assert (plain.exit_codes, plain.steps()) == ((0,), [1, 2, 3, 4, 5])
    assert "reached the end" not in plain.output
    assert plain.result().left_behind == ()


def test_each_step_has_its_samples_a_time_and_a_finite_loss(plain: Any) -> None:
    assert plain.batches() == (4, 1)
    records = plain.result().steps
    assert {record.samples for record in records} == {4}
    assert all(record.wall_s > 0 and record.loss < 10 for record in records)


def test_forward_flops_count_three_times(plain: Any) -> None:
    forward = 2 * 4 * (16 * 32 + 32 * 2)
    assert plain.result().flops_per_step == 3 * forward


def test_peak_memory_holds_weights_gradients_and_state_but_not_the_data(plain: Any) -> None:
    count = 16 * 32 + 32 + 32 * 2 + 2
    assert plain.model_info()["num_params"] == count
    weights = 4 * count
    assert 4 * weights <= plain.result().memory.peak_bytes < 4 * weights + 10_000


def test_a_profile_ends_after_two_steps(probed: Any) -> None:
    ended = probed("plain.py", mode=Mode.PROFILE)
    assert (ended.steps(), ended.model_info()["grade"]) == ([1, 2], "measured")


def test_micro_batches_between_two_steps_are_accumulation(probed: Any) -> None:
    assert probed("plain.py", "--accumulation=3").batches() == (4, 3)


def test_the_loss_of_a_step_is_that_of_its_micro_batches_together(probed: Any, plain: Any) -> None:
    split = probed("plain.py", "--batch-size=2", "--accumulation=2").result()
    losses = [[record.loss for record in result.steps] for result in (plain.result(), split)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


def test_all_ranks_end_well_after_the_same_step(two_ranks: Any) -> None:
    assert two_ranks.exit_codes == (0, 0), two_ranks.errors
    assert [two_ranks.steps(rank) for rank in range(2)] == [[1, 2, 3, 4, 5]] * 2


def test_ddp_is_found_with_its_ranks(two_ranks: Any) -> None:
    applied = two_ranks.result(1).applied
    shown = (applied.zero_stage, applied.data_parallel, applied.micro_batch, applied.accumulation)
    assert shown == (0, 2, 4, 2)


def test_a_nested_optimizer_makes_one_step_and_zero_stage_one(probed: Any) -> None:
    ended = probed("ddp.py", "--zero", ranks=2)
    applied = ended.result().applied
    assert (ended.steps(), applied.zero_stage) == ([1, 2, 3, 4, 5], 1)
