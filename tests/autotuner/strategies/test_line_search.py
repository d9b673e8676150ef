import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoconf_launch.autotuner.strategies import SATURATION_GAIN
from autoconf_launch.autotuner.strategies.micro_batch_curve import (
    NO_BOUND,
    Tried,
    next_micro_batch,
    speed_bounds,
)

from ...rows import some


def search(
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


def test_a_search_starts_in_the_middle_and_bisects_the_edge_of_memory() -> None:
    assert next_micro_batch(range(1, 65), (), start=24) == 24
    assert next_micro_batch([1, 2, 4, 8, 16], ()) == 4
    trials, best = search(list(range(1, 65)), fits=27, half=200.0, start=16)
    assert best in (25, 26, 27)
    assert len(trials) <= 8


def test_what_ran_or_was_full_decides_the_next_micro_batch() -> None:
    full = Tried(micro_batch=24, speed=None)
    assert next_micro_batch(range(1, 65), [full]) == 12
    assert next_micro_batch([1, 2], [Tried(micro_batch=1, speed=None)]) is None
    assert next_micro_batch(range(1, 65), [Tried(micro_batch=24, speed=9.0)], start=24) == 12
    assert next_micro_batch(range(1, 65), [Tried(micro_batch=2, speed=9.0)], start=24) == 8
    assert next_micro_batch(range(1, 65), [Tried(micro_batch=8, speed=9.0)], start=24) == 24
    assert next_micro_batch(range(1, 65), [Tried(micro_batch=4, speed=9.0)]) == 8
    tried = [Tried(micro_batch=4, speed=9.0), Tried(micro_batch=12, speed=None)]
    assert next_micro_batch(range(1, 65), tried) == 8
    flat = [Tried(micro_batch=m, speed=100 + 0.01 * m) for m in (8, 16)]
    assert next_micro_batch(range(1, 129), flat) is None
    ends = [Tried(micro_batch=1, speed=4.0), Tried(micro_batch=16, speed=9.0)]
    assert next_micro_batch([1, 2, 4, 8, 16], ends) == 4
    falling = [Tried(micro_batch=8, speed=9.0), Tried(micro_batch=16, speed=5.0)]
    following = some(next_micro_batch(range(1, 65), falling))
    assert following < 8


@pytest.mark.parametrize(("speed", "following"), [(14.0, 64), (10.0, 32)])
def test_below_the_knee_it_goes_up_the_faster_the_less_the_curve_has_bent(
    speed: float, following: int
) -> None:
    rising = [Tried(micro_batch=8, speed=8.0), Tried(micro_batch=16, speed=speed)]
    assert next_micro_batch(range(1, 129), rising, start=16) == following


def test_a_bound_is_on_the_line_through_the_values_beside_it() -> None:
    rising = [Tried(micro_batch=m, speed=s) for m, s in ((1, 1.0), (2, 2.0), (8, 4.0))]
    bounds = speed_bounds(range(1, 17), rising)
    assert bounds[16].log_speed == pytest.approx(math.log(4.0 * math.sqrt(2.0)))
    beside = [Tried(micro_batch=4, speed=9.0), Tried(micro_batch=8, speed=10.0)]
    found = speed_bounds([6], beside)[6]
    assert found.log_speed == pytest.approx(math.log(10.0))
    assert found.doubt == 1.0
    assert speed_bounds([1, 2], [Tried(micro_batch=1, speed=1.0)]) == {2: NO_BOUND}


@pytest.mark.parametrize(("values", "doubt"), [((2, 4), math.sqrt(5.0)), ((1, 4), math.sqrt(2.5))])
def test_a_bound_is_as_unsure_as_the_line_is_far_from_its_points(
    values: tuple[int, int], doubt: float
) -> None:
    ran = [Tried(micro_batch=m, speed=s) for m, s in zip(values, (9.0, 10.0), strict=True)]
    assert speed_bounds([8], ran)[8].doubt == pytest.approx(doubt)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    slope=st.floats(-1.0, 0.5),
    noise=st.floats(0.001, 0.1),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_bound_spreads_over_noisy_trials_as_its_doubt_says(
    slope: float, noise: float, seed: int
) -> None:
    draws = np.random.default_rng(seed).normal(0.0, noise, (500, 2))
    found = []
    for first, second in draws:
        ran = [(4, first), (8, slope * math.log(2.0) + second)]
        bounds = speed_bounds([16], [Tried(micro_batch=m, speed=math.exp(x)) for m, x in ran])
        found.append(bounds[16])
    spread = float(np.std([one.log_speed for one in found]))
    assert spread == pytest.approx(noise * found[0].doubt, rel=0.15)


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
            least = max(bound.log_speed, math.log(reached))
            assert between or math.log(speed(value)) <= least + 1e-9


@given(
    fits=st.integers(1, 64),
    half=st.floats(0.1, 300.0),
    start=st.none() | st.integers(1, 64),
)
def test_the_best_is_found_to_within_the_knee(fits: int, half: float, start: int | None) -> None:
    trials, best = search(list(range(1, 65)), fits, half, start)
    assert best / (best + half) >= (1 - 2 * SATURATION_GAIN) * fits / (fits + half)
    assert len(trials) <= 14


@pytest.mark.parametrize("count", [2, 5])
def test_it_ends_when_every_value_was_tried(count: int) -> None:
    tried = [Tried(micro_batch=m, speed=math.sqrt(m)) for m in range(1, count + 1)]
    assert next_micro_batch(range(1, count + 1), tried) is None
