from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.measurement import (
    Expected,
    estimate_difference,
    expect_apart,
    expect_in_turn,
    expected_width,
)
from autoconf_launch.autotuner.measurement.sequential_test import FREEDOM, LAUNCH, MOST_FREEDOM

DIFFERENCES = st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=20)
EXPECTED = Expected(spread=0.05, freedom=3.0)


def ever_differs(mean: float, spread: float, rounds: int, seed: int) -> bool:
    """True if the interval ever leaves out zero, looked at after each round."""
    chance = random.Random(seed)
    seen: list[float] = []
    for _ in range(rounds):
        seen.append(chance.gauss(mean, spread))
        if estimate_difference(seen, EXPECTED).differs:
            return True
    return False


def share(mean: float, spread: float, rounds: int = 40, runs: int = 200) -> float:
    return sum(ever_differs(mean, spread, rounds, seed) for seed in range(runs)) / runs


@pytest.mark.parametrize("spread", [0.005, 0.035, 0.08])
def test_looking_after_every_round_finds_no_difference_where_none_is(spread: float) -> None:
    assert share(0.0, spread) <= 0.07


@pytest.mark.parametrize("spread", [0.01, 0.05])
def test_five_percent_are_found_in_forty_rounds(spread: float) -> None:
    assert share(math.log(1.05), spread) >= 0.9


@given(DIFFERENCES)
def test_turned_around_it_says_the_same(differences: list[float]) -> None:
    one, two = (
        estimate_difference(differences, EXPECTED),
        estimate_difference([-d for d in differences], EXPECTED),
    )
    assert one.mean == pytest.approx(-two.mean, abs=1e-12)
    assert one.width == pytest.approx(two.width)


def test_nothing_seen_is_nothing_known() -> None:
    assert estimate_difference([], EXPECTED).width == math.inf


def test_one_round_of_which_nothing_is_expected_says_nothing_of_its_width() -> None:
    found = estimate_difference([0.1], Expected(spread=0.05, freedom=0.0))
    assert (found.mean, found.width) == (0.1, math.inf)


def test_a_smaller_chance_of_error_needs_a_wider_interval() -> None:
    seen = [0.1, 0.12]
    assert (
        estimate_difference(seen, EXPECTED, 0.01).width
        > estimate_difference(seen, EXPECTED, 0.05).width
    )


def test_the_interval_expected_now_is_the_one_there_is() -> None:
    seen = estimate_difference([0.1, 0.12, 0.08], EXPECTED)
    assert expected_width(seen, 3) == pytest.approx(seen.width)


def test_more_rounds_are_expected_to_narrow_it() -> None:
    seen = estimate_difference([0.1, 0.12, 0.08], EXPECTED)
    widths = [expected_width(seen, count) for count in range(3, 40)]
    assert widths == sorted(widths, reverse=True)


def test_steps_in_turn_average_out_and_launches_do_not() -> None:
    few, many = (expect_in_turn(0.01, 30.0, steps).spread for steps in (4, 10_000_000))
    assert few == pytest.approx(math.sqrt(0.01 / 4 + 2 * LAUNCH**2))
    assert many == pytest.approx(math.sqrt(2) * LAUNCH, rel=0.01)


def test_launches_one_after_the_other_may_differ_by_as_much_as_their_steps() -> None:
    assert expect_apart(0.01, 30.0).spread == pytest.approx(math.sqrt(2 * (0.01 + LAUNCH**2)))


@pytest.mark.parametrize("variance", [1e-8, 1e-3, 1.0])
@pytest.mark.parametrize("freedom", [1.0, 10.0, 1000.0])
def test_steps_are_worth_no_more_rounds_than_they_know_of(variance: float, freedom: float) -> None:
    found = expect_in_turn(variance, freedom, 4)
    assert 0.0 < found.freedom <= min(freedom + FREEDOM, MOST_FREEDOM)


def test_a_guess_of_what_launches_differ_by_is_worth_little() -> None:
    assert expect_in_turn(1e-8, 1000.0, 4).freedom == pytest.approx(FREEDOM, rel=0.01)
