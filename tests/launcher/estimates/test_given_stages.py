from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoconf_launch.launcher.measurements.measured_runs import (
    noted_stage_layers,
    predicted_s,
    runs_of,
)
from autoconf_launch.launcher.measurements.row import PublishedRow, read_measurements

TABLES = Path(__file__).parents[3] / "benchmarks" / "ground_truth"


def rows_of(table: str) -> tuple[PublishedRow, ...]:
    return read_measurements(TABLES / f"{table}.csv").measurements


@pytest.fixture(scope="module")
def four_stages() -> PublishedRow:
    return next(x for x in rows_of("amp_homogeneous_t4") if x.layout.pipeline_parallel == 4)


def with_stages(one: PublishedRow, *edges: int) -> PublishedRow:
    return replace(one, note=f"DeepSpeed pipeline; layer partition boundaries {list(edges)}")


def seconds(*rows: PublishedRow) -> list[float]:
    runs, _ = runs_of(rows)
    return [float(x) for x in predicted_s(runs, len(rows))]


@pytest.mark.parametrize("table", ["amp_homogeneous_t4", "amp_heterogeneous_v100_t4"])
def test_stages_have_all_layers(table: str) -> None:
    assert {sum(noted_stage_layers(one) or ()) for one in rows_of(table)} == {24}


@pytest.mark.parametrize(
    ("note", "layers"),
    [
        ("", None),
        ("layer partition boundaries [0, 15, 30]", None),
        ("layer partition boundaries [0, 1, 10, 20, 30]", (0, 8, 10, 6)),
    ],
)
def test_a_note_of_its_stages_gives_their_layers(
    four_stages: PublishedRow, note: str, layers: tuple[int, ...] | None
) -> None:
    assert noted_stage_layers(replace(four_stages, note=note)) == layers


def test_steps_go_at_the_pace_of_the_fullest_stage_given(four_stages: PublishedRow) -> None:
    """The logits of this model take as long as four of its layers."""
    even_s, uneven_s, relieved_s = seconds(
        with_stages(four_stages, 0, 8, 14, 20, 30),
        with_stages(four_stages, 0, 4, 8, 12, 30),
        with_stages(four_stages, 0, 9, 16, 23, 30),
    )
    assert uneven_s > 1.3 * even_s
    assert relieved_s < even_s
