from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.sequential import estimate, expected_width

DIFFERENCES = st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=20)


def ever_differs(mean: float, spread: float, rounds: int, seed: int) -> bool:
    """Whether the interval ever leaves out zero, looked at after each round."""
    chance = random.Random(seed)
    seen: list[float] = []
    for _ in range(rounds):
        seen.append(chance.gauss(mean, spread))
        if estimate(seen).differs:
            return True
    return False


def share(mean: float, spread: float, rounds: int = 40, runs: int = 200) -> float:
    return sum(ever_differs(mean, spread, rounds, seed) for seed in range(runs)) / runs


@pytest.mark.parametrize("spread", [0.005, 0.035, 0.08])
def test_looking_after_every_round_finds_no_difference_where_none_is(spread: float) -> None:
    assert share(0.0, spread) <= 0.05


@pytest.mark.parametrize("spread", [0.01, 0.05])
def test_five_percent_are_found_in_forty_rounds(spread: float) -> None:
    assert share(math.log(1.05), spread) >= 0.9


@given(DIFFERENCES)
def test_turned_around_it_says_the_same(differences: list[float]) -> None:
    one, two = estimate(differences), estimate([-d for d in differences])
    assert one.mean == pytest.approx(-two.mean, abs=1e-12)
    assert one.width == pytest.approx(two.width)


def test_nothing_seen_is_nothing_known() -> None:
    assert estimate([]).width == math.inf


def test_a_smaller_chance_of_error_needs_a_wider_interval() -> None:
    assert estimate([0.1, 0.12], alpha=0.01).width > estimate([0.1, 0.12], alpha=0.05).width


def test_the_interval_expected_now_is_the_one_there_is() -> None:
    seen = estimate([0.1, 0.12, 0.08])
    assert expected_width(seen, 3) == pytest.approx(seen.width)


def test_more_rounds_are_expected_to_narrow_it() -> None:
    seen = estimate([0.1, 0.12, 0.08])
    widths = [expected_width(seen, count) for count in range(3, 40)]
    assert widths == sorted(widths, reverse=True)
