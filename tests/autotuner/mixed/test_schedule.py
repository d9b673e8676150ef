import numpy as np
import pytest

from autoconf_launch.autotuner.mixed.times import pipeline_s

from .simulator import simulate_1f1b


def test_equal_stages_have_the_bubble_of_stages_less_one() -> None:
    ones = np.ones((1, 4))
    assert pipeline_s(ones, 2 * ones, np.array([8]))[0] == pytest.approx(3 * (8 + 3))
    assert pipeline_s(np.array([[1.0]]), np.array([[2.0]]), np.array([5]))[0] == 15.0


def errors(cases: int) -> np.ndarray:
    """Relative errors of random pipelines whose stages differ by up to four times."""
    rng, found = np.random.default_rng(0), []
    for _ in range(cases):
        stages, count = int(rng.integers(2, 9)), int(rng.integers(1, 33))
        forward = rng.uniform(0.5, 2.0, stages)
        backward = forward * rng.uniform(1.5, 3.0)
        simulated = simulate_1f1b(forward.tolist(), backward.tolist(), count)
        found.append(pipeline_s(forward[None], backward[None], np.array([count]))[0] / simulated)
    return np.array(found) - 1


def test_the_formula_is_within_a_percent_of_the_simulation_and_never_above_it() -> None:
    found = errors(400)
    assert found.max() < 1e-9
    assert found.min() > -0.05
    assert np.mean(found > -0.01) > 0.95
