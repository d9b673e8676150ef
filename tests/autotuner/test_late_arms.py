"""Rounds that somebody comes into later, under recorded noise: how often they are wrong."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from autoconf_launch.autotuner.finals import Finals, FinalsBudget
from autoconf_launch.autotuner.noise import PRIOR

from .test_recorded_noise import DATA, THROUGHPUT, Machine

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
