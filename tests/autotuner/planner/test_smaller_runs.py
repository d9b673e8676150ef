"""Runs that cost less than a training, and the choice among them."""

from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import LayoutColumns
from autoconf_launch.autotuner.planner import (
    Bounds,
    OwnRuns,
    Plan,
    Question,
    RunCosts,
    SmallerRun,
    Training,
    Verification,
    near_rivals,
    plan,
    verifying_runs,
)
from autoconf_launch.autotuner.planner.verification import smaller_runs
from autoconf_launch.core import Layout

from ..builders import layout_of
from .conftest import ask

START_S = 900.0
MEMORY = 80 * 2**30
STAGED = layout_of("dp=4 tp=2 pp=2 zero=1 micro=1 acc=8")
SHARDED = layout_of("dp=16 zero=3 recompute=full")


def runs_of(asked: Question, *layouts: Layout) -> tuple[SmallerRun, ...]:
    return smaller_runs(asked.training, layouts, MEMORY, START_S)


def verification_of(
    asked: Question, found: Plan, bounds: Bounds, usd: float | None = 2.0
) -> Verification:
    costs = RunCosts(start_s=START_S, usd_per_gpu_hour=usd, memory_bytes=MEMORY)
    training = asked.training
    own = replace(training, runs=training.runs or OwnRuns.none(training.workload, 1.0))
    return verifying_runs(own, (found.best[0], *near_rivals(found.best, 0.16)), costs, bounds)


def test_runs_fill_nodes_and_keep_what_their_time_depends_on() -> None:
    asked = ask(world=16, global_batch=32)
    found = runs_of(asked, STAGED, SHARDED)
    assert len(found) > 20
    for run in found:
        like = SHARDED if run.layout.zero_stage == 3 else STAGED
        assert run.layout.world_size <= 4 or run.layout.world_size % 4 == 0
        assert run.nodes == -(-run.layout.world_size // 4)
        assert run.layout.world_size <= like.world_size
        assert run.layers <= 6
        assert run.layout.tensor_parallel == like.tensor_parallel
        assert (run.layout.micro_batch, run.layout.recompute) == (1, like.recompute)
        assert run.seconds == pytest.approx(START_S + 20 * run.step_s)
    costs = [run.nodes * run.seconds for run in found]
    assert costs == sorted(costs)
    assert any(run.layout == STAGED and run.layers == 6 for run in found)


def test_smaller_runs_fit_shard_and_keep_an_encoder() -> None:
    alone = list(runs_of(ask(), SHARDED, layout_of("dp=4 zero=1")))
    single = {run.layout.zero_stage for run in alone if run.layout.world_size == 1}
    assert single == {0}
    assert not smaller_runs(ask().training, [STAGED], 1e6, START_S)
    asked = ask()
    model = replace(asked.training.workload.architecture, encoder_layers=6)
    workload = replace(asked.training.workload, model=model)
    training: Training = replace(asked.training, workload=workload)
    found = smaller_runs(training, [STAGED], MEMORY, START_S)
    assert {(run.layers, run.layout.pipeline_parallel) for run in found} == {(6, 2)}


def test_measured_as_foretold_runs_leave_the_band_that_was_promised() -> None:
    asked = ask(world=16, global_batch=32)
    found = plan(asked)
    promised = verification_of(asked, found, Bounds(runs=2))
    assert promised.runs[-1].narrowing < 0.7 < promised.narrowing
    layouts = LayoutColumns.from_layouts([one.run.layout for one in promised.runs])
    seconds = np.array([one.run.step_s for one in promised.runs])
    none = OwnRuns.none(asked.training.workload, 1.0)
    own = replace(none, layouts=layouts, predicted_s_M=seconds, measured_s_M=seconds)
    after = plan(replace(asked, training=replace(asked.training, runs=own)))
    assert after.best[0].layout == found.best[0].layout
    assert after.best[0].narrowing == pytest.approx(promised.runs[-1].narrowing)
    again = verification_of(
        replace(asked, training=replace(asked.training, runs=own)), after, Bounds(runs=1)
    )
    assert again.narrowing == after.best[0].narrowing


def test_money_bounds_the_runs_and_without_a_price_there_is_none() -> None:
    asked = ask(world=16, global_batch=32)
    found = plan(asked)
    few = verification_of(asked, found, Bounds(usd=5.0))
    assert few.runs
    assert sum(one.usd or 0.0 for one in few.runs) <= 5.0
    poor = verification_of(asked, found, Bounds(usd=0.5))
    assert not poor.runs
    assert poor.cheapest_usd is not None
    assert poor.cheapest_usd > 0.5
    free = verification_of(asked, found, Bounds(runs=1), usd=None)
    assert [one.usd for one in free.runs] == [None]
