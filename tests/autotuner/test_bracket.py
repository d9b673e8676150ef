import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.bracket import KNEE, Tried, next_micro_batch, speed_bounds


def searched(
    values: list[int], fits: int, half: float, start: int | None = None
) -> tuple[list[int], int]:
    """Values in the order of their trials, and the best; throughput saturates like m/(m+half)."""
    tried: list[Tried] = []
    while (value := next_micro_batch(values, tried, start=start)) is not None:
        speed = value / (value + half) if value <= fits else None
        tried.append(Tried(micro_batch=value, speed=speed))
        assert len(tried) <= len(values), "a value was tried twice"
    ran = [one for one in tried if one.speed]
    best = max(ran, key=lambda one: one.speed or 0.0, default=None)
    return [one.micro_batch for one in tried], best.micro_batch if best else 0


def test_it_starts_at_the_predicted_largest() -> None:
    assert next_micro_batch(range(1, 65), (), start=24) == 24


def test_where_nothing_is_known_it_starts_in_the_middle() -> None:
    assert next_micro_batch([1, 2, 4, 8, 16], ()) == 4


def test_what_ran_out_of_memory_is_halved() -> None:
    full = Tried(micro_batch=24, speed=None)
    assert next_micro_batch(range(1, 65), [full]) == 12


def test_nothing_is_left_when_the_smallest_does_not_fit() -> None:
    assert next_micro_batch([1, 2], [Tried(micro_batch=1, speed=None)]) is None


def test_the_largest_that_was_thought_to_fit_is_compared_with_its_half() -> None:
    assert next_micro_batch(range(1, 65), [Tried(micro_batch=24, speed=9.0)], start=24) == 12


def test_from_a_small_one_that_ran_it_goes_to_the_largest_that_should_fit() -> None:
    assert next_micro_batch(range(1, 65), [Tried(micro_batch=2, speed=9.0)], start=24) == 24


def test_where_nothing_speaks_against_it_the_next_one_is_twice_as_large() -> None:
    assert next_micro_batch(range(1, 65), [Tried(micro_batch=4, speed=9.0)]) == 8


def test_between_one_that_ran_and_one_that_was_full_it_bisects() -> None:
    tried = [Tried(micro_batch=4, speed=9.0), Tried(micro_batch=12, speed=None)]
    assert next_micro_batch(range(1, 65), tried) == 8


def test_past_the_knee_it_stops_though_memory_allows_more() -> None:
    flat = [Tried(micro_batch=m, speed=100 + 0.01 * m) for m in (8, 16)]
    assert next_micro_batch(range(1, 129), flat) is None


@pytest.mark.parametrize(("speed", "following"), [(14.0, 64), (10.0, 32)])
def test_below_the_knee_it_goes_up_the_faster_the_less_the_curve_has_bent(
    speed: float, following: int
) -> None:
    rising = [Tried(micro_batch=8, speed=8.0), Tried(micro_batch=16, speed=speed)]
    assert next_micro_batch(range(1, 129), rising, start=16) == following


def test_a_bound_is_on_the_line_through_the_values_beside_it() -> None:
    rising = [Tried(micro_batch=m, speed=s) for m, s in ((1, 1.0), (2, 2.0), (8, 4.0))]
    bounds = speed_bounds(range(1, 17), rising)
    assert bounds[16] == pytest.approx(math.log(4.0 * math.sqrt(2.0)))


def test_nothing_bounds_a_value_beside_the_only_one_that_ran() -> None:
    assert speed_bounds([1, 2], [Tried(micro_batch=1, speed=1.0)]) == {2: math.inf}


def test_a_wide_gap_between_two_that_ran_is_looked_into() -> None:
    ends = [Tried(micro_batch=1, speed=4.0), Tried(micro_batch=16, speed=9.0)]
    assert next_micro_batch([1, 2, 4, 8, 16], ends) == 4


@given(
    tried=st.lists(st.integers(0, 63), min_size=2, max_size=10, unique=True),
    half=st.floats(0.1, 300.0),
)
def test_no_value_of_a_curve_that_bends_down_exceeds_its_bound(
    tried: list[int], half: float
) -> None:
    def speed(micro: int) -> float:
        return micro / (micro + half)

    known = [Tried(micro_batch=1 + m, speed=speed(1 + m)) for m in tried]
    top = max(one.micro_batch for one in known)
    reached = max(one.speed or 0.0 for one in known)
    for value, bound in speed_bounds(range(1, 65), known).items():
        if value <= 2 * top and value > min(one.micro_batch for one in known):
            between = len(known) == 2 and value < top  # within an octave: taken for no better
            assert between or math.log(speed(value)) <= max(bound, math.log(reached)) + 1e-9


def test_the_edge_of_memory_is_bisected_by_values_that_are_no_powers_of_two() -> None:
    trials, best = searched(list(range(1, 65)), fits=27, half=200.0, start=16)
    assert best in (25, 26, 27)
    assert len(trials) <= 8


def test_a_throughput_that_falls_is_searched_downwards() -> None:
    falling = [Tried(micro_batch=8, speed=9.0), Tried(micro_batch=16, speed=5.0)]
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
    tried = [Tried(micro_batch=m, speed=math.sqrt(m)) for m in range(1, count + 1)]
    assert next_micro_batch(range(1, count + 1), tried) is None
