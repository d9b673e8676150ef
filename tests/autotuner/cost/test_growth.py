from dataclasses import replace

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import Group, Machine, estimate, ring_s
from autoconf_launch.core import Software, UpdatedWeights, Workload
from autoconf_launch.tuning_spaces import fabric, machine, named_model

from ..builders import layouts

H100 = machine("H100-SXM-80GB")
ROCE = machine("A100-SXM-80GB", network_bytes_per_s=50e9, fabric_name="roce")
LLAMA = Workload(model=named_model("llama3-8b"), sequence_length=8192)
SHARDED = "zero=1 tp={0} dp={1} micro={0} acc=4"


def step_s(gpus: int, workload: Workload, on: Machine, tensor: int = 1) -> float:
    columns = layouts(SHARDED.format(tensor, gpus // tensor))
    return float(estimate(columns, workload, on).step_s_C[0])


def sent_by(way: UpdatedWeights) -> Workload:
    return replace(LLAMA, software=Software(updated_weights=way))


def test_a_network_that_blocks_nothing_adds_one_to_three_percent_at_2048_gpus() -> None:
    growth = [step_s(gpus, LLAMA, H100) / step_s(8, LLAMA, H100) - 1 for gpus in (128, 2048)]
    assert 0.005 < growth[0] < 0.01 < growth[1] < 0.03


def test_weights_that_their_owners_broadcast_cost_more_with_each_node() -> None:
    overlapped, gathered, broadcast, inside = (
        np.array([step_s(gpus, sent_by(way), ROCE) for gpus in (8, 64, 512)])
        for way in UpdatedWeights
    )
    assert (overlapped < gathered).all()
    assert (gathered < broadcast).all()
    assert (inside[1:] < gathered[1:]).all()
    # Nodes hardly matter to a gather of one buffer, and broadcasts of tensors pass all ranks.
    extra = broadcast - gathered
    assert extra[2] > 5 * extra[1] > 25 * extra[0]


def test_a_tensor_degree_of_two_pays_for_broadcasts_on_many_nodes_only() -> None:
    work = sent_by(UpdatedWeights.BROADCAST)
    assert step_s(8, work, ROCE) < step_s(8, work, ROCE, tensor=2)
    assert step_s(1024, work, ROCE) > step_s(1024, work, ROCE, tensor=2)


@pytest.mark.parametrize(("stride", "slower"), [(8, 1.0), (2, 2.0)])
def test_oversubscription_slows_only_rings_that_leave_their_leaf(
    stride: int, slower: float
) -> None:
    group = Group(np.array([64]), np.array([stride]))
    half = replace(H100, fabric=fabric("oversubscribed 2:1"))
    size = np.array([1e11])
    both = [ring_s(on, group, size)[0] for on in (half, H100)]
    assert both[0] / both[1] == pytest.approx(slower, rel=0.01)
