import numpy as np
import pytest

from autoconf_launch.autotuner.planner import (
    NOISE,
    SPREADS,
    SURPRISE,
    ErrorBelief,
    Likeness,
    calibration_factors,
    effect_scale,
    likeness,
    spearman,
    time_accuracy,
)
from autoconf_launch.autotuner.planner.calibration import top1_regret
from autoconf_launch.autotuner.space import Floats

from ..builders import layouts

ROWS = (
    {"data_parallel": 8, "accumulation": 1},
    {"data_parallel": 8, "accumulation": 4},
    {"data_parallel": 8, "micro_batch": 4},
    {"tensor_parallel": 8, "pipeline_parallel": 8, "micro_batch": 8},
    {"data_parallel": 8, "zero_stage": 3},
)
SAME, LARGER_MICRO, OTHER, SHARDED = 1, 2, 3, 4
SHAPES = np.full((5, 2), 2048.0)
NODES = np.full(5, 4)
PREDICTED_S = np.array([1.0, 4.0, 4.0, 2.0, 1.1])


@pytest.fixture
def alike() -> Likeness:
    zero = np.zeros(5, np.int64)
    return likeness(layouts(*ROWS), zero, zero, SHAPES, NODES)


def move(alike: Likeness, slower: float) -> Floats:
    """By how much each row is corrected where the first one was measured so much slower."""
    return calibration_factors(PREDICTED_S, alike, np.array([0]), slower * PREDICTED_S[:1])


def test_rows_move_with_the_measured_one_as_far_as_they_share_its_parts(alike: Likeness) -> None:
    found = calibration_factors(PREDICTED_S, alike, np.zeros(0, np.int64), np.zeros(0))
    assert found.tolist() == [1.0] * len(PREDICTED_S)
    assert move(alike, 1.2)[SAME] == pytest.approx(move(alike, 1.2)[0])
    factor = move(alike, 1.2)
    assert factor[SAME] > factor[LARGER_MICRO] > factor[OTHER] > 1.0
    assert move(alike, 1.2)[SHARDED] == pytest.approx(1.0)
    after = ErrorBelief.before(alike).after(np.array([0]), np.log([1.2]))
    assert np.exp(after.mean_R) == pytest.approx(move(alike, 1.2))
    assert move(alike, 100.0).max() < np.exp(0.36)
    all_effects = float(np.square(SPREADS).sum())
    kept = all_effects / (all_effects + NOISE**2)
    assert move(alike, 1.2)[0] == pytest.approx(1.2**kept)


def test_models_of_other_layers_or_widths_move_less() -> None:
    columns, zero = layouts(*ROWS), np.zeros(5, np.int64)
    models = np.array([0, 1, 0, 0, 0])
    other = move(likeness(columns, zero, models, SHAPES, NODES), 1.2)
    assert other[0] > other[SAME] > 1.0
    columns, zero = layouts(*ROWS[:1], *ROWS[:1], *ROWS[2:]), np.zeros(5, np.int64)
    models, wider = np.array([0, 1, 1, 1, 1]), SHAPES.copy()
    wider[1, 0] *= 1.05
    same, other = (
        move(likeness(columns, zero, models, x, NODES), 1.2)[1] for x in (SHAPES, wider)
    )
    assert same > other > 1.0


def test_beliefs_narrow_with_each_measurement_in_any_order_and_surprise_beyond(
    alike: Likeness,
) -> None:
    belief = ErrorBelief.before(alike)
    for row in range(5):
        after = belief.after(np.array([row]), np.array([0.05]))
        assert (np.diag(after.covariance_RR) <= np.diag(belief.covariance_RR) + 1e-12).all()
        belief = after
    assert all(belief.spread(row) > NOISE for row in range(5))
    assert np.linalg.eigvalsh(belief.covariance_RR).min() > -1e-12
    belief, logs = ErrorBelief.before(alike), np.array([0.1, -0.05])
    together = belief.after(np.array([0, 2]), logs)
    apart = belief.after(np.array([2]), logs[1:]).after(np.array([0]), logs[:1])
    assert together.mean_R == pytest.approx(apart.mean_R)
    assert together.covariance_RR == pytest.approx(apart.covariance_RR)
    columns, zero = layouts(*(f"dp={ranks}" for ranks in (32, 16, 8))), np.zeros(3, int)
    belief = ErrorBelief.before(likeness(columns, zero, zero, SHAPES[:3], np.full(3, 8)))
    two_nodes, one_node = (
        belief.after(np.array([row]), np.array([0.1])).covariance_RR[0, 0] for row in (1, 2)
    )
    assert two_nodes < one_node < belief.covariance_RR[0, 0]
    usual, wide = (
        ErrorBelief.before(alike),
        ErrorBelief.before(alike, effect_scale(0.3, over_nodes=True)),
    )
    assert wide.spread(0) == pytest.approx(0.3)
    seen = np.array([0]), np.array([0.1])
    assert wide.after(*seen).mean_R[0] > usual.after(*seen).mean_R[0]
    assert wide.noise == usual.noise
    belief, rows = ErrorBelief.before(alike), np.array([0, 1, 2])
    assert np.abs(belief.surprises(rows, np.array([0.1, 0.11, 0.1]))).max() < SURPRISE
    found = np.abs(belief.surprises(rows, np.array([0.1, 0.6, 0.1])))
    assert found.argmax() == 1
    assert found[1] > SURPRISE


def test_order_and_regret_are_of_the_predicted_best() -> None:
    assert spearman(np.array([1.0, 2.0, 9.0]), np.array([3.0, 4.0, 5.0])) == pytest.approx(1.0)
    # ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4
    found = spearman(np.array([1.0, 2.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0, 4.0]))
    assert found == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    assert spearman(np.ones(5), np.arange(5.0)) == 0.0
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
