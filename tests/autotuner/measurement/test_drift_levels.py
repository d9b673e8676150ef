from __future__ import annotations

import math

import pytest

from autoconf_launch.autotuner.measurement import PRIOR
from autoconf_launch.autotuner.measurement.machine_drift import level_now

from .test_machine_drift import CRASH, again, steps_of, trials


def level(*seconds: float) -> float:
    """After launches of one configuration that took so long."""
    (first,) = trials(seconds[0])
    return level_now((first, *(again(first, 1, steps_of(one)) for one in seconds[1:])), PRIOR)


def test_one_launch_tells_no_level() -> None:
    assert level(1.0) == 0.0


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_repeat_that_takes_another_time_is_the_level(factor: float) -> None:
    assert level(1.0, 1.0, factor) == pytest.approx(math.log(factor), rel=0.1)


def test_within_the_noise_of_launches_there_is_no_level() -> None:
    assert level(1.0, 1.05, 0.97, 1.04) == 0.0


def test_a_load_that_is_over_is_no_level() -> None:
    assert level(1.0, 1.0, 2.0, 1.0) == 0.0


def test_a_repeat_that_failed_tells_no_level() -> None:
    (first,) = trials(1.0)
    assert level_now((first, again(first, 1, CRASH)), PRIOR) == 0.0
