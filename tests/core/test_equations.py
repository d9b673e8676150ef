import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import (
    ConfigError,
    data_rank,
    external_data_parallel_degree,
    global_batch,
)

COUNTS = st.integers(1, 64)


@given(COUNTS, COUNTS, COUNTS, st.integers(1, 8))
def test_mp_size_divides_the_batch_equation_of_a_foreign_script(
    micro: int, accumulation: int, ranks: int, mp_size: int
) -> None:
    degree = external_data_parallel_degree(ranks * mp_size, mp_size)
    batch = global_batch(micro_batch=micro, accumulation=accumulation, data_parallel=degree)
    assert batch == micro * accumulation * ranks * mp_size // mp_size


def test_mp_size_must_divide_the_ranks() -> None:
    with pytest.raises(ConfigError, match=r"autotuning.mp_size is 3, but must divide the 8 ranks"):
        external_data_parallel_degree(8, 3)


@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 4), st.integers(1, 4))
def test_each_model_copy_loads_one_share_and_all_shares_are_loaded(
    pipeline: int, data: int, context: int, tensor: int
) -> None:
    ranks = range(pipeline * data * context * tensor)
    shares = [
        data_rank(rank, data_parallel=data, tensor=tensor, context=context) for rank in ranks
    ]
    assert all(shares.count(share) == pipeline * context * tensor for share in range(data))
    assert shares[: context * tensor] == [0] * (context * tensor)
