from __future__ import annotations

from pathlib import Path

import numpy as np

from autoconf_launch.launcher.measurements.measured_runs import peaks_bytes
from autoconf_launch.launcher.measurements.row import read_measurements
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
