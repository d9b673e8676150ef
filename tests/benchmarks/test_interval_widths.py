"""Intervals of rounds under recorded noise."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest

from .conftest import import_benchmark

widths = import_benchmark("interval_widths")
RUNS = 60


@pytest.mark.parametrize("recording", [widths.busy_rounds, widths.quiet_rounds])
def test_intervals_under_recorded_noise_are_hardly_ever_wrong(recording: Any) -> None:
    draw = widths.draw_rounds(recording())
    assert sum(widths.study(draw, seed)[-1][0] for seed in range(RUNS)) >= 0.93 * RUNS


def test_three_rounds_of_a_quiet_machine_tell_ten_percent() -> None:
    draw = widths.draw_rounds(widths.quiet_rounds())
    assert median(widths.study(draw, seed)[2][1] for seed in range(RUNS)) < 0.1
