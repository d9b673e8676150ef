from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoconf_launch.autotuner.measurement import chance_below, expected_excess
from autoconf_launch.autotuner.measurement.noise import density


@given(st.floats(-8, 8))
def test_chances_agree_with_the_standard_library(x: float) -> None:
    assert chance_below(np.array([x]))[0] == pytest.approx(NormalDist().cdf(x), abs=1e-6)


def test_the_density_is_the_slope_of_the_chance() -> None:
    x, step = np.linspace(-3, 3, 13), 1e-3
    slope = (chance_below(x + step) - chance_below(x - step)) / (2 * step)
    assert slope == pytest.approx(density(x), abs=1e-3)


@given(st.floats(-3, 3), st.floats(0.01, 2))
def test_the_expected_excess_is_the_mean_of_what_is_above_zero(mean: float, spread: float) -> None:
    quantiles = [NormalDist(mean, spread).inv_cdf((i + 0.5) / 4000) for i in range(4000)]
    sampled = float(np.maximum(quantiles, 0.0).mean())
    found = expected_excess(np.array([mean]), np.array([spread]))[0]
    assert found == pytest.approx(sampled, abs=2e-3 * spread + 1e-6)
