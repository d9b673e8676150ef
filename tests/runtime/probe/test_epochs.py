"""In a soak a script comes to what it does after an epoch, and takes its longest batch again."""

from typing import Any

import pytest

from autoconf_launch.core import Aside, Asides, FailureKind, WentOn

STEPS = 8
SOAK = {"soak": True, "ends_epoch": True, "end_step": STEPS}
BATCHES, SHORT, LONG = 20, 8, 24


def asides_of(ended: Any, rank: int = 0) -> Asides:
    asides = ended.result(rank).asides
    assert isinstance(asides, Asides)
    return asides


def lengths(ended: Any) -> list[int]:
    return [int(line) for line in ended.output.splitlines() if line.isdecimal()]


@pytest.mark.parametrize("how", ["plain", "ahead", "workers"])
def test_evaluation_and_checkpoint_after_the_epoch_are_met(probed: Any, how: str) -> None:
    ended = probed("epochs.py", how, **SOAK)
    asides = asides_of(ended)
    assert (asides.evaluations, asides.evaluation_batches) == (1, BATCHES), ended.errors
    assert asides.checkpoints == 1
    assert (asides.went_on, asides.under_way) == (WentOn.EPOCH, None)
    assert (ended.steps(), ended.exit_codes) == (list(range(1, STEPS + 1)), (0,))
    assert ended.result().end_step == STEPS


def test_the_next_epochs_first_step_is_not_made(probed: Any) -> None:
    ended = probed("epochs.py", "plain", **SOAK)
    assert len(lengths(ended)) == STEPS + 1  # drawn, and gone through forward alone
    assert "the end" not in ended.output


def test_a_script_that_does_nothing_after_an_epoch_is_no_failure(probed: Any) -> None:
    ended = probed("epochs.py", "nothing", **SOAK)
    assert (ended.failure(), asides_of(ended).evaluations) == (None, 0)


def test_a_loader_without_end_ends_the_soak_with_the_next_step(probed: Any) -> None:
    ended = probed("epochs.py", "endless", **SOAK)
    asides = asides_of(ended)
    assert (asides.went_on, asides.evaluations, asides.broke) == (WentOn.EPOCH, 0, "")
    assert ended.steps() == list(range(1, STEPS + 1))


@pytest.mark.parametrize(("how", "ends_epoch"), [("by_hand", True), ("plain", False)])
def test_a_script_by_hand_and_a_second_attempt_end_with_their_last_step(
    probed: Any, how: str, ends_epoch: bool
) -> None:
    ended = probed("epochs.py", how, **{**SOAK, "ends_epoch": ends_epoch})
    assert asides_of(ended).went_on is None
    assert len(ended.steps()) == len(lengths(ended)) == STEPS


def test_who_ends_by_itself_within_its_steps_is_seen_to_its_end(probed: Any) -> None:
    ended = probed("epochs.py", "plain", **{**SOAK, "end_step": 3 * BATCHES})
    asides = asides_of(ended)
    assert (asides.went_on, asides.evaluations, asides.under_way) == (WentOn.END, 2, None)


@pytest.mark.parametrize("how", ["cannot_end", "broken", "no_metric"])
def test_a_script_that_cannot_go_on_is_no_failure_and_its_words_are_kept(
    probed: Any, how: str
) -> None:
    ended = probed("epochs.py", how, **SOAK)
    words = {"cannot_end": "StopIteration", "broken": "20 batches", "no_metric": "cannot be"}
    asides = asides_of(ended)
    assert (ended.failure(), ended.steps()) == (None, list(range(1, STEPS + 1)))
    assert words[how] in asides.broke
    assert asides.evaluations == (how == "no_metric")


def test_memory_that_the_evaluation_lacks_is_a_failure_with_its_place(probed: Any) -> None:
    failure = probed("epochs.py", "no_memory", **SOAK).failure()
    assert failure.kind is FailureKind.OUT_OF_MEMORY
    assert failure.detail.endswith(
        f"in or after the evaluation that followed optimizer step {STEPS})"
    )


def test_a_lack_of_memory_that_the_script_survives_is_told(probed: Any) -> None:
    result = probed("epochs.py", "survives", **SOAK).result()
    assert (result.failure, len(result.steps)) == (None, STEPS)
    assert result.caught.kind is FailureKind.OUT_OF_MEMORY


def test_a_checkpoint_that_cannot_be_written_is_a_failure(probed: Any) -> None:
    ended = probed("epochs.py", "fails_to_save", **SOAK)
    assert "in the checkpoint that followed" in ended.failure().detail
    assert asides_of(ended).under_way is Aside.CHECKPOINT


def test_all_ranks_go_on_where_rank_0_alone_evaluates_and_saves(probed: Any) -> None:
    ended = probed("epochs.py", "ranks", ranks=2, **SOAK)
    seen = [(asides_of(ended, r).went_on, asides_of(ended, r).evaluations) for r in (0, 1)]
    assert seen == [(WentOn.EPOCH, 1), (WentOn.EPOCH, 0)], ended.errors
    assert [ended.steps(rank) for rank in (0, 1)] == [list(range(1, STEPS + 1))] * 2


def test_no_rank_goes_on_where_one_draws_by_hand(probed: Any) -> None:
    ended = probed("epochs.py", "one_rank_by_hand", ranks=2, **SOAK)
    assert [asides_of(ended, rank).went_on for rank in (0, 1)] == [None, None], ended.errors


@pytest.mark.parametrize("how", ["plain", "ahead", "workers"])
def test_the_last_step_takes_the_longest_batch_again(probed: Any, how: str) -> None:
    ended = probed("epochs.py", how, **SOAK)
    made = lengths(ended)
    assert (made[3], made[STEPS - 1], asides_of(ended).longest_batch) == (LONG, LONG, True)
    assert made[4] == made[5] == SHORT


@pytest.mark.parametrize("how", ["by_hand", "at_once"])
def test_where_the_script_draws_by_hand_that_is_not_claimed(probed: Any, how: str) -> None:
    ended = probed("epochs.py", how, **SOAK)
    assert (lengths(ended)[STEPS - 1], asides_of(ended).longest_batch) == (SHORT, False)


def test_what_is_no_soak_neither_goes_on_nor_takes_the_longest(probed: Any) -> None:
    ended = probed("epochs.py", "plain", end_step=STEPS)
    assert (lengths(ended)[STEPS - 1], asides_of(ended).longest_batch) == (SHORT, False)
    assert asides_of(ended).went_on is None
