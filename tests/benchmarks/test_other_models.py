from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import DEFAULT_PHYSICS, Physics
from autoconf_launch.autotuner.space import Floats
from autoconf_launch.launcher.measurements.measured_runs import predicted_s, runs_of
from autoconf_launch.launcher.measurements.row import PublishedRow, read_measurements

from .conftest import import_benchmark

factors_of_others = import_benchmark("other_models").factors_of_others

TABLES = Path(__file__).parents[2] / "benchmarks" / "ground_truth"


@pytest.fixture(scope="module")
def rows() -> tuple[PublishedRow, ...]:
    """Rows of two models of one width, which have the same kernels."""
    every = read_measurements(TABLES / "vtrain_single_node.csv").measurements
    return tuple(one for one in every if one.shape.hidden == 1024 and one.gpus == 2)


def first_model(rows: tuple[PublishedRow, ...]) -> list[bool]:
    return [one.shape.name == rows[0].shape.name for one in rows]


def slower(
    rows: tuple[PublishedRow, ...], factor: float, *, first: bool
) -> tuple[PublishedRow, ...]:
    """As if the first model, or the other one, had taken so much longer."""
    return tuple(
        replace(one, step_time_s=(one.step_time_s or 0.0) * (factor if mine is first else 1.0))
        for one, mine in zip(rows, first_model(rows), strict=True)
    )


def test_times_of_the_model_itself_say_nothing_of_it(rows: tuple[PublishedRow, ...]) -> None:
    mine = first_model(rows)
    before, after = factors_of_others(rows), factors_of_others(slower(rows, 1.2, first=True))
    assert after[mine].tolist() == before[mine].tolist()
    mine = first_model(rows)
    halves = tuple(
        replace(one, shape=replace(one.shape, name="alias")) if own and i % 2 else one
        for i, (one, own) in enumerate(zip(rows, mine, strict=True))
    )
    named = [one.shape.name == rows[0].shape.name for one in halves]
    slow = tuple(
        replace(one, step_time_s=2.0 * (one.step_time_s or 0.0))
        if one.shape.name == "alias"
        else one
        for one in halves
    )
    assert factors_of_others(slow)[named].tolist() == factors_of_others(halves)[named].tolist()
    thrice = [
        replace(one, step_time_s=(one.step_time_s or 0.0) * factor)
        for factor in (1.0, 0.99, 3.0)
        for one in rows
    ]
    found = factors_of_others(thrice)[: len(rows)]
    assert np.allclose(found, factors_of_others(rows), rtol=1e-9)


def test_other_models_of_the_same_kernels_correct_their_constants(
    rows: tuple[PublishedRow, ...],
) -> None:
    mine = first_model(rows)
    before, after = factors_of_others(rows), factors_of_others(slower(rows, 1.1, first=False))
    assert (after[mine] > 1.03 * before[mine]).all()
    assert (after[mine] < 1.1 * before[mine]).all()
    # Other models correct most of a constant that is wrong for all rows.
    wrong = replace(DEFAULT_PHYSICS, layer_forward_s=1.2e-3, layer_backward_s=1.7e-3)
    mine = first_model(rows)

    def physics_of(model: str) -> Physics:
        return wrong if model == rows[0].shape.name else DEFAULT_PHYSICS

    factors = factors_of_others(rows, physics_of)
    assert error(rows, mine, wrong, factors) < 0.6 * error(rows, mine, wrong, np.ones(len(rows)))


def test_rows_without_other_measured_models_stay_as_they_are(
    rows: tuple[PublishedRow, ...],
) -> None:
    alone = [one for one, mine in zip(rows, first_model(rows), strict=True) if mine]
    assert factors_of_others(alone).tolist() == [1.0] * len(alone)
    failed = [
        one if mine else replace(one, step_time_s=None)
        for one, mine in zip(rows, first_model(rows), strict=True)
    ]
    assert set(factors_of_others(failed)[first_model(rows)].tolist()) == {1.0}
    assert len(factors_of_others([])) == 0
    other = replace(rows[0], gpu="no such GPU")
    assert factors_of_others((*rows, other))[-1] == 1.0


def error(
    rows: tuple[PublishedRow, ...], mine: list[bool], physics: Physics, factors: Floats
) -> float:
    measured_s = np.array([one.step_time_s for one in rows], float)
    found_s = predicted_s(runs_of(rows)[0], len(rows), physics) * factors
    return float(np.abs(found_s / measured_s - 1.0)[mine].mean())
