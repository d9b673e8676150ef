import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.measurement import (
    PRIOR,
    CostRatio,
    compare_trials,
    estimate_noise,
    of_student,
    relative_error,
    t_quantile,
)
from autoconf_launch.autotuner.search import baseline_trial
from autoconf_launch.autotuner.space import OBJECTIVES, Measurement, Record
from autoconf_launch.autotuner.space.settings import MetricName

from ..conftest import candidate, steps_of

MEASUREMENT = steps_of(baseline_trial(candidate()), 1.0)
SECONDS = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=12).map(tuple)


def steps(*seconds: float) -> Measurement:
    return replace(MEASUREMENT, step_s=seconds)


def compare(
    before: Measurement, after: Measurement, metric: MetricName = "throughput"
) -> CostRatio:
    found = compare_trials(before, after, OBJECTIVES[metric])
    assert found is not None
    return found


@pytest.mark.parametrize("metric", ["throughput", "latency"])
def test_half_the_time_is_twice_as_good_in_every_direction(metric: MetricName) -> None:
    found = compare(steps(2, 2, 2), steps(1, 1, 1), metric)
    assert found.speed_up.ratio == pytest.approx(2.0)


@given(SECONDS, SECONDS)
def test_the_ratio_lies_in_its_interval_and_is_the_same_turned_around(
    one: tuple[float, ...], two: tuple[float, ...]
) -> None:
    a, b = steps(*one), steps(*two)
    found, turned = compare(a, b), compare(b, a)
    assert found.speed_up.low <= found.speed_up.ratio <= found.speed_up.high
    assert found.differs == turned.differs
    assert found.width == pytest.approx(turned.width)


@pytest.mark.parametrize(
    ("mean", "error", "gain"),
    [
        pytest.param(0.0, 0.02, 0.02 * 0.39894, id="equal but not sure"),
        pytest.param(-0.1, 0.001, 0.1, id="surely better"),
        pytest.param(0.1, 0.02, 0.0, id="surely worse"),
        pytest.param(0.0, math.inf, math.inf, id="nothing known"),
    ],
)
def test_the_expected_gain_is_what_choosing_the_first_saves(
    mean: float, error: float, gain: float
) -> None:
    found = CostRatio(mean=mean, width=2 * error, error=error, rounds=1)
    assert found.expected_gain == pytest.approx(gain, abs=1e-6)


def test_steps_that_follow_each_other_say_less_than_as_many_apart() -> None:
    # Three steps with a correlation of 0.7: (3 + 2 * (2 * 0.7 + 0.49)) / 9 of one step's variance.
    assert PRIOR.mean_error(3) == pytest.approx(PRIOR.within * math.sqrt(6.78 / 9))


def test_more_steps_make_the_mean_surer() -> None:
    errors = [PRIOR.mean_error(count) for count in range(1, 30)]
    assert errors == sorted(errors, reverse=True)


def test_a_run_of_equal_steps_is_not_taken_for_free_of_noise() -> None:
    assert relative_error(steps(1, 1, 1)) > 0.0


@pytest.mark.parametrize(
    ("before", "after", "differs"),
    [
        pytest.param((1.00, 1.01, 0.99), (1.12, 1.13, 1.11), False, id="as those minutes apart"),
        pytest.param((1.00, 1.01, 0.99), (1.30, 1.31, 1.29), True, id="by more"),
        pytest.param((0.7, 1.3, 1.0), (0.9, 1.5, 1.2), False, id="as much as noisy steps do"),
    ],
)
def test_launches_differ_beyond_the_noise_of_launches_and_steps(
    before: tuple[float, ...], after: tuple[float, ...], differs: bool
) -> None:
    assert compare(steps(*before), steps(*after)).differs is differs


def launch(name: str, *seconds: float) -> Record:
    trial = replace(baseline_trial(candidate()), name=name)
    return Record(trial=trial, outcome=steps(*seconds), wall_s=1.0)


def test_without_a_history_the_prior_stands() -> None:
    assert estimate_noise(()) == PRIOR


def test_repeats_that_agree_make_launches_surer() -> None:
    quiet = [launch("a", 1.0, 1.001, 1.0), launch("a_final", 1.0, 1.001, 1.0)] * 10
    assert estimate_noise(quiet).between < 0.6 * PRIOR.between


def test_repeats_that_differ_make_them_less_sure() -> None:
    loud = [launch("a", 1.0, 1.0, 1.0), launch("a_final", 1.5, 1.5, 1.5)] * 5
    assert estimate_noise(loud).between > 3 * PRIOR.between


def test_different_candidates_say_nothing_about_the_noise_between_launches() -> None:
    apart = [launch("a", 1.0, 1.0, 1.0), launch("b", 5.0, 5.0, 5.0)]
    assert estimate_noise(apart).between == PRIOR.between


def test_steps_that_vary_let_launches_be_expected_to_differ() -> None:
    loud = [launch("a", 1.0, 1.5, 1.0)] * 10
    assert estimate_noise(loud).between > 2 * PRIOR.between


@pytest.mark.parametrize(
    ("chance", "freedom", "expected"),
    [
        *((0.975, 4, 2.776), (0.975, 8, 2.306), (0.975, 30, 2.042)),
        *((0.975, 5, 2.571), (0.975, 10, 2.228), (0.995, 7, 3.499), (0.5, 4, 0.0)),
    ],
)
def test_quantiles_are_those_of_the_tables(chance: float, freedom: int, expected: float) -> None:
    assert t_quantile(chance, freedom) == pytest.approx(expected, rel=0.01)


def test_without_the_metric_there_is_no_speed_up() -> None:
    assert compare_trials(MEASUREMENT, MEASUREMENT, OBJECTIVES["FLOPS"]) is None


@pytest.mark.parametrize(
    ("freedom", "exact"), [(3, 5.405), (5, 3.816), (8, 3.210), (12, 2.938), (30, 2.660)]
)
def test_student_is_at_least_what_the_tables_have(freedom: int, exact: float) -> None:
    # Of the probability that a normal number has beyond 2.5.
    assert exact <= of_student(2.5, freedom) <= 1.04 * exact


@given(st.floats(0.5, 4.0), st.floats(0.1, 1e4))
def test_a_spread_that_is_hardly_known_needs_more(deviations: float, freedom: float) -> None:
    assert of_student(deviations, freedom) >= of_student(deviations, 2.0 * freedom) >= deviations


def test_nothing_known_of_the_spread_says_nothing() -> None:
    assert of_student(2.0, 0.0) == math.inf
