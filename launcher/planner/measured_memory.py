"""Predicted memory of measured rows: the one place where ``validate`` meets the memory model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoconf_launch.autotuner.cost.layout_memory import peak_bytes
from autoconf_launch.autotuner.cost.memory_layouts import MemoryLayouts
from autoconf_launch.autotuner.cost.trainers import trainer
from autoconf_launch.autotuner.cost.training_setup import TrainingSetup
from autoconf_launch.autotuner.table import CandidateTable, Floats
from autoconf_launch.core import Candidate, Layout

from ..recorded.measurement_row import Measurement
from .measured_runs import architecture_of, is_lora, precision_of, trainer_of

_LORA_RANK = 16


def peaks_bytes(measurements: Sequence[Measurement], rows: Sequence[int]) -> Floats:
    """Bytes of the fullest rank for each of ``rows``; NaN for the others."""
    peaks = np.full(len(measurements), np.nan)
    grouped: dict[tuple[object, ...], list[int]] = {}
    for i in rows:
        one = measurements[i]
        key = (one.shape, trainer_of(one), one.precision, one.compiled)
        grouped.setdefault(key, []).append(i)
    for same in grouped.values():
        layouts = [_layout(measurements[i]) for i in same]
        table = CandidateTable.from_candidates([Candidate(layout=one) for one in layouts])
        first = measurements[same[0]]
        columns = MemoryLayouts.from_table(table)
        peaks[same] = peak_bytes(columns, architecture_of(first.shape), _setup(first))
    return peaks


def _layout(one: Measurement) -> Layout:
    """The row's layout, with the code's habit where it leaves sequence parallelism open."""
    if "sequence_parallel" not in one.assumed or one.layout.tensor_parallel == 1:
        return one.layout
    return replace(one.layout, sequence_parallel=trainer(trainer_of(one)).sequence_parallel)


def _setup(one: Measurement) -> TrainingSetup:
    plain = TrainingSetup(
        sequence=one.shape.seq,
        precision=precision_of(one),
        compiled=bool(one.compiled),
        lora_rank=_LORA_RANK if is_lora(one) else None,
    )
    return trainer(trainer_of(one)).applied(plain)
