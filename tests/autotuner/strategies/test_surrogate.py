"""Learned costs of rows that were not measured."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from autoconf_launch.autotuner.space import OBJECTIVES, Floats
from autoconf_launch.autotuner.strategies import costs, learn_costs, surrogate
from autoconf_launch.autotuner.strategies.belief import Belief
from autoconf_launch.core import Candidate, Layout

from ..builders import launch, measurement, prediction_table, table, trial_of

OBJECTIVE = OBJECTIVES["latency"]
BAND = 0.2


def candidates(knobs: int) -> list[Candidate]:
    """Every combination of so many switches, in an order without a pattern."""
    names = [f"switch_{i}" for i in range(knobs)]
    rows = [
        Candidate(layout=Layout(), extras=tuple(zip(names, values, strict=True)))
        for values in product((False, True), repeat=knobs)
    ]
    return [rows[int(i)] for i in np.random.default_rng(0).permutation(len(rows))]


def switch(knobs: int) -> Floats:
    """Seconds of all combinations: one switch decides."""
    return np.array([9.0 if dict(row.extras)["switch_2"] else 1.0 for row in candidates(knobs)])


def learn(knobs: int, seconds: Floats, *, predicted_s: float | None = None) -> Belief:
    """All rows, of which the first ones were measured and, if given, all were predicted."""
    rows = candidates(knobs)
    predictions = None
    if predicted_s is not None:
        predictions = prediction_table([predicted_s] * len(rows), band=BAND)
    records = [
        launch(trial_of(n, row), measurement(float(step_s)), predicted_s, wall_s=0.0, band=BAND)
        for n, (row, step_s) in enumerate(zip(rows, seconds, strict=False))
    ]
    pool = table(*rows)
    return learn_costs(pool, predictions, costs(pool, predictions, records, OBJECTIVE), 1)


def test_a_switch_and_shared_factors_are_learned() -> None:
    mean_C = learn(5, switch(5)[:12]).mean_C
    slow = switch(5)[12:] > 5.0
    assert mean_C[12:][slow].min() > mean_C[12:][~slow].max()
    belief = learn(5, np.full(3, 3.0), predicted_s=1.0)
    assert np.allclose(belief.mean_C, np.log(3.0), atol=0.01)
    assert belief.spread_C.max() < BAND
    belief = learn(0, np.array([2.0]), predicted_s=1.0)
    assert belief.mean_C[0] == pytest.approx(np.log(2.0), abs=0.01)
    first = learn(7, switch(7)[:20]).mean_C
    surrogate._fit.cache_clear()
    assert np.array_equal(first, learn(7, switch(7)[:20]).mean_C)


def test_measured_rows_make_similar_rows_surer_if_they_agree() -> None:
    wild = np.array([1.0, 9.0, 0.1, 9.0])
    assert learn(5, wild, predicted_s=1.0).spread_C.min() > BAND
    few, many = (learn(5, np.ones(count), predicted_s=1.0) for count in (3, 12))
    assert many.spread_C.max() < few.spread_C.min() < BAND
    before = learn(5, switch(5)[:8])
    after = before.after(20)
    assert np.array_equal(before.mean_C, after.mean_C)
    assert (after.spread_C <= before.spread_C + 1e-12).all()
    assert after.spread_C[20] < before.spread_C[20]


def test_in_a_long_study_trees_are_fitted_for_some_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(surrogate, "MOST_SEEN", 16)
    monkeypatch.setattr(surrogate, "_FIT_EVERY", 4)
    surrogate._fit.cache_clear()
    means = [learn(7, switch(7)[:count]).mean_C for count in range(20, 25)]
    assert surrogate._fit.cache_info().misses == 2
    assert all(np.array_equal(means[0], later) for later in means[1:4])
    assert not np.array_equal(means[0], means[4])
    surrogate._fit.cache_clear()
    assert np.array_equal(means[3], learn(7, switch(7)[:23]).mean_C)
