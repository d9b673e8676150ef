"""Ranks that take no notice of each other are not data-parallel."""

from typing import Any

from autoconf_launch.core import FailureKind


def test_ranks_that_train_apart_are_found_out(probed: Any) -> None:
    ended = probed("apart.py", ranks=2)
    failures = [ended.failure(rank) for rank in (0, 1)]
    assert {failure.kind for failure in failures} == {FailureKind.NOT_APPLIED}, ended.errors
    assert failures[0].detail.startswith("the 2 ranks did not synchronize gradients")


def test_gradients_exchanged_by_hand_are_an_exchange(probed: Any) -> None:
    ended = probed("apart.py", "by_hand", ranks=2)
    assert (ended.failure(0), ended.failure(1)) == (None, None), ended.errors


def test_one_rank_needs_no_other(probed: Any) -> None:
    assert probed("apart.py").failure() is None
