"""The three efforts: their settings, their cost and their results."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import numpy as np
import pytest

from autoconf_launch.autotuner.measurement import EFFORTS, NORMAL, Effort, Noise, StopRule
from autoconf_launch.autotuner.playoff import Playoff, PlayoffBudget
from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    AutotuningSettings,
    EffortName,
    Measurement,
    Record,
    parse_settings,
)
from autoconf_launch.core import ConfigError

from ..builders import launch, measurement, trial_of

THROUGHPUT = OBJECTIVES["throughput"]
QUIET = Noise(between=0.01, between_freedom=30.0, within=0.01, within_freedom=30.0)


def test_normal_is_what_a_study_did_before_there_were_efforts() -> None:
    assert tuple(getattr(NORMAL, field.name) for field in fields(NORMAL)) == (
        *(0.02, 0.7, 0.03, 14),
        *(3, 0.3, 15.0, 40, 0.02, 0.03, 0.05),
        *(0.1, 10.0, 50, 0.2, 20.0, 120.0),
    )
    assert AutotuningSettings().effort == "normal"
    assert (StopRule().most_steps, PlayoffBudget().rounds) == (14, 40)


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
    """The playoff of four that differ by 0.8 %, on one machine whose rounds differ by 1 %."""
    speeds = (1.024, 1.016, 1.008, 1.0)
    records = tuple(record(number, speed) for number, speed in enumerate(speeds))
    budget = PlayoffBudget(rounds=effort.most_rounds, effort=effort)
    playoff = Playoff(records[::-1], THROUGHPUT, budget=budget, noise=QUIET)
    draw = np.random.default_rng(0)
    while playoff.stop_reason() is None:
        for trial in playoff.ask(1, 0.0):
            steps = speeds[trial.number] * np.exp(0.01 * draw.standard_normal(6))
            playoff.tell(Record(trial=trial, outcome=measure(*steps.tolist()), wall_s=1.0))
    return playoff


def test_quick_spends_less_and_thorough_more() -> None:
    launches = {name: len(play(effort).records) for name, effort in EFFORTS.items()}
    assert launches["quick"] < launches["normal"] < launches["thorough"]


def test_thorough_tells_apart_what_normal_calls_equal() -> None:
    played = [play(effort) for effort in EFFORTS.values()]
    beaten = [
        sum(one is not p.leader and p.compare(one, p.leader).differs for one in p.contenders)
        for p in played
        if p.leader
    ]
    assert beaten[0] <= beaten[1] < beaten[2]
