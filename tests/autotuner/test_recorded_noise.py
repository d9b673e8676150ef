"""The rounds at the end under noise that was recorded on a shared machine, resampled by rounds."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from autoconf_launch.autotuner.measurement import estimate_noise
from autoconf_launch.autotuner.playoff import Decision, Playoff, decide
from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    AutotuningSettings,
    Measurement,
    Record,
    Trial,
)
from autoconf_launch.core import Candidate, Layout, MemoryUse

from .playoff.played import playoff_of

DATA = Path(__file__).parents[1] / "data" / "step_noise.json"
RUNS = 30
THROUGHPUT = OBJECTIVES["throughput"]


@pytest.fixture(scope="module")
def recorded() -> list[list[list[float]]]:
    """Step seconds of three launches of one configuration in each round."""
    return [part["step_s"] for part in json.loads(DATA.read_text())["rounds"]]


def measurement(steps: Sequence[float], factor: float) -> Measurement:
    return Measurement(
        step_s=tuple(factor * step_s for step_s in steps),
        samples_per_step=32,
        world_size=2,
        memory=MemoryUse(free_before_bytes=100, peak_bytes=10, limit_bytes=100),
    )


class Machine:
    """Configurations that differ by known factors, on a machine as noisy as the recorded one."""

    def __init__(
        self, rounds: list[list[list[float]]], factors: Sequence[float], seed: int
    ) -> None:
        self._rounds, self._factors = rounds, factors
        self._chance = random.Random(seed)

    def search(self) -> tuple[Record, ...]:
        """A trial of each, minutes apart."""
        return tuple(self._record(number) for number in range(len(self._factors)))

    def _record(self, number: int) -> Record:
        trial = Trial(
            number=number,
            name=f"t{number}",
            candidate=Candidate(layout=Layout(micro_batch=number + 1)),
            space="z0",
        )
        steps = self._chance.choice(self._chance.choice(self._rounds))
        return Record(trial=trial, outcome=measurement(steps, self._factors[number]), wall_s=1.0)

    def play(self, playoff: Playoff) -> None:
        """Recorded rounds in their order; the steps of a turn are alike."""
        while playoff.stop_reason() is None:
            launches = list(self._chance.choice(self._rounds))
            self._chance.shuffle(launches)
            for trial in playoff.ask(len(playoff.seen.contenders), 0.0):
                assert trial.turn is not None
                turns = [step_s for step_s in launches.pop() for _ in range(trial.turn.length)]
                outcome = measurement(turns, self._factors[trial.number])
                playoff.tell(Record(trial=trial, outcome=outcome, wall_s=1.0))


def tune(rounds: list[list[list[float]]], factors: Sequence[float], seed: int) -> Decision:
    """A whole study of two finalists and the baseline at most."""
    machine, settings = Machine(rounds, factors, seed), AutotuningSettings()
    records = machine.search()
    playoff = playoff_of(records, wanted=2)
    machine.play(playoff)
    return decide(records, playoff.records, (), settings, estimate_noise(records))


def is_tie_with_baseline(decision: Decision) -> bool:
    assert decision.winner is not None
    ratio = decision.speed_up
    rivals = (*decision.ties, *decision.undecided)
    is_open = ratio is None or ratio.low <= 1.0 <= ratio.high
    return decision.winner.trial.number == 0 or ("t0" in dict(rivals) and is_open)


def test_identical_configurations_end_in_a_tie(recorded: list[list[list[float]]]) -> None:
    found = [tune(recorded, (1.0,) * 8, seed) for seed in range(RUNS)]
    assert sum(map(is_tie_with_baseline, found)) >= 0.9 * RUNS


def test_ten_percent_are_found(recorded: list[list[list[float]]]) -> None:
    found = [tune(recorded, (1.1, 1.0), seed) for seed in range(RUNS)]
    sure = [
        decision
        for decision in found
        if decision.winner
        and decision.winner.trial.number == 1
        and not decision.ties
        and not decision.undecided
        and decision.speed_up
        and decision.speed_up.low > 1.0
    ]
    assert len(sure) >= 0.9 * RUNS


@pytest.mark.parametrize("factor", [1.1, 1.3])
def test_the_true_difference_lies_in_the_interval(
    recorded: list[list[list[float]]], factor: float
) -> None:
    ratios = [tune(recorded, (factor, 1.0), seed).speed_up for seed in range(RUNS)]
    assert sum(r is not None and r.low <= factor <= r.high for r in ratios) >= 0.93 * RUNS
