import pytest

from autoconf_launch.autotuner.mixed import node_orders, rotations

from .conftest import kind


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
