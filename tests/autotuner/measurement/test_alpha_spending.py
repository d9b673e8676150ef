from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.measurement.sequential_test import (
    LOOKS,
    bound,
    chance_beyond,
)

ALPHAS = st.sampled_from([0.05, 0.025, 0.01])


def ever_beyond(alpha: float, seed: int) -> bool:
    """True if sums of normal numbers are beyond the bound at any look."""
    chance, total = random.Random(seed), 0.0
    for look in range(1, LOOKS + 1):
        total += chance.gauss(0.0, 1.0)
        if abs(total) / math.sqrt(look) > bound(look, alpha):
            return True
    return False


@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_all_looks_together_are_beyond_as_often_as_asked(alpha: float) -> None:
    share = sum(ever_beyond(alpha, seed) for seed in range(1000)) / 1000
    assert share == pytest.approx(alpha, abs=3 * math.sqrt(alpha * (1 - alpha) / 1000))


def test_the_chance_of_one_level_is_the_one_that_it_was_found_for() -> None:
    assert chance_beyond(bound(1, 0.05) ** 2 - math.log(2.0)) == pytest.approx(0.05, abs=1e-4)


@given(ALPHAS, st.integers(1, LOOKS - 1))
def test_a_later_look_may_be_further_away(alpha: float, look: int) -> None:
    assert bound(look, alpha) < bound(look + 1, alpha)


def test_a_smaller_chance_has_a_wider_bound() -> None:
    assert bound(3, 0.01) > bound(3, 0.05)


def test_it_is_wider_than_what_holds_at_one_look_alone() -> None:
    assert 1.96 < bound(1, 0.05) < 2.6
