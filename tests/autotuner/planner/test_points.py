"""The layout of each point, besides all layouts that the planner ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.planner import (
    PLAN_RULES,
    Planned,
    PointQuestion,
    Points,
    plan,
    points,
)
from autoconf_launch.autotuner.planner.best_points import predicted_chance_to_fit, risked_s
from autoconf_launch.core import Degrees, Layout, Offload

from .conftest import ask

GB = 2**30
TIGHT = 2.1 * GB
DEGREES = Degrees(zero_stage=(0, 1), offload=(Offload.NONE,))


def point_question(memory_bytes: float = 80 * GB, **changes: Any) -> PointQuestion:
    apart = changes.pop("are_recomputed_apart", False)
    question = ask(degrees=DEGREES, **changes)
    return PointQuestion(
        training=question.training,
        world=question.world,
        memory_bytes=memory_bytes,
        degrees=question.degrees,
        rules=PLAN_RULES,
        are_recomputed_apart=apart,
    )


def point(layout: Layout) -> tuple[int, ...]:
    return (
        layout.tensor_parallel,
        layout.pipeline_parallel,
        layout.context_parallel,
        layout.expert_parallel,
        layout.micro_batch,
    )


def layouts(found: Points) -> list[Layout]:
    assert found.rows is not None
    return list(found.rows.layouts())


def best_layouts(memory_bytes: float = 80 * GB, **changes: Any) -> tuple[Planned, ...]:
    return plan(ask(degrees=DEGREES, most=None, memory_bytes=memory_bytes, **changes)).best


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("memory_gb", [2.1, 80.0])
def test_each_point_of_the_planner_stands_once(sparse: bool, memory_gb: float) -> None:
    found = [point(one) for one in layouts(points(point_question(memory_gb * GB, sparse=sparse)))]
    every = {point(one.layout) for one in best_layouts(memory_gb * GB, sparse=sparse)}
    assert len(found) == len(set(found))
    assert set(found) == every


def test_a_point_has_the_best_of_its_layouts() -> None:
    found = points(point_question(TIGHT))
    best: dict[tuple[int, ...], float] = {}
    for one in best_layouts(TIGHT):
        chance = predicted_chance_to_fit(np.array(one.peak_bytes), TIGHT)
        seconds = float(risked_s(np.array(one.step_s), chance))
        key = point(one.layout)
        best[key] = min(best.get(key, np.inf), seconds)
    order = risked_s(found.step_s_P, found.chance_P)
    for layout, seconds in zip(layouts(found), order.tolist(), strict=True):
        assert seconds == pytest.approx(best[point(layout)], rel=1e-9)
    assert order.tolist() == sorted(order.tolist())


def test_points_stand_apart_by_recomputation_and_count_what_was_left_out() -> None:
    together = points(point_question())
    apart = points(point_question(are_recomputed_apart=True))
    kinds = {(point(one), one.recompute) for one in layouts(apart)}
    assert len(kinds) > len(layouts(together))
    assert {kind[0] for kind in kinds} == {point(one) for one in layouts(together)}
    question = point_question(TIGHT)
    whole = plan(ask(degrees=DEGREES, memory_bytes=TIGHT))
    found = points(question)
    assert found.considered == whole.considered
    assert dict(found.dropped) == dict(whole.rejected)
    found = points(point_question(1e6))
    assert found.rows is None
    assert len(found.step_s_P) == 0
    assert "memory" in dict(found.dropped)


@given(st.floats(1e8, 1e12), st.floats(1.01, 2.0))
def test_a_larger_layout_has_a_smaller_chance(peak: float, factor: float) -> None:
    limit = 80 * GB
    chances = predicted_chance_to_fit(np.array([peak, factor * peak]), limit)
    assert 0 <= chances[1] <= chances[0] <= 1
    assert predicted_chance_to_fit(np.array([limit]), limit)[0] == pytest.approx(0.5)


@given(st.floats(1e-3, 1e3))
def test_an_even_chance_weighs_as_much_as_five_percent_of_time(step_s: float) -> None:
    sure, even = risked_s(np.array([step_s, step_s]), np.array([1.0, 0.5])).tolist()
    assert sure == pytest.approx(step_s)
    assert even / sure == pytest.approx(1.055, abs=0.005)
