"""Which model is believed, and what each says of measurements that it was not told."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from autoconf_launch.autotuner.space.objective import OBJECTIVES
from autoconf_launch.autotuner.space.table import CandidateTable, Floats
from autoconf_launch.autotuner.space.trial import Measurement, Record, Trial
from autoconf_launch.autotuner.strategies.gaussian import believed
from autoconf_launch.autotuner.strategies.surrogate import (
    Believed,
    by_process,
    by_the_closer,
    by_trees,
    costs,
)
from autoconf_launch.autotuner.strategies.trees import Members
from autoconf_launch.core import Candidate, Layout

OBJECTIVE = OBJECTIVES["latency"]
DRAW = np.random.default_rng(3)


def candidates(knobs: int) -> list[Candidate]:
    """Every combination of so many switches."""
    names = [f"switch_{i}" for i in range(knobs)]
    return [
        Candidate(layout=Layout(), extras=tuple(zip(names, values, strict=True)))
        for values in product((False, True), repeat=knobs)
    ]


def measured(number: int, candidate: Candidate, step_s: float) -> Record:
    trial = Trial(number=number, name=f"t{number}", candidate=candidate, space="z0")
    outcome = Measurement(step_s=(step_s,), samples_per_step=1, world_size=1)
    return Record(trial=trial, outcome=outcome, wall_s=0.0)


def said_by(model: Believed, knobs: int, seconds: Floats) -> tuple[bool, Floats]:
    """Whether trees say it, and what of all rows, of which the first ones were measured."""
    rows = candidates(knobs)
    order = np.random.default_rng(0).permutation(len(rows))
    records = [measured(n, rows[int(order[n])], float(s)) for n, s in enumerate(seconds)]
    pool = CandidateTable.from_candidates([rows[int(i)] for i in order])
    found = model(pool, None, costs(pool, None, records, OBJECTIVE), 1)
    return isinstance(found.kernel, Members), found.mean_C


@pytest.mark.parametrize(("knobs", "trees"), [(3, False), (7, True)])
def test_before_anything_is_known_trees_are_taken_where_many_knobs_vary(
    knobs: int, trees: bool
) -> None:
    assert said_by(by_the_closer, knobs, np.array([1.0, 2.0]))[0] is trees


def switched(knobs: int) -> Floats:
    """Seconds of all combinations, in the order in which they are measured: one switch decides."""
    rows = candidates(knobs)
    order = np.random.default_rng(0).permutation(len(rows))
    return np.array([9.0 if dict(rows[int(i)].extras)["switch_2"] else 1.0 for i in order])


def test_trees_decide_where_they_were_clearly_closer() -> None:
    """Of three switches only one matters, as trees see at once and no distance tells."""
    is_trees, _ = said_by(by_the_closer, 5, switched(5)[:24])
    assert is_trees


def test_the_process_decides_where_it_was_clearly_closer() -> None:
    """Every switch that is on takes as much more."""
    order = np.random.default_rng(0).permutation(2**7)
    on = np.array([int(row).bit_count() for row in order], float)
    assert not said_by(by_the_closer, 7, np.exp(on[:40]))[0]


def test_trees_learn_a_switch_from_twelve_measurements() -> None:
    _, mean_C = said_by(by_trees, 5, switched(5)[:12])
    slow = switched(5)[12:] > 5.0
    assert mean_C[12:][slow].min() > mean_C[12:][~slow].max()


@pytest.mark.parametrize("model", [by_process, by_trees, by_the_closer])
def test_the_same_records_give_the_same_belief(model: Believed) -> None:
    first, second = (said_by(model, 7, switched(7)[:20])[1] for _ in range(2))
    assert np.array_equal(first, second)


def test_what_the_process_says_of_a_measurement_left_out_is_what_the_others_say() -> None:
    features, targets = DRAW.normal(size=(7, 3)), DRAW.normal(size=6)
    every = np.concatenate([features[:6], features[5:6]])
    whole = believed(every, targets, spread=0.3, constant=False)
    others = believed(every, targets[:5], spread=0.3, constant=False)
    assert whole.left_out_S[5] == pytest.approx(targets[5] - others.mean_C[0], abs=0.02)


def test_what_trees_say_of_a_measurement_left_out_does_not_follow_it() -> None:
    seconds = switched(5)[:12]
    other = seconds.copy()
    other[3] = 1.0 if seconds[3] > 5.0 else 9.0
    rows = candidates(5)
    order = np.random.default_rng(0).permutation(len(rows))
    pool = CandidateTable.from_candidates([rows[int(i)] for i in order])
    off = []
    for told in (seconds, other):
        records = [measured(n, rows[int(order[n])], float(s)) for n, s in enumerate(told)]
        off.append(by_trees(pool, None, costs(pool, None, records, OBJECTIVE), 1).left_out_S[3])
    assert abs(off[1]) > 1.5 > 0.5 > abs(off[0])
