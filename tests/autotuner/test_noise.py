import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner import OBJECTIVES, Measurement, baseline_trial
from autoconf_launch.autotuner.noise import SpeedUp, is_tie, relative_error, speed_up
from autoconf_launch.autotuner.settings import MetricName

from .conftest import candidate, measured

THROUGHPUT = OBJECTIVES["throughput"]
MEASUREMENT = measured(baseline_trial(candidate()), 1.0)
SECONDS = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=12).map(tuple)


def steps(*seconds: float) -> Measurement:
    return replace(MEASUREMENT, step_s=seconds)


def sure(before: Measurement, after: Measurement, metric: MetricName = "throughput") -> SpeedUp:
    found = speed_up(before, after, OBJECTIVES[metric])
    assert found is not None
    return found


@pytest.mark.parametrize("metric", ["throughput", "latency"])
def test_half_the_time_is_twice_as_good_in_every_direction(metric: MetricName) -> None:
    assert sure(steps(2, 2, 2), steps(1, 1, 1), metric).ratio == pytest.approx(2.0)


@given(SECONDS, SECONDS)
def test_the_ratio_lies_in_its_interval(one: tuple[float, ...], two: tuple[float, ...]) -> None:
    found = sure(steps(*one), steps(*two))
    assert found.low <= found.ratio <= found.high


@given(SECONDS, SECONDS)
def test_a_tie_does_not_depend_on_the_order(
    one: tuple[float, ...], two: tuple[float, ...]
) -> None:
    a, b = steps(*one), steps(*two)
    assert is_tie(a, b, THROUGHPUT) == is_tie(b, a, THROUGHPUT)


def test_the_error_of_a_mean_falls_with_the_root_of_the_steps() -> None:
    # Deviations of 0.1 around 1: variance 0.04 / 3, standard error 0.2 / sqrt(12).
    assert relative_error(steps(0.9, 1.1, 0.9, 1.1)) == pytest.approx(0.2 / math.sqrt(12))


def test_one_step_says_nothing_about_noise() -> None:
    assert sure(steps(2), steps(1, 1)) == SpeedUp(ratio=2.0, low=0.0, high=math.inf)


def test_quiet_steps_that_differ_are_no_tie() -> None:
    assert not is_tie(steps(1.00, 1.01, 0.99), steps(1.20, 1.21, 1.19), THROUGHPUT)


def test_noisy_steps_that_differ_as_much_are_a_tie() -> None:
    assert is_tie(steps(0.7, 1.3, 1.0), steps(0.9, 1.5, 1.2), THROUGHPUT)


def test_without_the_metric_there_is_no_speed_up() -> None:
    assert speed_up(MEASUREMENT, MEASUREMENT, OBJECTIVES["FLOPS"]) is None
