"""Predictions of measured rows: memory, given stages, mixed machines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoconf_launch.autotuner.planner import spearman
from autoconf_launch.launcher.measurements.measured_runs import (
    kinds_of,
    mixed_memory,
    mixed_step_s,
    noted_stage_layers,
    peaks_bytes,
    predicted_s,
    runs_of,
)
from autoconf_launch.launcher.measurements.row import PublishedRow, read_measurements
from autoconf_launch.launcher.measurements.validation import validate_table

TABLES = Path(__file__).parents[3] / "benchmarks" / "ground_truth"


def test_most_that_ran_out_of_memory_on_t4_is_flagged_and_nothing_that_ran() -> None:
    """Attention there keeps its scores: flash attention does not run on these GPUs."""
    fits = validate_table(read_measurements(TABLES / "amp_homogeneous_t4.csv")).fits
    assert (fits.failed_rows, fits.failed_rows_flagged, fits.failed_rows_safe) == (5, 3, 0)
    assert fits.ran_rows_flagged == 0


def test_rows_that_are_not_asked_for_have_no_peak() -> None:
    measurements = read_measurements(TABLES / "amp_homogeneous_t4.csv").measurements
    peaks = peaks_bytes(measurements, [1, 3])
    assert np.flatnonzero(~np.isnan(peaks)).tolist() == [1, 3]


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


TABLE = Path(__file__).parents[3] / "benchmarks/ground_truth/amp_heterogeneous_v100_t4.csv"


@pytest.fixture(scope="module")
def rows() -> tuple[PublishedRow, ...]:
    return read_measurements(TABLE).measurements


@pytest.fixture
def mixed_stages(rows: tuple[PublishedRow, ...]) -> PublishedRow:
    return next(x for x in rows if x.layout.pipeline_parallel == 4 and x.layout.micro_batch == 2)


def with_edges(one: PublishedRow, *edges: int) -> PublishedRow:
    return replace(one, note=f"layer partition boundaries {list(edges)}")


def test_a_mix_is_taken_apart(mixed_stages: PublishedRow) -> None:
    kinds = kinds_of(mixed_stages)
    assert [(kind.gpu, kind.count) for kind in kinds] == [("V100-16GB", 12), ("T4", 4)]
    assert "10 Gb/s" in kinds[0].interconnect
    assert "50 Gb/s" in kinds[1].interconnect


def test_spaces_in_a_mix_say_nothing_and_other_names_are_no_mix(
    mixed_stages: PublishedRow,
) -> None:
    for gpu in ("V100-16GB x12 + T4 x4", "V100-16GBx12+ T4x4 "):
        assert kinds_of(replace(mixed_stages, gpu=gpu)) == kinds_of(mixed_stages)
    for gpu in ("T4-16GB", "V100-16GBx12+Z9x4", "A+B"):
        assert kinds_of(replace(mixed_stages, gpu=gpu)) == ()


def test_without_stages_they_are_taken_as_equal(mixed_stages: PublishedRow) -> None:
    given, open_s = mixed_step_s(
        [
            with_edges(mixed_stages, 0, 8, 14, 20, 30),
            replace(mixed_stages, note="DeepSpeed pipeline"),
        ]
    )
    assert open_s == given


def test_ranks_that_the_mix_does_not_have_are_not_predicted(mixed_stages: PublishedRow) -> None:
    assert np.isnan(mixed_step_s([replace(mixed_stages, gpu="V100-16GBx8+T4x4")])).all()


def test_layers_on_the_slower_machines_take_longer(mixed_stages: PublishedRow) -> None:
    """The last of four stages is on the T4s."""
    early, late = (
        with_edges(mixed_stages, 0, 9, 16, 23, 30),
        with_edges(mixed_stages, 0, 6, 11, 16, 30),
    )
    early_s, late_s = mixed_step_s([early, late])
    assert late_s > 1.15 * early_s


def test_a_stage_that_spans_both_goes_at_the_slower_pace(mixed_stages: PublishedRow) -> None:
    fast = "V100-16GBx8+V100-16GBx8"
    mixed_s, fast_s = mixed_step_s([mixed_stages, replace(mixed_stages, gpu=fast)])
    assert mixed_s > fast_s


def test_the_published_mix_is_predicted(rows: tuple[PublishedRow, ...]) -> None:
    """Two rows took twice the time of the same layout on only the slower GPUs."""
    ran = [one for one in rows if one.step_time_s is not None]
    predicted_s = mixed_step_s(ran)
    measured_s = np.array([one.step_time_s for one in ran], float)
    errors = np.abs(predicted_s / measured_s - 1)
    assert errors.mean() < 0.16
    assert measured_s[predicted_s.argmin()] == measured_s.min()
    layouts = [one.layout for one in ran]
    slow = np.array(
        [(x.tensor_parallel, x.pipeline_parallel) == (2, 8) and x.micro_batch < 4 for x in layouts]
    )
    assert slow.sum() == 2
    assert errors[~slow].mean() < 0.12
    assert spearman(predicted_s[~slow], measured_s[~slow]) > 0.75


def test_memory_of_a_mix_is_that_of_the_stage_with_least_left(
    rows: tuple[PublishedRow, ...],
) -> None:
    found = [(one.step_time_s is None, mixed_memory(one)) for one in rows]
    assert not any(needed > 1.05 * limit for failed, (needed, limit) in found if not failed)
    assert sum(needed > 1.05 * limit for failed, (needed, limit) in found if failed) >= 3
