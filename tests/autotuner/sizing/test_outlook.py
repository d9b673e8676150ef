"""Our planner's days and costs, with their assumptions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.planner import Limits, Question, plan
from autoconf_launch.autotuner.sizing import (
    WHY,
    Achieved,
    Goodput,
    GpuPrice,
    Outlook,
    SpeedBand,
    Task,
    achieved_speed,
    gpus_for_days,
    outlook,
    search_rules,
    size_for_days,
    with_assumption,
)
from autoconf_launch.autotuner.sizing.forecast import sensitivities
from autoconf_launch.core import ConfigError, Degrees, Offload
from autoconf_launch.launcher.estimates import usual_training
from autoconf_launch.tuning_spaces import machine, usable_bytes

from ...rows import some
from .expected import model

_A100 = "A100-SXM-80GB"


BAND = SpeedBand(slowest=0.8, fastest=1.25, source="made up")


def gpt(nodes: int, size_b: float = 5, **changes: Any) -> Achieved:
    return some(speed(nodes, size_b, **changes))


def speed(nodes: int, size_b: float = 5, **changes: Any) -> Achieved | None:
    chosen = model("gpt3", size_b)
    task = Task(
        training=usual_training(chosen.architecture, 2048, machine(_A100)),
        nodes=nodes,
        memory_bytes=usable_bytes(_A100),
        global_batch=2048,
        is_batch_given=False,
        active_parameters=chosen.active_count,
    )
    return achieved_speed(replace(task, **changes))


def look(usd: float | None = 3.0) -> Outlook:
    done = gpt(16)
    rate = GpuPrice(usd_per_gpu_hour=usd, source="as given")
    return outlook(done, 300, 128, Goodput(), rate, BAND)


def test_the_layout_uses_all_gpus_surely_fits_and_has_even_stages() -> None:
    done = gpt(128, 175)
    assert done.layout.world_size == 1024
    assert done.peak_bytes < 0.95 * usable_bytes(_A100)
    done = gpt(120, 175, memory_bytes=usable_bytes("A100-SXM-40GB"))
    stages = done.layout.pipeline_parallel
    assert 96 % stages == 0 or 98 % stages == 0
    assert speed(1, 175) is None


def test_it_is_the_fastest_one_that_a_search_would_run_and_that_surely_fits() -> None:
    done = gpt(2, is_batch_given=True)
    chosen = model("gpt3", 5)
    degrees = Degrees(zero_stage=(0, 1), offload=(Offload.NONE,))
    training = usual_training(chosen.architecture, 2048, machine(_A100))
    question = Question(
        training=replace(training, workload=replace(training.workload, global_batch=2048)),
        world=16,
        limits=Limits(memory_bytes=usable_bytes(_A100)),
        degrees=degrees,
        most=1,
        rules=search_rules(8, degrees),
    )
    best = some(plan(question).surely)
    assert (done.layout, done.step_s) == (best.layout, best.step_s)


def test_a_batch_stays_if_it_was_given_and_is_taken_near_if_no_layout_has_it() -> None:
    done = gpt(20, global_batch=2047)
    assert done.is_batch_changed
    assert done.layout.global_batch == pytest.approx(2047, rel=0.1)
    done = gpt(24, is_batch_given=True)
    assert done.layout.global_batch == 2048
    assert not done.is_batch_changed
    given, free = gpt(24, is_batch_given=True), gpt(24)
    assert free.is_batch_changed
    assert free.tokens_per_s > 1.05 * given.tokens_per_s


@pytest.mark.parametrize("nodes", [3, 5, 8, 13])
@pytest.mark.parametrize("batch", [1000, 2047, 2048])
def test_a_micro_batch_is_a_power_of_two_that_divides_the_batch_or_leads_by_the_band(
    nodes: int, batch: int
) -> None:
    free = gpt(nodes, 13, global_batch=batch)
    done = gpt(nodes, 13, global_batch=batch, slowest=BAND.slowest)
    micro = done.layout.micro_batch
    if micro & (micro - 1) or batch % micro:
        assert done.layout == free.layout
    else:
        assert done.tokens_per_s >= BAND.slowest * free.tokens_per_s


def test_odd_micro_batches_win_by_more_than_the_band_and_losses_have_reasons() -> None:
    free, held, certain = (gpt(19, 5, slowest=slowest) for slowest in (None, 0.8, 0.999))
    assert (free.layout.micro_batch, held.layout.micro_batch) == (13, 1)
    assert certain.layout == free.layout
    found = sensitivities(Goodput(), 1024, 10.0)
    assert {one.name for one in found} == set(WHY)
    moved = [abs(one.days_at_double - one.days_at_half) for one in found]
    assert moved == sorted(moved, reverse=True)
    none = replace(Goodput(), checkpoint_s=0.0, evaluation_share=0.0, other_share=0.0)
    assert replace(none, gpu_hours_between_failures=1e12).share(1) == pytest.approx(1.0)


def test_days_lie_in_their_band_and_cost_their_price() -> None:
    found = look()
    assert found.days_low < found.days < found.days_high
    assert found.step_days < found.days
    assert found.usd == pytest.approx(found.days * 24 * 128 * 3.0)
    assert look(None).usd is None


@given(st.integers(1, 1 << 19))
def test_goodput_is_a_share_that_falls_with_more_gpus(gpus: int) -> None:
    assert 0 < Goodput().share(2 * gpus) < Goodput().share(gpus) < 1


@pytest.mark.parametrize(("name", "value"), [("restart", 1.0), ("other_share", 2.0)])
def test_a_wrong_assumption_is_refused(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match="Assumption"):
        with_assumption(Goodput(), name, value)


@given(st.floats(0.1, 100), st.floats(0.5, 50))
def test_the_size_for_some_days_takes_nearly_those(start: float, days: float) -> None:
    size = some(size_for_days(start, days, lambda size_b: 0.7 * size_b))
    assert 0.7 * size <= days + 0.01
    assert 0.7 * size == pytest.approx(days, rel=0.06, abs=0.02)


@given(st.integers(1, 9), st.floats(1.0, 1e5), st.integers(1, 40))
def test_the_fewest_gpus_for_some_days_are_found(each: int, gpu_days: float, room: int) -> None:
    def days_of(gpus: int) -> float | None:
        return gpu_days / gpus if gpus >= room else None

    counts = [*range(1, each + 1), *range(2 * each, 60_000, each)]
    expected = next(gpus for gpus in counts if (days_of(gpus) or 1e9) <= 3.0)
    assert gpus_for_days(each, 3.0, days_of) == expected


def test_where_more_gpus_bring_it_no_nearer_there_is_no_number() -> None:
    asked: list[int] = []

    def days_of(gpus: int) -> float:
        asked.append(gpus)
        return max(10.0, 100.0 / gpus)

    assert gpus_for_days(8, 9.0, days_of) is None
    assert max(asked) < 1000
    assert gpus_for_days(8, 9.0, lambda gpus: None) is None
