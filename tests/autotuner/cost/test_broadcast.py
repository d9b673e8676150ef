import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.cost.memory import broadcast_sum


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=8))
def test_arrays_of_one_shape_are_added_in_their_order(numbers: list[float]) -> None:
    assert broadcast_sum([np.array([x]) for x in numbers]).tolist() == [sum(numbers)]


def test_unequal_shapes_broadcast() -> None:
    total = broadcast_sum([np.array([[1.0], [2.0]]), np.array([[10.0, 20.0]]), np.array(100.0)])
    assert total.tolist() == [[111.0, 121.0], [112.0, 122.0]]
