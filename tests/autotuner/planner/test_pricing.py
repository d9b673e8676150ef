import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoconf_launch.autotuner.cost import estimate
from autoconf_launch.autotuner.planner import grids

from .conftest import ask


@settings(max_examples=6, deadline=None)
@given(st.sampled_from([1, 2, 6, 8]), st.sampled_from([1, 6]), st.booleans())
def test_a_grid_costs_what_its_cells_do_one_by_one(world: int, batch: int, sparse: bool) -> None:
    question = ask(world, batch, sparse=sparse)
    training = question.training
    for grid in grids(world, batch, training.workload.architecture, question.degrees):
        whole = estimate(grid.columns, training.workload, training.machine)
        peak_C = np.broadcast_to(whole.peak_bytes_C, grid.shape)
        step_s_C = np.broadcast_to(whole.step_s_C, grid.shape)
        cells = np.arange(0, peak_C.size, max(1, peak_C.size // 400))
        rows = estimate(grid.rows(cells), training.workload, training.machine)
        assert peak_C.reshape(-1)[cells] == pytest.approx(rows.peak_bytes_C, rel=1e-12)
        assert step_s_C.reshape(-1)[cells] == pytest.approx(rows.step_s_C, rel=1e-12)
