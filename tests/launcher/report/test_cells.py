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
    duration_text,
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

UNLIMITED = MemoryUse(free_before_bytes=0, peak_bytes=50_000_000, limit_bytes=0)


def span(low_s: float, high_s: float) -> str:
    return range_text(TimeRange(low_s=low_s, high_s=high_s))


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (size_text(0), "0.0 kB"),
        (size_text(77_000), "77.0 kB"),
        (size_text(55_861_248), "55.9 MB"),
        (size_text(10_940_061_081), "10.94 GB"),
        (seconds_text(0.2531), "0.253 s"),
        (seconds_text(0.01234), "12.3 ms"),
        (seconds_text(12.0), "12.000 s"),
        (number_text(16_950.4), "16,950"),
        (number_text(32.7249), "32.72"),
        (number_text(0.0667), "0.0667"),
        (number_text(1.2e-5), "0.000012"),
        (number_text(0), "0"),
        (step_time_text(17_000.0), "17,000 s"),
        (step_time_text(7.638), "7.638 s"),
        (step_time_text(0.25312), "253.1 ms"),
        (minutes_text(0.9), "0:00"),
        (minutes_text(46), "0:46"),
        (minutes_text(4503), "75:03"),
        (
            memory_text(MemoryUse(free_before_bytes=0, peak_bytes=50_000_000, limit_bytes=0)),
            "50.0 MB",
        ),
        (finished_row(RECORDS[0], status="resumed").cells[-1], "resumed"),
        (span(3.2, 41.0), "3 to 41 s"),
        (span(40.0, 190.0), "40 s to 3 minutes"),
        (span(130.0, 380.0), "2 to 6 minutes"),
        (span(600.0, 9000.0), "10 minutes to 2.5 hours"),
        (span(8.1, 8.4), "about 8 s"),
        (duration_text(12.0), "12 s"),
        (duration_text(90.0), "1.5 minutes"),
        (duration_text(3600.0), "1 hour"),
        (duration_text(14.1 * 3600), "14.1 hours"),
        (duration_text(2.3 * 86400), "2.3 days"),
        (duration_text(1234.5 * 86400), "1,234 days"),
    ],
)
def test_a_quantity_is_in_the_unit_that_it_fills_without_an_exponent(
    found: str, text: str
) -> None:
    assert found == text


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
