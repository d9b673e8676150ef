"""Data of the plots; drawing itself needs matplotlib."""

from __future__ import annotations

from typing import Any

import pytest

from autoconf_launch.launcher.estimates import fit_answer, parse_fit

from .conftest import import_benchmark

plots = import_benchmark("cost_model_plots")


@pytest.mark.parametrize("known", plots.LAYOUTS, ids=lambda known: known.label.split(",")[0])
def test_the_colours_of_a_bar_add_up_to_the_fullest_rank(known: Any) -> None:
    answer = fit_answer(parse_fit(known.flags.split()))
    total_gb = float(answer.memory.total.max()) / 2**30
    assert sum(plots.grouped_gb(answer).values()) == pytest.approx(total_gb)


@pytest.mark.parametrize("known", [one for one in plots.LAYOUTS if one.table])
def test_a_measured_layout_is_the_one_of_its_row(known: Any) -> None:
    asked = fit_answer(parse_fit(known.flags.split())).asked.layout
    path = plots.TABLES / f"{known.table}.csv"
    row = next(m for m in plots.read_measurements(path).measurements if m.line == known.line)
    names = ("tensor_parallel", "pipeline_parallel", "data_parallel", "micro_batch", "recompute")
    assert [getattr(asked, x) for x in names] == [getattr(row.layout, x) for x in names]
