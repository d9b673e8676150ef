from collections.abc import Callable

import numpy as np
import pytest

from autoconf_launch.autotuner.cost.calibration import (
    NOISE,
    SPREADS,
    Likeness,
    calibration_factors,
    likeness,
)
from autoconf_launch.autotuner.cost.layout_columns import LayoutColumns
from autoconf_launch.autotuner.space.table import Floats

MakeLayouts = Callable[..., LayoutColumns]
ROWS = (
    {"data_parallel": 8, "accumulation": 1},
    {"data_parallel": 8, "accumulation": 4},
    {"data_parallel": 8, "micro_batch": 4},
    {"tensor_parallel": 8, "pipeline_parallel": 8, "micro_batch": 8},
    {"data_parallel": 8, "zero_stage": 3},
)
SAME, LARGER_MICRO, OTHER, SHARDED = 1, 2, 3, 4
SHAPES = np.full((5, 2), 2048.0)
PREDICTED_S = np.array([1.0, 4.0, 4.0, 2.0, 1.1])


@pytest.fixture
def alike(layouts: MakeLayouts) -> Likeness:
    """Of one model on one machine."""
    zero = np.zeros(5, np.int64)
    return likeness(layouts(*ROWS), zero, zero, SHAPES)


def move(alike: Likeness, slower: float) -> Floats:
    """By how much each row is corrected where the first one was measured so much slower."""
    return calibration_factors(PREDICTED_S, alike, np.array([0]), slower * PREDICTED_S[:1])


def test_without_measurements_nothing_changes(alike: Likeness) -> None:
    found = calibration_factors(PREDICTED_S, alike, np.zeros(0, np.int64), np.zeros(0))
    assert found.tolist() == [1.0] * len(PREDICTED_S)


def test_a_measured_row_is_shrunk_by_its_noise_alone(alike: Likeness) -> None:
    all_effects = float(np.square(SPREADS).sum())
    kept = all_effects / (all_effects + NOISE**2)
    assert move(alike, 1.2)[0] == pytest.approx(1.2**kept)


def test_a_layout_of_equal_parts_moves_as_the_measured_one(alike: Likeness) -> None:
    assert move(alike, 1.2)[SAME] == pytest.approx(move(alike, 1.2)[0])


def test_rows_that_share_more_move_more(alike: Likeness) -> None:
    factor = move(alike, 1.2)
    assert factor[SAME] > factor[LARGER_MICRO] > factor[OTHER] > 1.0


def test_sharded_weights_are_another_software(alike: Likeness) -> None:
    assert move(alike, 1.2)[SHARDED] == pytest.approx(1.0)


def test_another_model_moves_less(layouts: MakeLayouts) -> None:
    columns, zero = layouts(*ROWS), np.zeros(5, np.int64)
    models = np.array([0, 1, 0, 0, 0])
    other = move(likeness(columns, zero, models, SHAPES), 1.2)
    assert other[0] > other[SAME] > 1.0


def test_a_model_of_another_width_moves_less_than_one_of_the_same(layouts: MakeLayouts) -> None:
    columns, zero = layouts(*ROWS[:1], *ROWS[:1], *ROWS[2:]), np.zeros(5, np.int64)
    models, wider = np.array([0, 1, 1, 1, 1]), SHAPES.copy()
    wider[1, 0] *= 1.05
    same, other = (move(likeness(columns, zero, models, x), 1.2)[1] for x in (SHAPES, wider))
    assert same > other > 1.0


def test_an_outlier_moves_no_more_than_the_largest_error(alike: Likeness) -> None:
    assert move(alike, 100.0).max() < np.exp(0.36)
