from __future__ import annotations

import pytest

from autoconf_launch.autotuner.measurement import NORMAL, PairedEstimate
from autoconf_launch.autotuner.playoff.contender import is_settled

ALPHA = 0.05


def pair(mean: float, width: float, spread: float = 0.01) -> PairedEstimate:
    return PairedEstimate(mean=mean, width=width, count=4, spread=spread, freedom=6.0)


def enough(found: PairedEstimate, *, is_baseline: bool = False, rounds: int = 40) -> bool:
    return is_settled(found, is_baseline=is_baseline, rounds=rounds, alpha=ALPHA)


def test_who_is_surely_slower_is_known() -> None:
    assert enough(pair(0.5, 0.4))


@pytest.mark.parametrize(
    ("width", "known"), [(NORMAL.distance, True), (2 * NORMAL.distance, False)]
)
def test_a_baseline_that_is_surely_slower_until_its_distance_is_known(
    width: float, known: bool
) -> None:
    assert enough(pair(0.5, width), is_baseline=True) is known


def test_what_is_not_told_apart_by_a_wide_interval_is_open() -> None:
    assert not enough(pair(0.0, 1.1 * NORMAL.precision))


def test_what_surely_differs_by_little_is_equal() -> None:
    assert enough(pair(0.001, 0.015))


def test_a_difference_that_the_rounds_to_come_would_show_is_open() -> None:
    assert not enough(pair(0.015, 0.02), rounds=40)


def test_a_difference_that_the_rounds_to_come_would_not_show_is_settled() -> None:
    assert enough(pair(0.001, 0.025, spread=0.02), rounds=4)
