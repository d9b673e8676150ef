from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.measurement import FEWEST_TIMED, PRIOR, StopRule
from autoconf_launch.autotuner.measurement.stop_rule import rejection_margin

RULE = StopRule()
QUIET = replace(PRIOR, within=0.005, within_freedom=50.0)
STEPS = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=14)


@pytest.mark.parametrize(
    ("steps_s", "rejected"),
    [
        pytest.param([2.6, 2.1], True, id="twice as long"),
        pytest.param([9.0], False, id="the first step of all"),
        pytest.param([1.5, 1.25], False, id="a slow warm-up"),
        pytest.param([1.2, 1.1, 1.1], False, id="within the noise"),
        pytest.param([0.5, 0.5, 0.5, 0.5], False, id="faster"),
    ],
)
def test_a_trial_that_is_surely_slower_ends_with_the_step_that_shows_it(
    steps_s: list[float], rejected: bool
) -> None:
    assert RULE.rejects(steps_s, 1.0, PRIOR) == rejected
    assert (RULE(steps_s, 1.0, PRIOR) == len(steps_s)) == rejected or len(steps_s) > 3


def test_quiet_steps_need_few_of_them() -> None:
    assert RULE([1.0], None, QUIET) == RULE.start_step - 1 + FEWEST_TIMED


def test_noisier_steps_need_more_of_them() -> None:
    noisier = replace(PRIOR, within=0.04)
    assert RULE.most_steps > RULE([1.0], None, noisier) > RULE([1.0], None, QUIET)


def test_noise_that_no_number_of_steps_overcomes_leaves_the_end_where_it_is() -> None:
    assert RULE([1.0], None, replace(PRIOR, within=0.5)) == RULE.end_step


@given(STEPS, st.none() | st.floats(1e-3, 1e3), st.floats(1e-4, 1.0))
def test_the_end_is_never_before_the_last_step_nor_beyond_the_most(
    seconds: list[float], incumbent_s: float | None, within: float
) -> None:
    end = RULE(seconds, incumbent_s, replace(PRIOR, within=within))
    assert len(seconds) <= end <= RULE.most_steps


def reject(gap: float, within: float, seed: int) -> bool:
    """True if a trial whose launches are noisy as the prior says is ever rejected."""
    chance = random.Random(seed)
    noise = replace(PRIOR, within=within)
    incumbent_s = 2.718281828 ** chance.gauss(0.0, noise.between)
    launch = gap * 2.718281828 ** chance.gauss(0.0, noise.between)
    steps, deviation = [], chance.gauss(0.0, within)
    for _ in range(RULE.most_steps):
        steps.append(launch * 2.718281828**deviation)
        deviation = 0.7 * deviation + chance.gauss(0.0, within * (1 - 0.49) ** 0.5)
        if RULE.rejects(steps, incumbent_s, noise):
            return True
    return False


@pytest.mark.parametrize("within", [0.005, 0.03, 0.1])
def test_as_good_a_trial_is_hardly_ever_rejected(within: float) -> None:
    assert sum(reject(1.0, within, seed) for seed in range(200)) <= 10


def test_a_hopeless_one_nearly_always_is() -> None:
    assert sum(reject(1.6, 0.03, seed) for seed in range(200)) >= 190


def test_the_margin_shrinks_with_the_steps() -> None:
    margins = [rejection_margin(count, PRIOR, 0.05) for count in range(1, 12)]
    assert margins == sorted(margins, reverse=True)
