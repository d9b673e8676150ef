"""The error band of a predicted speed, beside the published speeds that it comes from."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.cost import EXPERTS_BAND, STEP_TIME_BAND
from autoconf_launch.autotuner.sizing import PublishedSpeed, speed_band
from autoconf_launch.tuning_spaces import published_speeds

speeds_st = st.lists(
    st.builds(PublishedSpeed, training=st.sampled_from("abcde"), ratio=st.floats(0.3, 3.0)),
    min_size=1,
    max_size=30,
)


def weight_within(published: tuple[PublishedSpeed, ...], low: float, high: float) -> Fraction:
    trainings = {one.training for one in published}
    total = Fraction(0)
    for training in trainings:
        mine = [one for one in published if one.training == training]
        total += Fraction(sum(low <= one.ratio <= high for one in mine), len(mine))
    return total / len(trainings)


def test_nine_of_ten_published_trainings_lie_within_it() -> None:
    band = speed_band(published_speeds(), has_experts=False)
    assert weight_within(published_speeds(), band.slowest, band.fastest) >= Fraction(9, 10)
    # They are 0.65 to 0.72 and 0.82 to 0.97 of the speed that is predicted.
    named = {one.training.split()[0] for one in published_speeds()}
    assert {"gpt3/175b", "bert/4b"} <= named
    assert band.slowest < 0.7
    many = [PublishedSpeed(training="many", ratio=0.5)] * 100
    others = [PublishedSpeed(training=str(number), ratio=1.0) for number in range(39)]
    assert speed_band([*many, *others], has_experts=False).slowest == pytest.approx(0.84)
    source = speed_band(published_speeds(), has_experts=False).source
    assert source == "nine of ten of NVIDIA's 15 published trainings (38 runs)"


@given(speeds_st)
def test_it_is_never_narrower_than_the_band_of_a_step(published: list[PublishedSpeed]) -> None:
    band = speed_band(published, has_experts=False)
    assert band.slowest <= 1 - STEP_TIME_BAND
    assert band.fastest >= 1 + STEP_TIME_BAND


@given(speeds_st)
def test_experts_widen_it(published: list[PublishedSpeed]) -> None:
    plain, wide = (speed_band(published, has_experts=one) for one in (False, True))
    assert wide.slowest <= min(plain.slowest, 1 - EXPERTS_BAND)
    assert wide.fastest >= max(plain.fastest, 1 + EXPERTS_BAND)
    assert "none of them has experts" in wide.source
