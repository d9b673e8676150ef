import pytest

from autoconf_launch.autotuner.mixed import (
    MachineKind,
    node_orders,
    placement,
    rotations,
    sub_clusters,
)
from autoconf_launch.autotuner.mixed.kinds import usd_per_hour
from autoconf_launch.core import ConfigError
from autoconf_launch.tuning_spaces import machine, parse_cluster

from .conftest import kind


def kind_of(count: int, usd: float | None = 1.0) -> MachineKind:
    return MachineKind(
        name="4xT4-16GB",
        machine=machine("T4", gpus_per_node=4),
        count=count,
        memory_bytes=15e9,
        usd_per_hour=usd,
    )


def test_parts_of_a_cluster_have_any_number_of_each_kind_but_none() -> None:
    found = sub_clusters([kind_of(1), kind_of(2)]).tolist()
    assert found == [[0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    assert len(sub_clusters([kind_of(8), kind_of(8)])) == 80
    with pytest.raises(ConfigError, match=r"has 12,166 parts .* fewer of them"):
        sub_clusters([kind_of(22), kind_of(22), kind_of(22)])


def test_a_part_costs_what_its_nodes_do() -> None:
    assert usd_per_hour([kind_of(3, 2.0), kind_of(1, 5.0)], (3, 1)) == 11.0
    kinds = [kind_of(3, 2.0), kind_of(1, None)]
    assert usd_per_hour(kinds, (3, 0)) == 6.0
    assert usd_per_hour(kinds, (3, 1)) is None


MIX = parse_cluster("1x4xA100-SXM-40GB+2x2xA10G-24GB")


def test_ranks_fill_the_used_nodes_in_the_order_of_their_kinds() -> None:
    assert placement(MIX, (1, 0, 1)) == (4, 5, 0, 1, 2, 3, 6, 7)
    assert placement(MIX, (1, 1)) == (4, 5, 6, 7)


def test_every_distinct_order_is_tried() -> None:
    kinds = [kind("A100-40GB"), kind("T4-16GB"), kind("A10G-24GB")]
    found = [tuple(order) for order in node_orders((1, 2, 1), kinds).tolist()]
    assert len(found) == len(set(found)) == 12


def test_many_nodes_are_tried_with_each_pair_of_ends() -> None:
    kinds = [kind("A100-40GB"), kind("T4-16GB")]
    found = {tuple(order) for order in node_orders((8, 8), kinds).tolist()}
    assert len(found) < 2000
    assert {(order[0], order[-1]) for order in found} == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert found >= {tuple(order) for order in rotations((8, 8)).tolist()}


@pytest.mark.parametrize("counts", [(3, 0), (0, 2)])
def test_nodes_of_one_kind_have_one_order(counts: tuple[int, int]) -> None:
    assert len(node_orders(counts, [kind("A100-40GB"), kind("T4-16GB")])) == 1
