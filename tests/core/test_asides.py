"""Evaluations and checkpoints of all ranks of a launch."""

import pytest

from autoconf_launch.core import Asides, WentOn, of_all_ranks


def together(*ranks: Asides) -> Asides:
    found = of_all_ranks(ranks)
    assert found
    return found


def test_words_and_sizes_of_all_ranks_add_up() -> None:
    assert of_all_ranks(()) is None
    one = Asides(evaluations=1, evaluation_batches=4, checkpoints=1, saved_bytes=10)
    assert together(one, one) == Asides(
        evaluations=1, evaluation_batches=4, checkpoints=1, saved_bytes=20
    )
    assert not together(Asides(longest_batch=True), Asides()).longest_batch
    assert together(Asides(), Asides(broke="by zero")).broke == "by zero"


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
