from itertools import combinations, permutations
from typing import Any

import numpy as np
import pytest

from autoconf_launch.autotuner.mixed.partition import (
    Chains,
    SplitPrice,
    feasible_rows,
    move_layers,
    smallest_bottleneck,
    split_layers,
)
from autoconf_launch.autotuner.mixed.times import pipeline_s
from autoconf_launch.autotuner.space import Floats, Ints


def chains(
    fixed: Any, layer: Any, most: Any, layers: tuple[int, ...], count: int = 4, late: Any = None
) -> Chains:
    """Rows of one training."""
    return Chains(
        fixed_s_RS=np.array(fixed, np.float64),
        layer_s_RS=np.array(layer, np.float64),
        most_RS=np.array(most, np.int64),
        layers=layers,
        count_R=np.full(len(fixed), count),
        late_RS=None if late is None else np.array(late, np.bool_),
    )


def line_price(some: Chains) -> SplitPrice:
    """``(m - 1) max + sum``, for which the walk through bottlenecks is exact."""

    def price(rows: Ints, layers_RS: Ints) -> Floats:
        seconds = some.take(rows).stage_s(layers_RS)
        return np.asarray((some.count_R[rows] - 1) * seconds.max(axis=1) + seconds.sum(axis=1))

    return price


def schedule_price(some: Chains) -> SplitPrice:
    def price(rows: Ints, layers_RS: Ints) -> Floats:
        seconds = some.take(rows).stage_s(layers_RS)
        return pipeline_s(seconds / 3, 2 * seconds / 3, some.count_R[rows])

    return price


def all_splits(layers: int, stages: int) -> Ints:
    cuts = np.array(list(combinations(range(1, layers), stages - 1)))
    edges = np.hstack([np.zeros((len(cuts), 1), np.int64), cuts, np.full((len(cuts), 1), layers)])
    return np.diff(edges, axis=1)


def random_chains(rng: np.random.Generator, rows: int, stages: int, layers: int) -> Chains:
    speeds = rng.choice([1.0, 1.5, 3.1], (rows, stages))
    ends = np.zeros((rows, stages))
    ends[:, 0], ends[:, -1] = rng.uniform(0, 1, rows), rng.uniform(0, 3, rows)
    most = rng.integers(2, layers, (rows, stages))
    return chains(ends * speeds, speeds, most, (layers,), count=int(rng.integers(1, 12)))


def brute_force(some: Chains, row: int, price: SplitPrice, splits: Ints) -> float:
    allowed = splits[(splits <= some.most_RS[row]).all(axis=1)]
    return float(price(np.full(len(allowed), row), allowed).min())


@pytest.mark.parametrize("seed", range(8))
def test_the_walk_through_bottlenecks_finds_the_best_of_all_splits(seed: int) -> None:
    some = random_chains(np.random.default_rng(seed), 50, 4, 12)
    some = some.take(feasible_rows(some))
    found = split_layers(some, line_price(some))[1]
    splits = all_splits(12, 4)
    best = [brute_force(some, row, line_price(some), splits) for row in range(len(found))]
    np.testing.assert_allclose(found, best, rtol=1e-12)


def test_no_split_has_a_smaller_bottleneck() -> None:
    some = random_chains(np.random.default_rng(1), 200, 5, 11)
    some = some.take(feasible_rows(some))
    splits = all_splits(11, 5)
    for row, tau in enumerate(smallest_bottleneck(some)):
        allowed = splits[(splits <= some.most_RS[row]).all(axis=1)]
        seconds = some.take(np.full(len(allowed), row)).stage_s(allowed).max(axis=1)
        assert tau == pytest.approx(seconds.min())


def test_rows_without_room_for_a_layer_are_impossible_and_others_are_split_by_room() -> None:
    layer = [[1.0, 1.0], [1.0, 1.0], [1.0, 1.0]]
    most = [[4, 4], [0, 9], [2, 3]]
    assert feasible_rows(chains(np.zeros((3, 2)), layer, most, (6,))).tolist() == [
        True,
        False,
        False,
    ]
    some = chains([[0.0, 0.0]], [[1.0, 5.0]], [[3, 9]], (8,))
    assert split_layers(some, line_price(some))[0].tolist() == [[3, 5]]
    some = chains([[0.0] * 4], [[1.0, 1.0, 2.0, 1.0]], [[9] * 4], (6, 6), late=[[0, 0, 1, 1]])
    split = split_layers(some, line_price(some))[0]
    assert split[:, :2].sum() == split[:, 2:].sum() == 6
    assert split[0, 2:].tolist() == [2, 4]


def test_moves_of_single_layers_come_within_a_percent_of_the_best_order_and_split() -> None:
    """Three kinds, six nodes, twelve layers, four stages: every order with every split."""
    rng, splits = np.random.default_rng(3), all_splits(12, 4)
    gaps = []
    for _ in range(100):
        speeds = np.array([1.0, rng.uniform(1.2, 2.0), rng.uniform(2.0, 4.0)])
        nodes = np.repeat([0, 1, 2], rng.permutation([1, 2, 3]))
        chosen = rng.choice(nodes, 4, replace=False)
        orders = np.array(sorted(set(permutations(chosen.tolist()))))
        layer = speeds[orders]
        fixed = np.zeros(layer.shape)
        fixed[:, 0], fixed[:, -1] = 0.1 * layer[:, 0], rng.uniform(0, 2) * layer[:, -1]
        room = np.array([9, 6, 4])[orders] + rng.integers(0, 3)
        some = chains(fixed, layer, room, (12,), count=int(rng.integers(1, 16)))
        some = some.take(feasible_rows(some))
        price = schedule_price(some)
        split = split_layers(some, price)[0]
        best_s = move_layers(some, price, split, np.arange(len(split)))[1].min()
        all_s = min(brute_force(some, row, price, splits) for row in range(len(split)))
        gaps.append(best_s / all_s - 1)
    assert np.mean(np.array(gaps) < 1e-9) >= 0.98
    assert max(gaps) < 0.01
