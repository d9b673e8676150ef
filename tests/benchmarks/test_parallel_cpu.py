"""The comparison of predicted and measured layouts, on records made up here."""

from pathlib import Path
from typing import Any

import pytest

from autoconf_launch.autotuner.space import Record

from ..autotuner.builders import launch, measurement, trial_of
from .conftest import import_benchmark

parallel_cpu = import_benchmark("parallel_cpu")


def record(name: str, predicted_s: float, measured_s: float) -> Record:
    outcome = measurement(measured_s, samples=8, peak=200)
    return launch(trial_of(0, name=name), outcome, predicted_s, peak_bytes=100)


class Round:
    def __init__(self, *records: Record) -> None:
        self.records = records


def layouts(*rounds: Round) -> list[Any]:
    return list(parallel_cpu.layouts_of("dense", rounds))


def test_rounds_are_judged_by_their_medians() -> None:
    rounds = [Round(record("a", 1.0, seconds)) for seconds in (2.0, 9.0, 4.0)]
    (found,) = layouts(*rounds)
    assert (found.measured_s, found.time_error) == (4.0, pytest.approx(-0.75))
    found = layouts(Round(record("a", 1.0, 3.0), record("b", 2.0, 2.0), record("c", 3.0, 6.0)))
    accuracy = parallel_cpu.Accuracy.of(found)
    assert accuracy.regret == pytest.approx(0.5)
    assert accuracy.memory_error == pytest.approx(0.5)
    assert accuracy.order == pytest.approx(0.5)
    found = layouts(Round(record("a", 1.0, 1.0), record("b", 2.0, 2.0)))
    text = parallel_cpu.report({"dense": found}, 1, [0.5])
    assert "| dense | 2 | 0 % | 1.00 | 50 % **miss** | 0 % |" in text
    assert "| dense | `a` | 1000 ms | 1000 ms | +0 % | 0 MB | 0 MB | -50 % |" in text


def test_every_space_names_a_model_that_the_script_builds() -> None:
    shapes = import_benchmark("parallel_layouts.train").SHAPES
    assert {model for model, _ in parallel_cpu.SPACES.values()} <= shapes.keys()
    assert Path(parallel_cpu.SCRIPT).exists()
