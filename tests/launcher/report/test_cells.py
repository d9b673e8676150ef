from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from autoconf_launch.autotuner.playoff import TimeRange
from autoconf_launch.autotuner.space import candidate_name
from autoconf_launch.core import (
    Candidate,
    GenerationTask,
    Layout,
    MemoryUse,
    Offload,
    Precision,
    Recompute,
)
from autoconf_launch.launcher.report import (
    csv_text,
    finished_row,
    label,
    minutes_text,
    number_text,
    range_text,
    seconds_text,
    size_text,
    step_time_text,
)
from autoconf_launch.launcher.report.cells import memory_text

from .fixed import RECORDS, trial


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0.0 kB"), (77_000, "77.0 kB"), (55_861_248, "55.9 MB"), (10_940_061_081, "10.94 GB")],
)
def test_sizes_are_decimal(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text


@pytest.mark.parametrize(
    ("duration_s", "text"), [(0.2531, "0.253 s"), (0.01234, "12.3 ms"), (12.0, "12.000 s")]
)
def test_short_times_are_in_milliseconds(duration_s: float, text: str) -> None:
    assert seconds_text(duration_s) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(16_950.4, "16,950"), (32.7249, "32.72"), (0.0667, "0.0667"), (1.2e-5, "0.000012"), (0, "0")],
)
def test_numbers_have_no_exponent(value: float, text: str) -> None:
    assert number_text(value) == text


@pytest.mark.parametrize(
    ("duration_s", "text"), [(17_000.0, "17,000 s"), (7.638, "7.638 s"), (0.25312, "253.1 ms")]
)
def test_a_step_is_in_seconds_or_milliseconds(duration_s: float, text: str) -> None:
    assert step_time_text(duration_s) == text


@pytest.mark.parametrize(("duration_s", "text"), [(0.9, "0:00"), (46, "0:46"), (4503, "75:03")])
def test_elapsed_time_is_in_minutes(duration_s: float, text: str) -> None:
    assert minutes_text(duration_s) == text


def test_memory_without_a_limit_has_no_share() -> None:
    use = MemoryUse(free_before_bytes=0, peak_bytes=50_000_000, limit_bytes=0)
    assert memory_text(use) == "50.0 MB"


def test_a_record_of_an_earlier_session_is_told_apart() -> None:
    assert finished_row(RECORDS[0], status="resumed").cells[-1] == "resumed"


@pytest.mark.parametrize(
    ("low_s", "high_s", "text"),
    [
        (3.2, 41.0, "3 to 41 s"),
        (40.0, 190.0, "40 s to 3 minutes"),
        (130.0, 380.0, "2 to 6 minutes"),
        (600.0, 9000.0, "10 minutes to 2.5 hours"),
        (8.1, 8.4, "about 8 s"),
    ],
)
def test_a_range_of_time_is_in_the_units_of_its_ends(
    low_s: float, high_s: float, text: str
) -> None:
    assert range_text(TimeRange(low_s=low_s, high_s=high_s)) == text


def test_a_label_has_what_is_not_as_usual() -> None:
    layout = replace(trial(1, 3, 16).candidate.layout, recompute=Recompute.SELECTIVE)
    extras = (("bucket_cap_mb", 25), ("raf", False))
    assert label(Candidate(layout=layout, extras=extras)) == (
        "ZeRO 3 · recompute selective · bucket_cap_mb 25 · raf off · micro 16 · accum 1"
    )


def test_what_writes_text_is_labelled_without_words_of_a_training() -> None:
    layout = Layout(tensor_parallel=2, micro_batch=8)
    task = GenerationTask(layout=layout, input_len=60, output_len=20, precision=Precision.FP32)
    assert label(task.candidate) == "tensor 2 · batch 8 · input_len 60 · output_len 20"


def test_configurations_with_different_names_have_different_labels() -> None:
    degrees = product((1, 2), (1, 2), Recompute, Offload, (None, (0, 1)), ((), (("knob", True),)))
    made = [
        Candidate(
            layout=Layout(
                tensor_parallel=tensor,
                virtual_pipeline=virtual,
                recompute=recompute,
                offload=offload,
                placement=placement,
            ),
            extras=extras,
        )
        for tensor, virtual, recompute, offload, placement, extras in degrees
    ]
    names = {candidate_name(candidate) for candidate in made}
    assert len({label(candidate) for candidate in made}) == len(names) == len(made)


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+cmd", "'+cmd"),
        ("-2+3", "'-2+3"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        (" =1", "' =1"),
        ("\x1b[2J\r", "\\x1b[2J\\r"),
        ("-", "-"),
        ("-1.5e-3", "-1.5e-3"),
        (-1.5, "-1.5"),
        ("z0_gas1", "z0_gas1"),
    ],
)
def test_no_cell_is_a_formula_or_an_escape(cell: object, written: str) -> None:
    assert csv_text([(cell, 1)]) == f"{written},1\n"
