from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.resolution import Resolution, resolution
from autoconf_launch.autotuner.sequential import Expected, estimate, expected_width

EXPECTED = Expected(spread=0.05, freedom=5.0)


def seen(*differences: float, wanted: float = 0.03) -> Resolution:
    return resolution(estimate(differences, EXPECTED), 0.05, round_s=5.0, wanted=wanted)


@given(st.lists(st.floats(-0.1, 0.1), min_size=2, max_size=10))
def test_after_the_rounds_that_it_asks_for_the_interval_is_as_wanted(found: list[float]) -> None:
    now = estimate(found, EXPECTED)
    said = seen(*found)
    assert said.further is not None
    assert expected_width(now, now.count + said.further) <= 0.03
    assert said.further == 0 or expected_width(now, now.count + said.further - 1) > 0.03


def test_it_says_what_can_be_told_apart_and_what_more_would_take() -> None:
    one = Resolution(rounds=2, round_s=5.0, width=0.0488, wanted=0.0296, further=4)
    assert one.sentence == (
        "Of these, 2 rounds of 5.0 s told apart what differs by 5.0 %; 3.0 % would take about "
        "20 s more."
    )


def test_a_long_time_is_said_in_minutes() -> None:
    one = Resolution(rounds=2, round_s=50.0, width=0.1, wanted=0.03, further=12)
    assert one.sentence.endswith("would take about 10 min more.")


@pytest.mark.parametrize(
    ("width", "further", "sentence"),
    [
        (0.0198, 0, "Of these, 1 round of 5.0 s told apart what differs by 2.0 %."),
        (
            0.9,
            None,
            "Of these, 1 round of 5.0 s told apart what differs by 146.0 %; "
            "it is too noisy here for 3.0 %.",
        ),
        (float("inf"), 2, "Of these, 1 round of 5.0 s told nothing apart."),
        (2.0, None, "Of these, 1 round of 5.0 s told nothing apart."),
    ],
)
def test_it_says_so_where_there_is_no_more_to_say(
    width: float, further: int | None, sentence: str
) -> None:
    one = Resolution(rounds=1, round_s=5.0, width=width, wanted=0.0296, further=further)
    assert one.sentence == sentence


def test_what_is_known_well_enough_needs_no_further_round() -> None:
    assert seen(0.1, 0.1, wanted=1.0).further == 0


def test_noise_that_no_number_of_rounds_overcomes_is_said() -> None:
    assert seen(-5.0, 5.0, wanted=0.001).further is None
