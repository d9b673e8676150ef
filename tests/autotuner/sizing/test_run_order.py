"""The order of a search's runs: the planner's first, then what may well be the fastest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.cost import LayoutColumns
from autoconf_launch.autotuner.planner import Points, Training
from autoconf_launch.autotuner.sizing import run_order
from autoconf_launch.autotuner.sizing import search_space as module
from autoconf_launch.autotuner.sizing.search_space import error_covariance, plausible_order
from autoconf_launch.autotuner.space import Floats
from autoconf_launch.core import Architecture, Experts, Layout
from autoconf_launch.launcher.estimates import usual_training
from autoconf_launch.tuning_spaces import machine

from ..builders import layout_of
from .expected import model

OWN = 0.03
PLAIN = layout_of("dp=8 tp=2 micro=2")
SLOWDOWNS = st.lists(st.floats(0, 2), min_size=1, max_size=12).map(sorted)


def alike(kinds: list[int], shared: float = 0.1) -> Floats:
    """Covariance of errors that layouts of one kind mostly share."""
    same = np.equal.outer(kinds, kinds)
    return np.asarray(shared**2 * same + OWN**2 * np.eye(len(kinds)))


def order(slower: list[float], covariance: Floats, chance: list[float] | None = None) -> list[int]:
    chances = np.array(chance or [1.0] * len(slower))
    found: list[int] = plausible_order(np.log1p(slower), chances, covariance).tolist()
    return found


def architecture(experts: int = 0) -> Architecture:
    plain = model("gpt3", 5).architecture
    if not experts:
        return plain
    return replace(plain, experts=Experts(count=experts, per_token=2, ffn=plain.ffn))


def training() -> Training:
    return usual_training(architecture(), 2048, machine("A100-SXM-80GB"))


def find(layouts: list[Layout], slower: list[float]) -> Points:
    count = len(layouts)
    return Points(
        rows=LayoutColumns.from_layouts(layouts),
        step_s_P=1.0 + np.array(slower),
        peak_bytes_P=np.full(count, 1e9),
        chance_P=np.ones(count),
        considered=count,
        dropped=(),
    )


@given(SLOWDOWNS, st.data())
def test_every_point_stands_once_and_the_first_stays_the_first(
    slower: list[float], data: st.DataObject
) -> None:
    count = len(slower)
    kinds = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    chance = data.draw(st.lists(st.floats(0, 1), min_size=count, max_size=count))
    numbers = order(slower, alike(kinds), chance)
    assert sorted(numbers) == list(range(count))
    assert numbers[0] == 0


@given(SLOWDOWNS)
def test_points_of_one_kind_stand_as_predicted(slower: list[float]) -> None:
    assert order(slower, alike([0] * len(slower))) == list(range(len(slower)))


def test_likeness_and_chance_to_fit_decide_what_comes_next() -> None:
    assert order([0.0, 0.05, 0.08], alike([0, 0, 1])) == [0, 2, 1]
    assert order([0.0, 0.05, 0.5], alike([0, 0, 1])) == [0, 1, 2]
    assert order([0.0, 0.1, 0.1], alike([0, 1, 2]), [1.0, 0.5, 1.0]) == [0, 2, 1]
    # 1 and 2 are alike; whether 2 comes before 3 hangs on whether 1 fits.
    slower, covariance = [0.0, 0.02, 0.09, 0.1], alike([0, 1, 1, 2])
    assert order(slower, covariance, [1.0, 1.0, 1.0, 1.0]).index(2) == 3
    assert order(slower, covariance, [1.0, 0.1, 1.0, 1.0]).index(2) < 3
    near, far = replace(PLAIN, micro_batch=4), replace(PLAIN, tensor_parallel=8, data_parallel=2)
    rows = LayoutColumns.from_layouts([PLAIN, near, far])
    covariance = error_covariance(rows, architecture())
    assert covariance[0, 1] > covariance[0, 2] > 0
    assert np.linalg.eigvalsh(covariance).min() > 0
    layouts = [replace(PLAIN, expert_parallel=degree) for degree in (1, 4, 8)]
    rows = LayoutColumns.from_layouts(layouts)
    covariance = error_covariance(rows, architecture(experts=8))
    assert covariance[1, 2] > 2 * covariance[0, 1]


def test_tensor_ranks_on_several_nodes_come_last_unless_they_are_the_best() -> None:
    far = replace(PLAIN, tensor_parallel=16, data_parallel=1)
    near = replace(PLAIN, tensor_parallel=8, data_parallel=2)
    numbers = run_order(find([PLAIN, far, near], [0.0, 0.01, 0.9]), training())
    assert numbers.tolist() == [0, 2, 1]
    farther = replace(far, tensor_parallel=32)
    numbers = run_order(find([far, farther, PLAIN], [0.0, 0.01, 0.9]), training())
    assert numbers.tolist() == [0, 1, 2]
    none = np.zeros(0)
    empty = Points(
        rows=None, step_s_P=none, peak_bytes_P=none, chance_P=none, considered=0, dropped=()
    )
    assert run_order(empty, training()).tolist() == []


def test_beyond_the_first_thousand_the_planner_s_order_stands(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layouts = [replace(PLAIN, micro_batch=size) for size in (1, 2, 4, 8, 16)]
    layouts[2] = replace(PLAIN, tensor_parallel=8, data_parallel=2)
    points = find(layouts, [0.0, 0.05, 0.06, 0.07, 0.08])
    assert run_order(points, training()).tolist()[:2] == [0, 2]
    monkeypatch.setattr(module, "_MOST", 2)
    assert run_order(points, training()).tolist() == [0, 1, 2, 3, 4]
