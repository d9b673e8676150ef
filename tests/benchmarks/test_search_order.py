"""On published tables a search's order finds the fastest at least as soon as the planner's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autoconf_launch.autotuner.planner import NOISE, SPREADS

from .conftest import import_benchmark

orders = import_benchmark("search_order")
USED = np.array([*SPREADS, NOISE])


def regrets(name: str) -> tuple[Any, Any]:
    """Mean regrets by predicted time and as a search runs, after each number of runs."""
    groups = list(orders.groups(orders.table_of(orders.FOLDER / f"{name}.csv")))
    as_predicted = [one.regrets(one.as_predicted) for one in groups]
    as_run = [one.regrets(one.as_run(USED)) for one in groups]
    return np.mean(as_predicted, axis=0), np.mean(as_run, axis=0)


@pytest.mark.parametrize("name", ["amp_homogeneous_t4", "torchtitan", "vtrain_multi_node"])
def test_no_more_runs_are_needed_than_by_predicted_time(name: str) -> None:
    as_predicted, as_run = regrets(name)
    assert (as_run <= as_predicted + 1e-12).all()


def test_fewer_runs_are_needed_and_the_first_is_the_planner_s() -> None:
    as_predicted, as_run = regrets("vtrain_single_node")
    assert (as_run <= as_predicted + 1e-12).all()
    assert as_run[orders.RUNS.index(4)] < as_predicted[orders.RUNS.index(4)]
    for one in orders.groups(orders.table_of(orders.FOLDER / "vtrain_multi_node.csv")):
        assert one.as_run(USED)[0] == one.as_predicted[0]
