"""Predictions of layouts that were not run, from measured runs."""

from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import estimate
from autoconf_launch.autotuner.planner import (
    NOISE,
    ErrorBelief,
    OwnRuns,
    Question,
    plan,
    planned_band,
    predicted_steps_s,
    time_band,
)
from autoconf_launch.autotuner.space import Floats
from autoconf_launch.core import Layout

from ..builders import layout_of, layouts
from .conftest import SMALL, ask

ALIKE = Layout(data_parallel=2)
FEW = layout_of("dp=8 zero=1")
SHARDED = replace(FEW, zero_stage=3)


def runs(asked: Question, ratios: Floats, *ran: Layout) -> OwnRuns:
    """Runs that took so many times their predicted seconds."""
    training, columns = asked.training, layouts(*ran)
    predicted_s = estimate(columns, training.workload, training.machine).step_s_C
    return OwnRuns(
        layouts=columns,
        model=training.workload.architecture,
        sequence_length=training.workload.sequence_length,
        predicted_s_M=predicted_s,
        measured_s_M=predicted_s * ratios,
        scale=1.0,
    )


def agreeing(found: OwnRuns, asked: Question) -> OwnRuns:
    where = (asked.training.workload, asked.training.machine)
    return found.without_contradicting(found.surprises(*where), found.spreads_off(*where))


def with_runs(asked: Question, found: OwnRuns | None) -> Question:
    return replace(asked, training=replace(asked.training, runs=found))


def test_slow_runs_make_layouts_like_them_slower() -> None:
    asked = replace(ask(), most=None)
    before = plan(asked).best[0]
    found = runs(asked, np.array([1.1]), replace(before.layout, data_parallel=2))
    after = {one.layout: one for one in plan(with_runs(asked, found)).best}[before.layout]
    assert 1.03 < after.step_s / before.step_s < 1.1
    assert after.correction == pytest.approx(after.step_s / before.step_s)
    assert after.mfu == pytest.approx(before.mfu * before.step_s / after.step_s)
    assert sum(dict(after.parts).values()) == pytest.approx(
        sum(dict(before.parts).values()) * after.correction
    )


def test_corrected_steps_rank_but_a_measured_layout_stays_before_uncorrected_ones() -> None:
    asked = ask()
    best = plan(asked).best[0].layout
    found = runs(asked, np.array([1.3, 1.3]), best, replace(best, data_parallel=2))
    rows = plan(with_runs(asked, found)).best
    assert rows[0].layout != best
    before = plan(asked).best
    best = before[0].layout
    found = runs(asked, np.array([1.05, 1.05]), best, replace(best, data_parallel=2))
    after = plan(with_runs(asked, found)).best
    assert after[0].layout == best
    assert after[0].step_s > before[1].step_s
    assert after[0].narrowing == min(one.narrowing for one in after)


def test_the_band_of_a_layout_that_ran_is_narrower_but_no_narrower_than_the_noise() -> None:
    asked, count = replace(ask(), most=None), 60
    found = runs(asked, np.ones(count), *[ALIKE] * count)
    own = with_runs(asked, found)
    bands = {one.layout: planned_band(own.training, one).error for one in plan(own).best}
    gpu = asked.training.machine.accelerator.name
    before = time_band(asked.training.workload, ALIKE, gpu).error
    assert bands[FEW] == min(bands.values()) < 0.7 * before
    assert min(bands.values()) > NOISE * np.log1p(before)
    assert 0.9 * before < bands[SHARDED] <= before


def test_a_belief_is_that_of_the_runs_also_of_fewer_layers() -> None:
    training = ask().training
    where = (training.workload, training.machine)
    found = runs(ask(), np.array([1.1, 1.0]), ALIKE, replace(ALIKE, tensor_parallel=2))
    columns = layouts(FEW, SHARDED)
    before = ErrorBelief.before(found.likeness(columns, *where))
    after = found.belief(columns, *where)
    assert found.narrowing(columns, *where) == pytest.approx(
        [after.spread(row) / before.spread(row) for row in range(2)]
    )
    assert np.log(found.factors(columns, *where)) == pytest.approx(after.mean_R[:2])
    training = ask().training
    columns = layouts(ALIKE)
    cut, whole = (
        predicted_steps_s(columns, [model], training.workload, training.machine)[0]
        for model in (replace(SMALL, layers=2), SMALL)
    )
    assert 0.2 * whole < cut < 0.6 * whole


def test_a_contradicting_run_is_named_widens_the_band_and_corrects_nothing() -> None:
    asked = ask()
    training = asked.training
    where = (training.workload, training.machine)
    calm = runs(asked, np.array([1.0, 1.01, 1.0]), ALIKE, ALIKE, ALIKE)
    loud = runs(asked, np.array([1.0, 1.01, 4.0]), ALIKE, ALIKE, ALIKE)
    calm, kept = (
        one.without_contradicting(one.surprises(*where), one.spreads_off(*where))
        for one in (calm, loud)
    )
    assert (np.abs(loud.surprises(*where)) > 3.0).tolist() == [False, False, True]
    assert calm.widening == 1.0 < kept.widening
    columns = layouts(ALIKE)
    assert kept.narrowing(columns, *where)[0] > 1.5 * calm.narrowing(columns, *where)[0]
    loud = runs(asked, np.array([1.05, 1.05, 4.0]), ALIKE, ALIKE, ALIKE)
    kept = agreeing(loud, asked)
    calm = runs(asked, np.array([1.05, 1.05]), ALIKE, ALIKE)
    assert kept.measured_s_M.tolist() == calm.measured_s_M.tolist()
    first, same = (plan(with_runs(asked, one)).best[0] for one in (kept, calm))
    assert (first.layout, first.step_s) == (same.layout, same.step_s)


def test_runs_far_off_widen_the_band_and_correct_if_they_agree() -> None:
    asked = ask()
    where = (asked.training.workload, asked.training.machine)
    found = runs(asked, np.array([1.47, 2.2, 3.6]), ALIKE, FEW, SHARDED)
    surprises = found.surprises(*where)
    assert np.abs(surprises).max() > 3.0
    assert agreeing(found, asked).widening > 1.0
    found = runs(asked, np.array([1.5]), ALIKE)
    kept = agreeing(found, asked)
    assert kept.widening > 1.0
    assert kept.factors(layouts(ALIKE), *where)[0] > 1.1
    found = runs(asked, np.array([2.5, 2.55, 2.6]), ALIKE, ALIKE, FEW)
    surprises_M, off_M = found.surprises(*where), found.spreads_off(*where)
    assert np.abs(surprises_M).max() < 3.0 < np.abs(off_M).min()
    kept = agreeing(found, asked)
    columns = layouts(ALIKE, SHARDED)
    assert kept.factors(columns, *where)[0] == pytest.approx(2.5, rel=0.1)
    assert kept.narrowing(columns, *where)[1] > 2.0
    found = runs(asked, np.array([1.05, 4.0]), ALIKE, ALIKE)
    surprises_M = found.surprises(*where)
    assert (np.abs(surprises_M) > 3.0).tolist() == [False, True]
    kept = agreeing(found, asked)
    assert kept.measured_s_M.tolist() == found.measured_s_M[:1].tolist()
    assert kept.widening > 2.0
