"""Which model learns, and what it says of rows that were not measured."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from autoconf_launch.autotuner.space import (
    OBJECTIVES,
    CandidateTable,
    Floats,
    Measurement,
    Record,
    Trial,
)
from autoconf_launch.autotuner.strategies import by_process, costs, surrogate, trees
from autoconf_launch.autotuner.strategies.surrogate import Model, by_knobs, by_trees
from autoconf_launch.autotuner.strategies.trees import Members
from autoconf_launch.core import Candidate, Layout

OBJECTIVE = OBJECTIVES["latency"]


def candidates(knobs: int) -> list[Candidate]:
    """Every combination of so many switches."""
    names = [f"switch_{i}" for i in range(knobs)]
    return [
        Candidate(layout=Layout(), extras=tuple(zip(names, values, strict=True)))
        for values in product((False, True), repeat=knobs)
    ]


def measure(number: int, candidate: Candidate, step_s: float) -> Record:
    trial = Trial(number=number, name=f"t{number}", candidate=candidate, space="z0")
    outcome = Measurement(step_s=(step_s,), samples_per_step=1, world_size=1)
    return Record(trial=trial, outcome=outcome, wall_s=0.0)


def said_by(model: Model, knobs: int, seconds: Floats) -> tuple[bool, Floats]:
    """Whether trees say it, and what of all rows, of which the first ones were measured."""
    rows = candidates(knobs)
    order = np.random.default_rng(0).permutation(len(rows))
    records = [measure(n, rows[int(order[n])], float(s)) for n, s in enumerate(seconds)]
    pool = CandidateTable.from_candidates([rows[int(i)] for i in order])
    found = model(pool, None, costs(pool, None, records, OBJECTIVE), 1)
    return isinstance(found.kernel, Members), found.mean_C


@pytest.mark.parametrize(("knobs", "trees"), [(3, False), (7, True)])
def test_trees_are_taken_where_many_knobs_vary(knobs: int, trees: bool) -> None:
    assert said_by(by_knobs, knobs, np.array([1.0, 2.0]))[0] is trees


def switch(knobs: int) -> Floats:
    """Seconds of all combinations, in the order in which they are measured: one switch decides."""
    rows = candidates(knobs)
    order = np.random.default_rng(0).permutation(len(rows))
    return np.array([9.0 if dict(rows[int(i)].extras)["switch_2"] else 1.0 for i in order])


def test_trees_learn_a_switch_from_twelve_measurements() -> None:
    _, mean_C = said_by(by_trees, 5, switch(5)[:12])
    slow = switch(5)[12:] > 5.0
    assert mean_C[12:][slow].min() > mean_C[12:][~slow].max()


@pytest.mark.parametrize("model", [by_process, by_trees, by_knobs])
def test_the_same_records_give_the_same_belief(model: Model) -> None:
    first = said_by(model, 7, switch(7)[:20])[1]
    trees._fit.cache_clear()
    assert np.array_equal(first, said_by(model, 7, switch(7)[:20])[1])


def test_in_a_long_study_trees_are_fitted_for_some_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate, "MOST_SEEN", 16)
    monkeypatch.setattr(surrogate, "_FIT_EVERY", 4)
    trees._fit.cache_clear()
    believed = [said_by(by_trees, 7, switch(7)[:count])[1] for count in range(20, 25)]
    assert trees._fit.cache_info().misses == 2
    assert all(np.array_equal(believed[0], later) for later in believed[1:4])
    assert not np.array_equal(believed[0], believed[4])
    trees._fit.cache_clear()
    assert np.array_equal(believed[3], said_by(by_trees, 7, switch(7)[:23])[1])
