from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoconf_launch.autotuner.planner.mesh_grids import grids
from autoconf_launch.autotuner.planner.pricing import grid_costs, row_costs


@settings(max_examples=6, deadline=None)
@given(st.sampled_from([1, 2, 6, 8]), st.sampled_from([1, 6]), st.booleans())
def test_a_grid_costs_what_its_cells_do_one_by_one(
    ask: Any, world: int, batch: int, sparse: bool
) -> None:
    question = ask(world, batch, sparse=sparse)
    training = question.training
    for grid in grids(world, batch, training.workload.architecture, question.degrees):
        peak_C, step_s_C = (np.broadcast_to(x, grid.shape) for x in grid_costs(grid, training))
        cells = np.arange(0, peak_C.size, max(1, peak_C.size // 400))
        peaks, timed = row_costs(grid.rows(cells), training)
        assert peak_C.reshape(-1)[cells] == pytest.approx(peaks, rel=1e-12)
        assert step_s_C.reshape(-1)[cells] == pytest.approx(timed.step_s_C, rel=1e-12)
