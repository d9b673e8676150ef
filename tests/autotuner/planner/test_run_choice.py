import numpy as np
import pytest

from autoconf_launch.autotuner.planner import Bounds, ErrorBelief
from autoconf_launch.autotuner.planner.verification import choose_runs
from autoconf_launch.autotuner.space import Floats

SEEDS = range(25)


def believe(causes: Floats) -> ErrorBelief:
    """Rows whose errors are sums of a few shared causes, as those of layouts are."""
    return ErrorBelief(mean_R=np.zeros(len(causes)), covariance_RR=causes @ causes.T)


def draw(seed: int, layouts: int = 3, runs: int = 9) -> tuple[ErrorBelief, Floats]:
    generator = np.random.default_rng(seed)
    causes = generator.normal(0.0, 0.04, (layouts + runs, 4))
    return believe(causes), generator.uniform(5.0, 80.0, runs)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bounds_are_kept_and_no_run_is_named_twice(seed: int) -> None:
    belief, usd = draw(seed)
    few, cheap = choose_runs(belief, usd, Bounds(runs=2)), choose_runs(belief, usd, Bounds(usd=90))
    assert len(few) == 2
    assert usd[cheap].sum() <= 90.0
    assert len(set(cheap.tolist())) == len(cheap)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_run_narrows_the_chosen_layout_nearly_as_much_as_any(seed: int) -> None:
    belief, usd = draw(seed)
    (first,) = choose_runs(belief, usd, Bounds(runs=1))
    rows = np.arange(3, 12)
    spreads = [belief.after(rows[[i]], belief.mean_R[rows[[i]]]).spread(0) for i in range(9)]
    assert belief.spread(0) - spreads[first] >= 0.75 * (belief.spread(0) - min(spreads))


def test_runs_are_chosen_by_what_they_tell_for_their_price() -> None:
    belief = believe(np.full((3, 1), 0.1))
    assert choose_runs(belief, np.array([50.0, 20.0]), Bounds(runs=2)).tolist()[0] == 1
    belief = believe(np.array([[0.1, 0.0], [0.0, 0.1], [0.1, 0.0]]))
    assert choose_runs(belief, np.array([1.0, 50.0]), Bounds(usd=500.0)).tolist() == [1]
    assert not len(choose_runs(belief, np.array([1.0, 50.0]), Bounds(usd=10.0)))
    # Run 0 tells of the chosen layout, run 1 of its rival.
    belief = believe(np.array([[0.1, 0.0], [0.0, 0.1], [0.1, 0.0], [0.0, 0.1]]))
    assert choose_runs(belief, np.array([50.0, 10.0]), Bounds(runs=2)).tolist() == [0, 1]
