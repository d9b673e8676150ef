from itertools import combinations

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import ErrorBelief
from autoconf_launch.autotuner.planner import Bounds
from autoconf_launch.autotuner.planner.run_choice import RunPool, choose_runs, fall
from autoconf_launch.autotuner.space import Floats, Ints

RUNS = 9
SEEDS = range(25)


def pool(seed: int, rivals: int = 2) -> RunPool:
    """Rows whose errors are sums of a few shared causes, as errors of layouts are."""
    generator = np.random.default_rng(seed)
    causes = generator.normal(0.0, 0.04, (1 + rivals + RUNS, 4))
    return make_pool(
        causes, generator.uniform(0.0, 0.1, rivals), generator.uniform(5.0, 80.0, RUNS)
    )


def make_pool(causes: Floats, log_slower: Floats, usd: Floats) -> RunPool:
    belief = ErrorBelief(mean_R=np.zeros(len(causes)), covariance_RR=causes @ causes.T)
    return RunPool(belief=belief, log_slower_V=log_slower, usd_P=usd)


def best_of_all(asked: RunPool, count: int, usd: float) -> float:
    """The largest fall of up to so many runs within the money, by trying all."""
    every = (
        np.array(runs) for size in range(1, count + 1) for runs in combinations(range(RUNS), size)
    )
    return max(fall(asked, runs) for runs in every if asked.usd_P[runs].sum() <= usd)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_runs_come_near_the_best_of_all_choices_for_the_money(seed: int, count: int) -> None:
    asked, usd = pool(seed), 40.0 * count
    best = best_of_all(asked, count, usd)
    found = choose_runs(asked, Bounds(runs=count, usd=usd))
    assert asked.usd_P[found].sum() <= usd
    assert fall(asked, found) >= 0.75 * best


@pytest.mark.parametrize("seed", SEEDS)
def test_more_runs_never_know_less(seed: int) -> None:
    asked = pool(seed)
    found = choose_runs(asked, Bounds(runs=5))
    falls = [fall(asked, found[:count]) for count in range(len(found) + 1)]
    assert falls == sorted(falls)


def test_of_runs_that_tell_the_same_the_cheaper_one_is_chosen() -> None:
    causes = np.full((3, 1), 0.1)
    asked = make_pool(causes, np.zeros(0), np.array([50.0, 20.0]))
    assert choose_runs(asked, Bounds(runs=2)).tolist()[0] == 1


def test_a_run_that_tells_nothing_is_not_made() -> None:
    causes = np.array([[0.1, 0.0], [0.0, 0.1], [0.1, 0.0]])
    asked = make_pool(causes, np.zeros(0), np.array([1.0, 50.0]))
    assert choose_runs(asked, Bounds(usd=500.0)).tolist() == [1]
    assert not len(choose_runs(asked, Bounds(usd=10.0, runs=3))) or asked.usd_P[0] > 10.0


@pytest.mark.parametrize(("slower", "first"), [(0.01, 1), (0.6, 0)])
def test_a_run_that_may_change_the_choice_is_worth_more(slower: float, first: int) -> None:
    """Run 0 tells most of the chosen layout, run 1 most of how much slower the rival is."""
    causes = np.array([[0.1, 0.0], [0.1, 0.2], [0.05, 0.0], [0.05, 0.1]])
    asked = make_pool(causes, np.array([slower]), np.array([10.0, 10.0]))
    assert choose_runs(asked, Bounds(runs=1)).tolist() == [first]


def test_the_bounds_are_kept() -> None:
    asked = pool(1)
    assert len(choose_runs(asked, Bounds(runs=2))) == 2
    cheapest: Ints = choose_runs(asked, Bounds(usd=float(asked.usd_P.min())))
    assert asked.usd_P[cheapest].sum() <= asked.usd_P.min()
