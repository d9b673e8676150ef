"""Rounds that somebody comes into later, under recorded noise: how often they are wrong."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autoconf_launch.autotuner.measurement.noise import PRIOR
from autoconf_launch.autotuner.playoff.contenders import FinalsBudget
from autoconf_launch.autotuner.playoff.playoff import Finals
from autoconf_launch.autotuner.playoff.summary import Summary, summarise_records
from autoconf_launch.autotuner.playoff.winner import settled
from autoconf_launch.autotuner.space.settings import AutotuningSettings
from autoconf_launch.core import Optimizer

from .playoff.test_playoff import run, searched, truth
from .test_recorded_noise import DATA, THROUGHPUT, Machine, is_tie_with_baseline

RUNS = 50
ROUNDS = FinalsBudget(rounds=20)
LOUD = replace(PRIOR, between=0.6)
"""What repeats would say of launches that are minutes apart on the recorded machine."""


@pytest.fixture(scope="module")
def recorded() -> list[list[list[float]]]:
    return [part["step_s"] for part in json.loads(DATA.read_text())["rounds"]]


def played(recorded: list[list[list[float]]], factors: tuple[float, ...], seed: int) -> Finals:
    machine = Machine(recorded, factors, seed)
    finals = Finals(machine.searched(), THROUGHPUT, wanted=2, budget=ROUNDS, noise=LOUD)
    machine.play(finals)
    return finals


def summary(recorded: list[list[list[float]]], factors: tuple[float, ...], seed: int) -> Summary:
    records = Machine(recorded, factors, seed).searched()
    settings, optimizer = AutotuningSettings(), Optimizer()
    searched = replace(summarise_records(records, settings, duration_s=1.0), noise=LOUD)
    finals = played(recorded, factors, seed).records
    return settled(searched, records, finals, settings, optimizer)


def test_the_baseline_is_called_back_for_a_best_that_came_later() -> None:
    finals = Finals(searched(3.0, 1.0, 1.001, 1.002, 1.003, 1.004, peak=1), THROUGHPUT)
    run(finals, truth(3.0, 1.0, 1.0, 1.0, 0.8, 1.5), slots=8)
    own, best = (next(a for a in finals.arms if a.name == name) for name in ("t0", "t4"))
    assert best is finals.leader
    assert finals.compare(own, best).count


def test_equals_end_in_a_tie_with_the_baseline_whoever_came_later(
    recorded: list[list[list[float]]],
) -> None:
    found = [summary(recorded, (1.0,) * 8, seed) for seed in range(RUNS)]
    assert sum(map(is_tie_with_baseline, found)) >= 0.9 * RUNS


def test_of_equals_nobody_is_told_apart_whoever_came_later(
    recorded: list[list[list[float]]],
) -> None:
    found = [played(recorded, (1.0,) * 8, seed) for seed in range(RUNS)]
    wrong = sum(any(arm.is_beaten for arm in finals.arms) for finals in found)
    assert wrong <= 0.1 * RUNS


def test_who_is_the_best_is_found_though_others_began(recorded: list[list[list[float]]]) -> None:
    found = [played(recorded, (2.0, 1.9, 1.6, 1.4, 1.0, 1.2), seed) for seed in range(RUNS)]
    later = [one for one in found if "t4" in [arm.name for arm in one.arms[3:]]]
    assert len(later) >= 0.2 * RUNS
    assert sum(one.leader is not None and one.leader.name == "t4" for one in later) >= 0.9 * len(
        later
    )
