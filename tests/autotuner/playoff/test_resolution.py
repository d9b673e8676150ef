from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.measurement import Expected, estimate_difference, expected_width
from autoconf_launch.autotuner.playoff import Resolution
from autoconf_launch.autotuner.playoff.duration import resolution

EXPECTED = Expected(spread=0.05, freedom=5.0)


def see(*differences: float, wanted: float = 0.03) -> Resolution:
    return resolution(estimate_difference(differences, EXPECTED), 0.05, round_s=5.0, wanted=wanted)


@given(st.lists(st.floats(-0.1, 0.1), min_size=2, max_size=10))
def test_after_the_rounds_that_it_asks_for_the_interval_is_as_wanted(found: list[float]) -> None:
    now = estimate_difference(found, EXPECTED)
    said = see(*found)
    assert said.further is not None
    assert expected_width(now, now.count + said.further) <= 0.03
    assert said.further == 0 or expected_width(now, now.count + said.further - 1) > 0.03


def test_what_is_known_well_enough_needs_no_further_round() -> None:
    assert see(0.1, 0.1, wanted=1.0).further == 0


def test_noise_that_no_number_of_rounds_overcomes_is_said() -> None:
    assert see(-5.0, 5.0, wanted=0.001).further is None
