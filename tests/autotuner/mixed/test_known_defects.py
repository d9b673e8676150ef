"""Defects of FASOP, one test for each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from autoconf_launch.autotuner.cost import Verdict
from autoconf_launch.autotuner.mixed import (
    MIXED_DEGREES,
    MixedQuestion,
    mixed_plan,
    node_orders,
    rotations,
)
from autoconf_launch.autotuner.mixed.partition import move_layers, split_layers
from autoconf_launch.autotuner.planner import Plan
from autoconf_launch.core import Degrees, Workload
from autoconf_launch.tuning_spaces import named_model

from ..builders import layout_of
from .conftest import WORKLOAD, kind
from .test_partition import all_splits, chains, schedule_price
from .test_times import layout, seconds


def whole_plan(workload: Workload, question: MixedQuestion, degrees: Degrees) -> Plan:
    """On all nodes, with only some degrees."""
    every = tuple(kind.count for kind in question.kinds)
    asked = replace(question, parts=(every,), degrees=MIXED_DEGREES.override(degrees))
    return mixed_plan(replace(asked, workload=workload))


def test_nodes_stand_in_all_orders_not_in_rotations_alone() -> None:
    kinds = (kind("A100-40GB", count=2), kind("A10G-24GB", count=3))
    both = {tuple(one) for one in node_orders((2, 3), kinds).tolist()}
    turned = {tuple(one) for one in rotations((2, 3)).tolist()}
    assert turned < both
    assert (len(both), len(turned)) == (10, 5)
    question = MixedQuestion(workload=WORKLOAD, kinds=kinds)
    pipelines = Degrees(pipeline_parallel=(5,), tensor_parallel=(1,))
    free = whole_plan(WORKLOAD, question, pipelines).best[0]
    bound = replace(question, order_rule=lambda counts, kinds: rotations(counts))
    assert free.step_s <= whole_plan(WORKLOAD, bound, pipelines).best[0].step_s


def test_kinds_are_known_by_all_that_nodes_are_in_any_number_with_any_count_of_gpus() -> None:
    kinds = (
        kind("A100-40GB", gpus=8),
        kind("A10G-24GB", gpus=4),
        kind("T4-16GB", gpus=4),
        kind("A10G-24GB", gpus=2),
    )
    row = whole_plan(WORKLOAD, MixedQuestion(workload=WORKLOAD, kinds=kinds), Degrees()).best[0]
    assert row.layout.world_size == 18
    assert sorted(row.order) == [0, 1, 2, 3]


def test_a_stage_over_one_and_a_half_nodes_has_both_kinds_and_the_slower_ones_pace() -> None:
    kinds = (kind("A100-40GB"), kind("A10G-24GB", count=2))
    question = MixedQuestion(workload=replace(WORKLOAD, global_batch=24), kinds=kinds)
    asked = replace(question, order_rule=lambda counts, kinds: np.array([[0, 1, 1]]))
    halves = Degrees(pipeline_parallel=(2,), tensor_parallel=(1,))
    row = whole_plan(asked.workload, asked, halves).best[0]
    assert [stage.kinds for stage in row.stages] == [(0, 1), (1,)]

    one = layout(data_parallel=4, pipeline_parallel=2)
    mixed = seconds(WORKLOAD, [*kinds], [1, 0], one).layer_s_RS[0]
    assert mixed[0] > mixed[1]
    across = layout_of("dp=6 pp=2 acc=4")
    paces = seconds(WORKLOAD, [*kinds], [0, 1, 1], across).layer_s_RS[0]
    assert paces[0] >= 0.999 * paces[1]


def test_each_stage_pays_for_the_sum_of_its_own_gradients() -> None:
    """A stage inside a node sums over its links, one across nodes over their cards."""
    kinds = (kind("A100-40GB", gpus=2), kind("A10G-24GB", gpus=4))
    one = layout_of("dp=4 pp=2 acc=4")
    found = seconds(WORKLOAD, [*kinds], [1, 0, 0], one)
    assert found.reduced_s_RS[0, 0] != found.reduced_s_RS[0, 1]
    layers = np.array([[6, 6]])
    sums = found.exchange_s(layers, found.busy_s(layers))[0]
    alone = replace(found, reduced_s_RS=found.reduced_s_RS[:, :1].repeat(2, axis=1))
    assert sums[1] != alone.exchange_s(layers, found.busy_s(layers))[0, 1]


def passed_to_and_fro(seconds: np.ndarray, split: list[int]) -> list[int]:
    """A layer goes from the slowest stage to the fastest one while the slowest gets faster."""
    while True:
        times = seconds * split
        slow, fast = int(times.argmax()), int(times.argmin())
        moved = [*split]
        moved[slow] -= 1
        moved[fast] += 1
        if moved[slow] < 1 or (seconds * moved).max() >= times.max():
            return split
        split = moved


def test_layers_are_those_of_the_best_split_not_of_exchanges_of_two_stages() -> None:
    layer = np.array([1.0, 1.9, 3.0])
    some = chains([[0.0, 0.0, 0.0]], [layer], [[9, 9, 9]], (9,), count=4)
    price = schedule_price(some)
    every = all_splits(9, 3)
    times = [float(price(np.zeros(1, np.int64), one[None])[0]) for one in every]
    layers, _ = split_layers(some, price)
    _, found = move_layers(some, price, layers, np.zeros(1, np.int64))
    assert found[0] == min(times)
    greedy = np.array([passed_to_and_fro(layer, [3, 3, 3])])
    assert found[0] < price(np.zeros(1, np.int64), greedy)[0]


def test_what_does_not_fit_is_no_row() -> None:
    workload = Workload(model=named_model("gpt2-xl"), sequence_length=1024, global_batch=64)
    kinds = (kind("A10G-24GB", count=1), kind("T4-16GB", count=2))
    found = mixed_plan(MixedQuestion(workload=workload, kinds=kinds, most=50))
    assert found.best
    assert found.safe < found.considered
    for row in found.best:
        assert row.verdict is not Verdict.NO
        assert all(stage.peak_bytes <= stage.limit_bytes for stage in row.stages)


def test_a_t5_pays_for_the_sum_of_its_tied_embeddings() -> None:
    workload = Workload(model=named_model("fasop-t5"), sequence_length=512, global_batch=128)
    kinds = (kind("A100-40GB"), kind("A10G-24GB", count=3))
    question = MixedQuestion(workload=workload, kinds=kinds)
    row = whole_plan(workload, question, Degrees(pipeline_parallel=(4,))).best[0]
    assert dict(row.parts)["embeddings"] > 0
    untied = replace(workload.architecture, tied_embeddings=False)
    free = whole_plan(replace(workload, model=untied), question, Degrees(pipeline_parallel=(4,)))
    assert dict(free.best[0].parts)["embeddings"] == 0


def test_no_stage_of_a_t5_has_layers_of_both_halves() -> None:
    model = replace(named_model("fasop-t5"), encoder_layers=8, layers=4)
    workload = Workload(model=model, sequence_length=512, global_batch=32)
    kinds = (kind("A100-40GB"), kind("A10G-24GB", count=2))
    question = MixedQuestion(workload=workload, kinds=kinds, most=20)
    found = whole_plan(workload, question, Degrees(pipeline_parallel=(3, 6, 12)))
    assert found.best
    for row in found.best:
        ends = np.cumsum([stage.layers for stage in row.stages])
        assert 8 in ends
        assert ends[-1] == 12
