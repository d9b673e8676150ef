import numpy as np
import pytest

from autoconf_launch.autotuner.cost import spearman, time_accuracy
from autoconf_launch.autotuner.cost.calibration import top1_regret


def test_order_is_rank_correlation_with_shared_ranks() -> None:
    assert spearman(np.array([1.0, 2.0, 9.0]), np.array([3.0, 4.0, 5.0])) == pytest.approx(1.0)
    # ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4
    found = spearman(np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert found == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    assert spearman(np.ones(5), np.arange(5.0)) == 0.0


def test_regret_is_the_extra_time_of_the_predicted_best() -> None:
    assert top1_regret(np.array([1.0, 2.0]), np.array([12.0, 10.0])) == pytest.approx(0.2)


def test_errors_and_order_are_of_groups_that_are_large_enough() -> None:
    found = time_accuracy(np.array([1.1] * 4), np.ones(4), ["group"] * 4)
    assert found.mape == pytest.approx(10.0)
    assert (found.spearman, found.groups) == (None, 0)
    up, down = np.arange(1.0, 6.0), np.arange(10.0, 0.0, -1.0)
    predicted = np.concatenate([up, np.arange(1.0, 11.0)])
    found = time_accuracy(predicted, np.concatenate([up, down]), [0] * 5 + [1] * 10)
    assert found.spearman == pytest.approx((5 - 10) / 15)
    assert time_accuracy(np.zeros(0), np.zeros(0), []).mape is None
