import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.core import (
    ConfigError,
    data_rank,
    divisors,
    external_data_parallel_degree,
    global_batch,
    pareto_front,
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


@given(st.integers(1, 3000))
def test_divisors_are_all_that_divide(number: int) -> None:
    assert divisors(number) == tuple(d for d in range(1, number + 1) if number % d == 0)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), max_size=30))
def test_the_front_has_the_first_of_each_that_no_other_beats(costs: list[tuple[int, int]]) -> None:
    def is_beaten(one: int) -> bool:
        first, second = costs[one]
        return any(
            a <= first and b <= second and (a, b, other) < (first, second, one)
            for other, (a, b) in enumerate(costs)
        )

    found = pareto_front(range(len(costs)), lambda one: costs[one])
    assert sorted(found) == [one for one in range(len(costs)) if not is_beaten(one)]
    assert [costs[one][0] for one in found] == sorted(costs[one][0] for one in found)
