"""Predicted memory of measured rows: the one place where ``validate`` meets the memory model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoconf_launch.autotuner.cost.layout_memory import peak_bytes
from autoconf_launch.autotuner.cost.memory_layouts import MemoryLayouts
from autoconf_launch.autotuner.table import CandidateTable, Floats
from autoconf_launch.core import Candidate

from ..recorded.measurement_row import Measurement
from .measured_runs import architecture_of, layout_of, setup_of, trainer_of


def peaks_bytes(measurements: Sequence[Measurement], rows: Sequence[int]) -> Floats:
    """Bytes of the fullest rank for each of ``rows``; NaN for the others."""
    peaks = np.full(len(measurements), np.nan)
    grouped: dict[tuple[object, ...], list[int]] = {}
    for i in rows:
        one = measurements[i]
        key = (one.shape, trainer_of(one), one.precision, one.compiled)
        grouped.setdefault(key, []).append(i)
    for same in grouped.values():
        layouts = [layout_of(measurements[i]) for i in same]
        table = CandidateTable.from_candidates([Candidate(layout=one) for one in layouts])
        first = measurements[same[0]]
        columns = MemoryLayouts.from_table(table)
        peaks[same] = peak_bytes(columns, architecture_of(first.shape), setup_of(first))
    return peaks
