from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import Network
from autoconf_launch.autotuner.cost.step import runtime_exchange_s
from autoconf_launch.autotuner.space import CandidateTable
from autoconf_launch.core import (
    BlockSpec,
    Candidate,
    ClusterSpec,
    Device,
    Grade,
    Layout,
    ModelSpec,
    Node,
    Precision,
    Workload,
)

MODEL = ModelSpec(
    grade=Grade.MEASURED,
    blocks=(
        BlockSpec(name="block", count=4, parameters=20),
        BlockSpec(name="rest", parameters=20),
    ),
)
WORKLOAD = Workload(model=MODEL, precision=Precision.FP32)
BYTES = Network(latency_s=0.0, bytes_per_s=100.0, overlaps=False)
STARTS = Network(latency_s=1.0, bytes_per_s=1e30, overlaps=False)


def seconds(network: Network, *, busy_s: float = 0.0, **layout: Any) -> float:
    candidate = Candidate(layout=Layout(data_parallel=4, **layout))
    table = CandidateTable.from_candidates([candidate])
    return float(runtime_exchange_s(table, WORKLOAD, network, np.array([busy_s]))[0])


@pytest.mark.parametrize(
    ("stage", "passes"),
    # Weights once; gloo reduces in two passes, and scatters by a reduction.
    [(0, 2), (1, 3), (2, 2 * 2 + 1), (3, 2 * (2 + 2))],
)
def test_each_stage_sends_its_passes_over_the_weights(stage: int, passes: int) -> None:
    # 100 weights of 4 bytes on 4 ranks: 400 x 3/4 = 300 bytes, 3 s, for one pass.
    assert seconds(BYTES, zero_stage=stage, accumulation=2) == pytest.approx(3.0 * passes)


@pytest.mark.parametrize(
    ("stage", "started"),
    # One bucket; then broadcasts as long as 3 for each of 5 blocks; 4 units and the rest.
    [(0, 1), (1, 1 + 15), (2, 2 * 5 + 5), (3, 2 * 3 * 5)],
)
def test_each_collective_has_to_start(stage: int, started: int) -> None:
    assert seconds(STARTS, zero_stage=stage, accumulation=2) == pytest.approx(started)


def test_exchanges_hide_behind_backward_passes_and_kernels() -> None:
    assert seconds(BYTES, busy_s=3.0) == pytest.approx(6.0 - 2.0)
    gpu = replace(BYTES, overlaps=True)
    assert seconds(gpu, zero_stage=3, busy_s=100.0) < seconds(gpu, zero_stage=3)
    table = CandidateTable.from_candidates([Candidate(layout=Layout(zero_stage=3))])
    assert runtime_exchange_s(table, WORKLOAD, STARTS, np.zeros(1)).tolist() == [0.0]


def cluster(*counts: int, name: str = "cpu (x86_64)", **links: Any) -> ClusterSpec:
    nodes = [
        Node(host="h", devices=(Device(name=name, memory_bytes=1),) * count, **links)
        for count in counts
    ]
    return ClusterSpec(nodes=tuple(nodes))


def test_a_network_is_the_slowest_known_way_between_ranks() -> None:
    assert Network.of(cluster(2)) is None
    assert Network.of(cluster(1, link_bytes_per_s=5.0)) is None
    found = Network.of(cluster(2, 2, link_bytes_per_s=50.0, network_bytes_per_s=20.0))
    assert found == Network(latency_s=0.0, bytes_per_s=10.0, overlaps=False)
    both = [
        Network.of(cluster(2, name=name, link_bytes_per_s=1.0)) for name in ("cpu (arm)", "A100")
    ]
    assert [network.overlaps for network in both if network] == [False, True]
