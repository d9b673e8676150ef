import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import estimate
from autoconf_launch.autotuner.mixed import MachineKind
from autoconf_launch.autotuner.mixed.places import place_stages
from autoconf_launch.autotuner.mixed.times import StageSeconds, stage_seconds
from autoconf_launch.core import FrozenPasses, Layout, OperationCost, Workload

from ..builders import layouts
from .conftest import WORKLOAD, kind, rows_at_first


def seconds(
    workload: Workload, kinds: list[MachineKind], order: list[int], layout: Layout
) -> StageSeconds:
    """Seconds of a layout on nodes in one order."""
    places = place_stages(
        np.array([order]),
        kinds,
        stages=layout.pipeline_parallel,
        stage_ranks=layout.world_size // layout.pipeline_parallel,
    )
    columns = layouts(layout)
    return stage_seconds(rows_at_first(columns, places, workload, kinds))


def layout(**values: Any) -> Layout:
    """A layout of a global batch of 16."""
    made = Layout(**values)
    return replace(made, accumulation=16 // made.data_parallel // made.micro_batch)


EQUAL = [
    {"data_parallel": 16},
    {"data_parallel": 16, "zero_stage": 3},
    {"data_parallel": 4, "pipeline_parallel": 4},
    {"data_parallel": 2, "tensor_parallel": 2, "pipeline_parallel": 4, "zero_stage": 1},
    {"data_parallel": 4, "tensor_parallel": 4, "micro_batch": 2},
]


@pytest.mark.parametrize("values", EQUAL)
@pytest.mark.parametrize("gpu", ["A10G-24GB", "T4-16GB"])
@pytest.mark.parametrize("flops", [0.0, 1e13], ids=["alone", "beside a teacher"])
def test_equal_nodes_take_what_plan_says_of_them(
    gpu: str, values: dict[str, Any], flops: float
) -> None:
    workload = WORKLOAD
    operation = OperationCost(flops=flops, moved_bytes=10**8)
    passes = FrozenPasses(operations=(operation,), tokens=workload.sequence_length)
    workload = replace(workload, frozen_passes=passes if flops else None)
    nodes, one = kind(gpu, count=4), layout(**values)
    planned = estimate(layouts(one), workload, nodes.machine).step_s_C[0]
    even = np.full((1, one.pipeline_parallel), 12 // one.pipeline_parallel)
    found = seconds(workload, [nodes], [0, 0, 0, 0], one).step_s(even)[0]
    assert found == pytest.approx(planned, rel=0.02)


def test_equal_nodes_of_any_network_take_what_plan_says_of_them() -> None:
    """Random nodes, networks and layouts. Where nodes cut stages, plan takes the worst stage."""
    draw, whole = random.Random(0), 0
    for _ in range(80):
        gpus, count = draw.choice([2, 4, 6, 8]), draw.choice([2, 3, 4])
        node = kind(draw.choice(["A10G-24GB", "A100-80GB"]), gpus=gpus)
        slow = replace(node.machine, node_network_bytes_per_s=10 ** draw.uniform(8.0, 10.5))
        stages = draw.choice([n for n in (1, 2, 3, 4, 6, 12) if gpus * count % n == 0])
        ranks = gpus * count // stages
        tensor = draw.choice([n for n in (1, 2, 4, 8) if gpus % n == 0 and ranks % n == 0])
        one = Layout(
            data_parallel=ranks // tensor,
            tensor_parallel=tensor,
            pipeline_parallel=stages,
            micro_batch=draw.choice([1, 2, 4]),
            accumulation=draw.choice([1, 2, 8, 16]),
            zero_stage=draw.choice([0, 1, 2]),
        )
        work = replace(WORKLOAD, global_batch=one.global_batch)
        columns = layouts(one)
        planned = float(estimate(columns, work, slow).step_s_C[0])
        even = np.full((1, stages), 12 // stages)
        nodes = [replace(node, machine=slow)]
        mixed = float(seconds(work, nodes, [0] * count, one).step_s(even)[0])
        assert planned > 0.94 * mixed, one
        if ranks % gpus == 0 or gpus % ranks == 0:
            whole += 1
            assert planned < 1.06 * mixed, one
    assert whole > 40


def test_a_step_on_a_slow_card_takes_what_the_card_sends() -> None:
    """Two nodes with two stages each: one border crosses, there and back at once."""
    nodes = kind("A10G-24GB")
    card = 1e6
    slow = replace(nodes, machine=replace(nodes.machine, node_network_bytes_per_s=card))
    one = layout(data_parallel=2, pipeline_parallel=4)
    found = seconds(WORKLOAD, [slow], [0, 0], one)
    sent = 8 * 2 * 1024 * 1024 * 2 / (card * nodes.machine.physics.network_fraction)
    assert found.parts_s(np.full((1, 4), 3))[0][0] == pytest.approx(sent, rel=0.2)
    assert found.cards_s_R[0] == pytest.approx(sent)


def test_a_stage_goes_at_the_pace_of_its_slowest_rank() -> None:
    kinds = [kind("A100-40GB"), kind("T4-16GB")]
    one = layout(data_parallel=4, pipeline_parallel=2)
    both = seconds(WORKLOAD, kinds, [0, 1], one).layer_s_RS[0]
    mixed = seconds(WORKLOAD, kinds, [0, 1], layout(data_parallel=8)).layer_s_RS[0]
    assert both[1] > 2 * both[0]
    assert mixed[0] == pytest.approx(both[1])


def test_stages_pay_for_the_network_only_across_nodes() -> None:
    nodes = kind("A10G-24GB")
    slow = replace(nodes, machine=replace(nodes.machine, node_network_bytes_per_s=1e8))
    one = layout(data_parallel=4, pipeline_parallel=2)
    fast_s, slow_s = (seconds(WORKLOAD, [x], [0, 0], one) for x in (nodes, slow))
    np.testing.assert_array_equal(fast_s.reduced_s_RS, slow_s.reduced_s_RS)
    assert slow_s.fill_s_R > fast_s.fill_s_R
    fast = kind("A10G-24GB")
    slow = replace(fast, machine=replace(fast.machine, node_network_bytes_per_s=1e9))
    one = layout(data_parallel=8)
    rates = [
        seconds(WORKLOAD, [fast, slow], order, one).reduced_s_RS[0, 0]
        for order in ([0, 0], [0, 1], [1, 0], [1, 1])
    ]
    assert rates[1] == rates[2] == rates[3] > rates[0]


def test_rings_of_two_stages_divide_the_card_of_a_node() -> None:
    """The middle of three nodes with four GPUs each has half of both stages."""
    nodes = kind("A10G-24GB")
    nodes = replace(nodes, machine=replace(nodes.machine, node_network_bytes_per_s=1e9))
    work = replace(WORKLOAD, global_batch=24)
    two = seconds(work, [nodes], [0, 0, 0], Layout(data_parallel=6, pipeline_parallel=2))
    ring = 2 * 5 / 6
    card = nodes.machine.node_network_bytes_per_s * nodes.machine.physics.network_fraction
    np.testing.assert_allclose(two.reduced_s_RS[0], 2 * ring * 2 / card)


def test_late_stages_sum_their_gradients_while_the_first_ones_compute() -> None:
    """The first stage inside a node, the others across a slow card."""
    nodes = [kind("A10G-24GB", gpus=4), kind("A10G-24GB", gpus=2)]
    slow = replace(nodes[1], machine=replace(nodes[1].machine, node_network_bytes_per_s=2e8))
    one = Layout(data_parallel=4, pipeline_parallel=2, accumulation=4)
    late = seconds(WORKLOAD, [nodes[0], slow], [0, 1, 1], one)
    split = np.array([[6, 6]])
    sums = late.exchange_s(split, late.busy_s(split))[0]
    rest = late.parts_s(split)[1][0] - late.after_s_R[0] - late.host_s_R[0]
    first_backward = (late.busy_s(split) * 2 / 3)[0, 0]
    assert sums[1] > sums[0]
    assert rest == pytest.approx(max(sums[0], sums[1] - first_backward), rel=0.05)


def test_tied_embeddings_of_the_ends_are_summed() -> None:
    nodes, one = kind("A10G-24GB"), layout(data_parallel=4, pipeline_parallel=2)
    loose = replace(WORKLOAD, model=replace(WORKLOAD.architecture, tied_embeddings=False))
    tied_s, loose_s = (
        seconds(work, [nodes], [0, 0], one).after_s_R[0] for work in (WORKLOAD, loose)
    )
    assert loose_s == 0.0
    assert tied_s > 1e-3
