import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.bracket import KNEE, Tried, next_micro_batch


def searched(
    values: list[int], fits: int, half: float, start: int | None = None
) -> tuple[list[int], int]:
    """Values in the order of their trials, and the best; throughput saturates like m/(m+half)."""
    tried: list[Tried] = []
    while (value := next_micro_batch(values, tried, predicted_largest=start)) is not None:
        speed = value / (value + half) if value <= fits else None
        tried.append(Tried(micro_batch=value, samples_per_s=speed))
        assert len(tried) <= len(values), "a value was tried twice"
    ran = [one for one in tried if one.samples_per_s]
    best = max(ran, key=lambda one: one.samples_per_s or 0.0, default=None)
    return [one.micro_batch for one in tried], best.micro_batch if best else 0


def test_it_starts_at_the_predicted_largest() -> None:
    assert next_micro_batch(range(1, 65), (), predicted_largest=24) == 24


def test_without_a_prediction_it_starts_at_the_top() -> None:
    assert next_micro_batch([1, 2, 4], ()) == 4


def test_what_ran_out_of_memory_is_halved() -> None:
    full = Tried(micro_batch=24, samples_per_s=None)
    assert next_micro_batch(range(1, 65), [full]) == 12


def test_nothing_is_left_when_the_smallest_does_not_fit() -> None:
    assert next_micro_batch([1, 2], [Tried(micro_batch=1, samples_per_s=None)]) is None


def test_a_first_value_that_fits_is_compared_with_its_half() -> None:
    assert next_micro_batch(range(1, 65), [Tried(micro_batch=24, samples_per_s=9.0)]) == 12


def test_past_the_knee_it_stops_though_memory_allows_more() -> None:
    flat = [Tried(micro_batch=m, samples_per_s=100 + 0.01 * m) for m in (8, 16)]
    assert next_micro_batch(range(1, 129), flat) is None


def test_below_the_knee_it_grows_beyond_the_prediction() -> None:
    rising = [Tried(micro_batch=8, samples_per_s=8.0), Tried(micro_batch=16, samples_per_s=14.0)]
    assert next_micro_batch(range(1, 129), rising) == 32


def test_the_edge_of_memory_is_bisected_by_values_that_are_no_powers_of_two() -> None:
    trials, best = searched(list(range(1, 65)), fits=27, half=200.0, start=16)
    assert best in (25, 26, 27)
    assert len(trials) <= 8


def test_a_throughput_that_falls_is_searched_downwards() -> None:
    falling = [Tried(micro_batch=8, samples_per_s=9.0), Tried(micro_batch=16, samples_per_s=5.0)]
    following = next_micro_batch(range(1, 65), falling)
    assert following is not None
    assert following < 8


@given(
    fits=st.integers(1, 64),
    half=st.floats(0.1, 300.0),
    start=st.none() | st.integers(1, 64),
)
def test_the_best_is_found_to_within_the_knee(fits: int, half: float, start: int | None) -> None:
    trials, best = searched(list(range(1, 65)), fits, half, start)
    assert best / (best + half) >= (1 - 2 * KNEE) * fits / (fits + half)
    assert len(trials) <= 14


@pytest.mark.parametrize("count", [2, 5])
def test_it_ends_when_every_value_was_tried(count: int) -> None:
    tried = [Tried(micro_batch=m, samples_per_s=math.sqrt(m)) for m in range(1, count + 1)]
    assert next_micro_batch(range(1, count + 1), tried) is None
