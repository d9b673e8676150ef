"""Evaluations and checkpoints of all ranks of a launch."""

import pytest

from autoconf_launch.core import Asides, WentOn, of_all_ranks


def together(*ranks: Asides) -> Asides:
    found = of_all_ranks(ranks)
    assert found
    return found


def test_where_no_rank_says_anything_nothing_is_said() -> None:
    assert of_all_ranks(()) is None


def test_sizes_add_up_and_what_ranks_do_together_counts_once() -> None:
    one = Asides(evaluations=1, evaluation_batches=4, checkpoints=1, saved_bytes=10)
    assert together(one, one) == Asides(
        evaluations=1, evaluation_batches=4, checkpoints=1, saved_bytes=20
    )


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ((WentOn.END, WentOn.END), WentOn.END),
        ((WentOn.END, WentOn.EPOCH), WentOn.EPOCH),
        ((None, None), None),
    ],
)
def test_the_end_counts_where_all_ranks_came_to_it(
    ranks: tuple[WentOn | None, ...], expected: WentOn | None
) -> None:
    assert together(*(Asides(went_on=went_on) for went_on in ranks)).went_on is expected


def test_the_longest_batch_counts_where_all_ranks_took_it() -> None:
    assert not together(Asides(longest_batch=True), Asides()).longest_batch


def test_the_words_of_any_rank_that_could_not_go_on_are_kept() -> None:
    assert together(Asides(), Asides(broke="by zero")).broke == "by zero"
