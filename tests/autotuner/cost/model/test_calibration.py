from collections.abc import Callable

import numpy as np
import pytest

from autoconf_launch.autotuner.cost.model.calibration import calibrated_s, levels
from autoconf_launch.autotuner.cost.model.columns import LayoutColumns
from autoconf_launch.autotuner.cost.model.hardware import Machine
from autoconf_launch.autotuner.cost.model.step import StepParts, step_parts
from autoconf_launch.autotuner.cost.model.workload import Workload
from autoconf_launch.autotuner.table import Ints

MakeLayouts = Callable[..., LayoutColumns]
ALIKE = tuple({"data_parallel": 8, "accumulation": n} for n in (1, 2, 4))
OTHER = {"tensor_parallel": 4, "pipeline_parallel": 2, "accumulation": 8}


@pytest.fixture
def predicted(
    layouts: MakeLayouts, workload: Workload, machine: Machine
) -> tuple[StepParts, Ints]:
    columns = layouts(*ALIKE, OTHER)
    return step_parts(columns, workload, machine), levels(columns, np.zeros(4, np.int64))


def test_without_measurements_nothing_changes(predicted: tuple[StepParts, Ints]) -> None:
    parts, level = predicted
    found = calibrated_s(parts, level, np.zeros(0, np.int64), np.zeros(0))
    assert found.tolist() == parts.step_s_C.tolist()


def test_a_measured_row_comes_close_to_its_measurement(predicted: tuple[StepParts, Ints]) -> None:
    parts, level = predicted
    measured = 1.2 * parts.step_s_C[:1]
    found = calibrated_s(parts, level, np.array([0]), measured)
    assert found[0] / parts.step_s_C[0] == pytest.approx(1.2, rel=0.03)


def test_rows_that_share_more_move_more(predicted: tuple[StepParts, Ints]) -> None:
    parts, level = predicted
    moved = calibrated_s(parts, level, np.array([0]), 1.2 * parts.step_s_C[:1]) / parts.step_s_C
    assert moved[1] > moved[3] > 1.0


def test_an_outlier_moves_no_more_than_the_largest_error(
    predicted: tuple[StepParts, Ints],
) -> None:
    parts, level = predicted
    moved = calibrated_s(parts, level, np.array([0]), 100 * parts.step_s_C[:1]) / parts.step_s_C
    assert moved.max() < np.exp(0.36)
