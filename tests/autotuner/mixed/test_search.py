from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import memory_bytes
from autoconf_launch.autotuner.mixed import MIXED_DEGREES, MixedQuestion, mixed_plan, node_orders
from autoconf_launch.autotuner.mixed.places import place_stages
from autoconf_launch.autotuner.mixed.times import stage_seconds
from autoconf_launch.autotuner.planner import Planned

from ...rows import some
from ..builders import layouts
from .conftest import WORKLOAD, kind, rows_at_first


def one_row(question: MixedQuestion) -> Planned:
    return mixed_plan(replace(question, parts=((1, 2),))).best[0]


@pytest.fixture
def question() -> MixedQuestion:
    kinds = (kind("A100-40GB", count=1), kind("T4-16GB", count=2))
    degrees = replace(MIXED_DEGREES, pipeline_parallel=(3,), zero_stage=(0,))
    return MixedQuestion(workload=WORKLOAD, kinds=kinds, degrees=degrees)


def test_each_part_of_the_cluster_has_its_best_layout_and_slow_nodes_are_left_out(
    question: MixedQuestion,
) -> None:
    every = mixed_plan(replace(question, degrees=MIXED_DEGREES))
    counts = {row.counts for row in every.best}
    assert counts == {(0, 1), (0, 2), (1, 0), (1, 1), (1, 2)}
    seconds = [row.step_s for row in every.best]
    assert seconds == sorted(seconds)
    best = mixed_plan(replace(question, degrees=MIXED_DEGREES)).best[0]
    assert best.counts == (1, 0)


def test_a_row_says_what_lies_where_and_its_parts_add_up(question: MixedQuestion) -> None:
    row = one_row(question)
    layers = tuple(stage.layers for stage in row.stages)
    assert row.layout.pipeline_split == layers
    assert sum(layers) == 12
    assert sorted(row.order) == [0, 1, 1]
    assert [stage.kinds for stage in row.stages] == [(kind,) for kind in row.order]
    fast = row.order.index(0)
    assert layers[fast] == max(layers)
    assert row.usd_per_hour == 3.0
    assert sum(seconds for _, seconds in row.parts) == pytest.approx(row.step_s)


def test_each_stage_and_split_is_the_best_that_its_memory_holds(question: MixedQuestion) -> None:
    row = one_row(question)
    columns = layouts(replace(row.layout, pipeline_split=None))
    split = np.array([[stage.layers] for stage in row.stages])
    total = memory_bytes(columns, question.workload, np.arange(3)[:, None], split).total[:, 0]
    assert [stage.peak_bytes for stage in row.stages] == pytest.approx(total.tolist())
    slow, fast = question.kinds[1], question.kinds[0]
    need = max(stage.peak_bytes for stage in one_row(question).stages)
    tight = replace(fast, memory_bytes=0.8 * need)
    row = one_row(replace(question, kinds=(tight, slow)))
    for stage in row.stages:
        assert stage.peak_bytes <= stage.limit_bytes
    assert one_row(question).stages != row.stages
    row = one_row(question)
    lines = node_orders((1, 2), question.kinds)
    layout = replace(row.layout, pipeline_split=None)
    columns = layouts(layout)
    cuts = np.array(list(combinations(range(1, 12), 2)))
    splits = np.diff(np.hstack([np.zeros_like(cuts[:, :1]), cuts, 12 + 0 * cuts[:, :1]]), axis=1)
    places = place_stages(lines, question.kinds, stages=3, stage_ranks=4)
    every = []
    for place in range(len(lines)):
        here, same = places.take(np.array([place])), columns.take(np.zeros(len(splits), np.int64))
        rows = rows_at_first(same, here, question.workload, question.kinds)
        every.append(stage_seconds(rows).step_s(splits).min())
    assert row.step_s == pytest.approx(min(every))


def test_ranks_stay_inside_nodes_and_memory(question: MixedQuestion) -> None:
    kinds = (kind("A100-40GB", gpus=2), kind("T4-16GB", gpus=4))
    question = MixedQuestion(workload=WORKLOAD, kinds=kinds, parts=((1, 1),), most=100)
    assert {row.layout.tensor_parallel for row in mixed_plan(question).best} <= {1, 2}
    small = tuple(replace(kind, memory_bytes=1e9) for kind in question.kinds)
    assert mixed_plan(replace(question, kinds=small)).best == ()


def test_replicas_on_unlike_nodes_get_samples_by_their_speed() -> None:
    kinds = (kind("H100"), kind("A100-80GB"))
    degrees = replace(MIXED_DEGREES, pipeline_parallel=(1,), tensor_parallel=(1,), zero_stage=(1,))
    question = MixedQuestion(
        workload=replace(WORKLOAD, global_batch=64),
        kinds=kinds,
        degrees=degrees,
        parts=((1, 1),),
        most=8,
    )
    rows = mixed_plan(question).best
    samples = some(rows[0].layout.micro_batch_split)
    fast = rows[0].order.index(0) * 4
    assert samples[fast] > samples[4 - fast]
    assert sum(samples) * rows[0].layout.accumulation == 64
    even = [row for row in rows if row.layout.micro_batch_split is None]
    assert all(rows[0].step_s < row.step_s for row in even)
    assert sum(seconds for _, seconds in rows[0].parts) == pytest.approx(rows[0].step_s)
