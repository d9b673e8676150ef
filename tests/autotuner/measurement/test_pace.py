from __future__ import annotations

from dataclasses import replace

import pytest

from autoconf_launch.autotuner.measurement import (
    FEWEST_TIMED,
    PRIOR,
    steps_apart,
    steps_of_turn,
    time_apart_s,
    turn_time_s,
    turns_of_round,
    without_wake_ups,
)
from autoconf_launch.autotuner.measurement.stop_rule import (
    FEWEST_APART,
    FEWEST_IN_TURN,
    MOST_APART,
    MOST_IN_TURN,
)
from autoconf_launch.autotuner.space import Record, Turn

from ..playoff.test_playoff import CRASH, record, steps_of


def launch(extra_s: float) -> tuple[Record, ...]:
    """Two of 1 s, with two steps that do not count and so many seconds beside all steps."""
    outcome = replace(steps_of(1.0), first_step=3)
    return tuple(replace(record(n, outcome), wall_s=5.0 + extra_s) for n in range(2))


def steps(*, within: float = 0.03, extra_s: float = 0.0, time_s: float = 1e9) -> int:
    return turns_of_round(launch(extra_s), replace(PRIOR, within=within), time_s)


def test_noisier_steps_are_worth_more_of_them() -> None:
    assert steps(within=0.03) < steps(within=0.05)


def test_a_launch_that_costs_more_is_kept_longer() -> None:
    assert steps() < steps(extra_s=10.0)


def test_where_a_few_rounds_do_not_fit_in_the_time_they_are_shorter() -> None:
    assert steps(within=0.1, time_s=45.0) < steps(within=0.1)


@pytest.mark.parametrize(("within", "time_s"), [(1e-4, 1e9), (9.0, 1e9), (9.0, 0.1)])
def test_there_is_a_least_and_a_most(within: float, time_s: float) -> None:
    assert FEWEST_IN_TURN <= steps(within=within, time_s=time_s) <= MOST_IN_TURN


def test_what_failed_says_nothing() -> None:
    assert turns_of_round((record(0, CRASH),), PRIOR, 10.0) == FEWEST_IN_TURN


def test_where_launches_take_the_time_steps_are_not_spared() -> None:
    assert steps(within=0.1, extra_s=100.0, time_s=30.0) == MOST_IN_TURN


@pytest.mark.parametrize(
    ("length", "left"), [(1, (9.0, 1.0, 2.0, 8.0, 3.0, 4.0)), (3, (1.0, 2.0, 3.0, 4.0))]
)
def test_a_step_at_which_a_launch_wakes_up_for_a_turn_of_several_counts_not(
    length: int, left: tuple[float, ...]
) -> None:
    turn = Turn(next_name="other", is_first=True, length=length)
    assert without_wake_ups((9.0, 1.0, 2.0, 8.0, 3.0, 4.0), turn) == left


def test_where_there_is_no_other_step_it_does() -> None:
    assert without_wake_ups((9.0,), Turn(next_name="other", is_first=True, length=3)) == (9.0,)


@pytest.mark.parametrize(
    ("step_s", "together"), [(1.0, 1), (0.05, 1), (0.02, 3), (0.006, 11), (1e-4, 11)]
)
def test_a_turn_has_so_many_steps_that_it_is_no_short_one(step_s: float, together: int) -> None:
    one = record(0, steps_of(step_s))
    assert steps_of_turn(one, turn_time_s([one])) == together


@pytest.mark.parametrize(("step_s", "steps"), [(1.0, 1), (0.4, 1), (0.3, 3), (0.01, 11)])
def test_who_has_shorter_steps_has_more_of_them_in_a_turn(step_s: float, steps: int) -> None:
    slow, fast = record(0, steps_of(1.0)), record(1, steps_of(step_s))
    assert steps_of_turn(fast, turn_time_s([slow, fast])) == steps


def apart(step_s: float, extra_s: float, time_s: float = 1.0) -> int:
    made_s = tuple(replace(record(n, steps_of(step_s)), wall_s=extra_s) for n in range(2))
    return steps_apart(made_s[0], time_apart_s(made_s, PRIOR, time_s))


def test_steps_are_not_spared_where_a_launch_that_follows_another_one_is_dear() -> None:
    assert FEWEST_APART <= apart(0.02, 20.0) <= MOST_APART


def test_steps_that_are_as_long_as_a_launch_are_spared() -> None:
    assert apart(20.0, 61.0) == FEWEST_TIMED


def test_steps_apart_of_what_failed_are_the_fewest() -> None:
    assert steps_apart(record(0, CRASH), time_apart_s((), PRIOR, 10.0)) == FEWEST_TIMED


def test_launches_that_follow_each_other_share_the_time() -> None:
    records = [
        replace(record(n, steps_of(step_s)), wall_s=20.0) for n, step_s in enumerate((0.3, 3.0))
    ]
    time_s = time_apart_s(records, PRIOR, 1e9)
    many, few = (steps_apart(one, time_s) for one in records)
    assert many > 4 * few
