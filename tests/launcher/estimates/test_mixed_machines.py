from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autoconf_launch.autotuner.cost import spearman
from autoconf_launch.launcher.measurements.measured_runs import (
    kinds_of,
    mixed_memory,
    mixed_step_s,
)
from autoconf_launch.launcher.measurements.row import PublishedRow, read_measurements

TABLE = Path(__file__).parents[3] / "benchmarks/ground_truth/amp_heterogeneous_v100_t4.csv"


@pytest.fixture(scope="module")
def rows() -> tuple[PublishedRow, ...]:
    return read_measurements(TABLE).measurements


@pytest.fixture
def four_stages(rows: tuple[PublishedRow, ...]) -> PublishedRow:
    return next(x for x in rows if x.layout.pipeline_parallel == 4 and x.layout.micro_batch == 2)


def with_stages(one: PublishedRow, *edges: int) -> PublishedRow:
    return replace(one, note=f"layer partition boundaries {list(edges)}")


def test_a_mix_is_taken_apart(four_stages: PublishedRow) -> None:
    kinds = kinds_of(four_stages)
    assert [(kind.gpu, kind.count) for kind in kinds] == [("V100-16GB", 12), ("T4", 4)]
    assert "10 Gb/s" in kinds[0].interconnect
    assert "50 Gb/s" in kinds[1].interconnect


def test_spaces_in_a_mix_say_nothing_and_other_names_are_no_mix(four_stages: PublishedRow) -> None:
    for gpu in ("V100-16GB x12 + T4 x4", "V100-16GBx12+ T4x4 "):
        assert kinds_of(replace(four_stages, gpu=gpu)) == kinds_of(four_stages)
    for gpu in ("T4-16GB", "V100-16GBx12+Z9x4", "A+B"):
        assert kinds_of(replace(four_stages, gpu=gpu)) == ()


def test_without_stages_they_are_taken_as_equal(four_stages: PublishedRow) -> None:
    given, open_s = mixed_step_s(
        [
            with_stages(four_stages, 0, 8, 14, 20, 30),
            replace(four_stages, note="DeepSpeed pipeline"),
        ]
    )
    assert open_s == given


def test_ranks_that_the_mix_does_not_have_are_not_predicted(four_stages: PublishedRow) -> None:
    assert np.isnan(mixed_step_s([replace(four_stages, gpu="V100-16GBx8+T4x4")])).all()


def test_layers_on_the_slower_machines_take_longer(four_stages: PublishedRow) -> None:
    """The last of four stages is on the T4s."""
    early, late = (
        with_stages(four_stages, 0, 9, 16, 23, 30),
        with_stages(four_stages, 0, 6, 11, 16, 30),
    )
    early_s, late_s = mixed_step_s([early, late])
    assert late_s > 1.15 * early_s


def test_a_stage_that_spans_both_goes_at_the_slower_pace(four_stages: PublishedRow) -> None:
    fast = "V100-16GBx8+V100-16GBx8"
    mixed_s, fast_s = mixed_step_s([four_stages, replace(four_stages, gpu=fast)])
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
