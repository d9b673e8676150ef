from __future__ import annotations

import math
from collections.abc import Collection

import pytest

from autoconf_launch.autotuner.levels import Launch, Step, level_at, levels
from autoconf_launch.autotuner.noise import PRIOR
from autoconf_launch.autotuner.trial import Measurement, Record, Trial
from autoconf_launch.core import Candidate, Layout

TWICE = math.log(2.0)


def launched(name: str, at_s: float, log_s: float, *, again: bool = True) -> Launch:
    what = Trial(
        number=0, name=name, candidate=Candidate(layout=Layout()), space="z0", again=int(again)
    )
    done = Measurement(step_s=(math.exp(log_s),) * 3, samples_per_step=8, world_size=1)
    return Launch(
        record=Record(trial=what, outcome=done, wall_s=1.0),
        name=name,
        start_s=at_s - 0.5,
        at_s=at_s,
        log_s=log_s,
    )


def found(*logs: float, refuted: Collection[str] = ()) -> tuple[Step, ...]:
    """One configuration, launched once every second."""
    launches = [launched("t0", i + 0.5, log_s, again=i > 0) for i, log_s in enumerate(logs)]
    return levels(launches, PRIOR, (), refuted)


def test_before_the_first_step_and_without_one_the_level_is_0() -> None:
    steps = ((2.0, 0.5), (4.0, 0.1))
    assert [level_at(steps, at_s) for at_s in (1.0, 2.0, 3.9, 9.0)] == [0.0, 0.5, 0.5, 0.1]
    assert level_at((), 1.0) == 0.0


def test_a_repeat_that_takes_twice_as_long_raises_the_level() -> None:
    ((from_s, level),) = found(0.0, 0.0, TWICE)
    assert 1.5 < from_s <= 2.5
    assert level == pytest.approx(TWICE, rel=0.1)


def test_a_load_that_came_and_went_is_two_steps() -> None:
    up, down = found(0.0, 0.0, TWICE, TWICE, 0.0, 0.0)
    assert up[1] == pytest.approx(TWICE, rel=0.1)
    assert abs(down[1]) < 0.1


def test_as_many_ups_and_downs_as_repeats_are_noise() -> None:
    assert found(0.0, 0.2, -0.15, 0.2, -0.1, 0.2, -0.15) == ()


def test_what_is_refuted_is_compared_with_nothing() -> None:
    assert found(TWICE, 0.0, 0.0, refuted=("t0",)) == ()
