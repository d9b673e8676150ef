"""The three efforts: their settings, their cost and their results."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from autoconf_launch.autotuner.measurement import EFFORTS, Effort, Noise
from autoconf_launch.autotuner.playoff import Playoff, PlayoffBudget
from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    EffortName,
    Measurement,
    Record,
    parse_settings,
)
from autoconf_launch.core import ConfigError

from ..builders import launch, measurement, trial_of

THROUGHPUT = OBJECTIVES["throughput"]
NOISY = Noise(between=0.03, between_freedom=30.0, within=0.03, within_freedom=30.0)


def test_every_effort_that_a_user_can_name_is_there() -> None:
    assert tuple(EFFORTS) == get_args(EffortName)


@pytest.mark.parametrize("name", ["throrough", "Quick", "max"])
def test_an_unknown_effort_gets_the_nearest_known(name: str) -> None:
    near = {"throrough": "'thorough'", "Quick": "'quick'"}.get(
        name, "must be quick, normal or thorough"
    )
    with pytest.raises(ConfigError, match=f"(?s)autotuning.effort.*{name}.*{near}"):
        parse_settings({"effort": name})


def record(number: int, step_s: float) -> Record:
    return launch(trial_of(number, {"micro_batch": number + 1}), measure(step_s))


def measure(*step_s: float) -> Measurement:
    return measurement(*step_s, samples=10, peak=10)


def play(effort: Effort) -> Playoff:
    """The playoff of three that differ by 1 % and a slow baseline; rounds differ by 3 %."""
    speeds = (1.2, 1.02, 1.01, 1.0)
    records = tuple(record(number, speed) for number, speed in enumerate(speeds))
    budget = PlayoffBudget(effort=effort)
    playoff = Playoff(records[::-1], THROUGHPUT, budget=budget, noise=NOISY)
    draw = np.random.default_rng(0)
    while playoff.stop_reason() is None:
        for trial in playoff.ask(1, 0.0):
            steps = speeds[trial.number] * np.exp(0.03 * draw.standard_normal(6))
            playoff.tell(Record(trial=trial, outcome=measure(*steps.tolist()), wall_s=1.0))
    return playoff


def test_quick_spends_less_and_thorough_more() -> None:
    launches = {name: len(play(effort).records) for name, effort in EFFORTS.items()}
    assert launches["quick"] < launches["normal"] < launches["thorough"]
