from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autoconf_launch.autotuner.measurement import NORMAL
from autoconf_launch.autotuner.measurement.presets import QUICK
from autoconf_launch.autotuner.playoff import (
    TimeRange,
    TuneOutlook,
    playoff_s,
    predicted_outlook,
    time_left,
)
from autoconf_launch.autotuner.space import Prediction

SEEN = TuneOutlook(
    trial_s=TimeRange(low_s=1.0, high_s=3.0), step_s=0.2, trials=6, left=10, spent_s=20.0
)


@pytest.mark.parametrize(("search_s", "rounds_s"), [(4.0, 4.0), (20.0, 8.0), (1000.0, 300.0)])
def test_rounds_take_a_share_of_a_long_search_and_no_longer_than_a_short_one(
    search_s: float, rounds_s: float
) -> None:
    assert playoff_s(search_s) == rounds_s


def test_a_search_may_end_at_once_or_try_every_candidate() -> None:
    left = time_left(SEEN)
    assert 0.0 < left.low_s < 15.0
    searched_s = 10 * 3.0
    assert left.high_s > searched_s + playoff_s(SEEN.spent_s + searched_s)


def test_a_search_that_has_just_begun_makes_a_few_trials_at_least() -> None:
    begun = replace(SEEN, trials=1)
    assert time_left(begun).low_s == pytest.approx(time_left(SEEN).low_s + 3 * 1.0)


@pytest.mark.parametrize(
    "changed", [{"left": 5}, {"at_once": 2}, {"effort": QUICK}, {"verifies": False}]
)
def test_less_to_do_ends_earlier(changed: dict[str, Any]) -> None:
    less, whole = time_left(replace(SEEN, **changed)), time_left(SEEN)
    assert less.high_s < whole.high_s
    assert less.low_s <= whole.low_s


def test_rounds_may_be_over_after_each_and_end_with_their_time() -> None:
    begun, late = (
        time_left(replace(SEEN, search_s=20.0, spent_s=spent_s, verifies=False))
        for spent_s in (25.0, 90.0)
    )
    assert begun == TimeRange(low_s=0.0, high_s=20.0 + playoff_s(20.0) - 25.0)
    assert late == TimeRange(low_s=0.0, high_s=0.0)


def test_a_verification_run_ends_with_its_last_step() -> None:
    left = time_left(replace(SEEN, search_s=20.0, spent_s=40.0, steps_left=10))
    assert left.low_s == pytest.approx(10 * SEEN.step_s)


def test_a_budget_bounds_both_ends() -> None:
    assert TimeRange(low_s=5.0, high_s=90.0).within(60.0) == TimeRange(low_s=5.0, high_s=60.0)


def predict(step_s: float | None) -> Prediction:
    return Prediction(peak_bytes=None, step_s=step_s, band=0.5, how="fixed")


def test_predictions_alone_give_a_range_that_grows_with_the_steps() -> None:
    short, long = (
        predicted_outlook([predict(step_s)] * 8, NORMAL, profile_s=6.0) for step_s in (0.1, 10.0)
    )
    assert short is not None
    assert long is not None
    assert time_left(short).low_s < time_left(long).low_s
    assert time_left(short).high_s < time_left(long).high_s


@pytest.mark.parametrize("unknown", [None, predict(None)])
def test_where_a_time_is_not_predicted_nothing_is_expected(unknown: Prediction | None) -> None:
    assert predicted_outlook([predict(1.0), unknown], NORMAL) is None
