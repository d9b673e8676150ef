"""Predicted memory of measured rows: the one place where ``validate`` meets the memory model.

A pipeline stage goes at the pace of its slowest device. It has the layers that the row gives it,
or as many as the others where the row gives none; the stages run under 1F1B. Devices fill stages
in their order, pipeline stages outermost. The pace of a device is that of a whole cluster of it
with the slowest network of the mix.
Shapes: M = kinds of machines, S = pipeline stages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.autotuner.cost import (
    DEFAULT_PHYSICS,
    LayoutColumns,
    Physics,
    StepParts,
    peak_bytes,
)
from autoconf_launch.autotuner.space import CandidateTable, Floats
from autoconf_launch.core import Candidate
from autoconf_launch.tuning_spaces import known_accelerator

from .measured_runs import (
    noted_stage_layers,
    predicted_parts,
    row_layout,
    runs_of,
    trainer_of,
    workload_of,
)
from .row import PublishedRow, Row, RowShape


def peaks_bytes(measurements: Sequence[PublishedRow], rows: Sequence[int]) -> Floats:
    """Bytes of the fullest rank for each of ``rows``; NaN for the others."""
    peaks = np.full(len(measurements), np.nan)
    grouped: dict[tuple[object, ...], list[int]] = {}
    for i in rows:
        one = measurements[i]
        key = (one.shape, trainer_of(one), one.precision, one.compiled)
        grouped.setdefault(key, []).append(i)
    for same in grouped.values():
        layouts = [row_layout(measurements[i]) for i in same]
        table = CandidateTable.from_candidates([Candidate(layout=one) for one in layouts])
        first = measurements[same[0]]
        columns = LayoutColumns.from_table(table)
        peaks[same] = peak_bytes(columns, workload_of(first))
    return peaks


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Some equal machines of a mix."""

    gpu: str
    count: int
    interconnect: str


def kinds_of(one: Row) -> tuple[Kind, ...]:
    """Machines of ``V100-16GBx12+T4x4`` with their networks; none where it is not such a mix."""
    parts = one.gpu.split("+")
    found = [re.fullmatch(r"\s*(.+?)\s*x\s*(\d+)\s*", part) for part in parts]
    if len(parts) < 2 or not all(m and known_accelerator(m[1]) for m in found):
        return ()
    networks = one.interconnect.split("+")
    if len(networks) != len(parts):
        networks = [one.interconnect] * len(parts)
    pairs = zip(found, networks, strict=True)
    return tuple(Kind(gpu=m[1], count=int(m[2]), interconnect=n) for m, n in pairs if m)


def mixed_step_s(rows: Sequence[PublishedRow], physics: Physics = DEFAULT_PHYSICS) -> Floats:
    """Seconds of each row; NaN where its machines are not known."""
    seconds = np.full(len(rows), np.nan)
    for i, one in enumerate(rows):
        kinds, layers = kinds_of(one), noted_stage_layers(one) or _even(one)
        if kinds and sum(kind.count for kind in kinds) == one.gpus:
            seconds[i] = _step_s(one, kinds, layers, physics)
    return seconds


def _even(one: PublishedRow) -> tuple[int, ...]:
    stages = np.array_split(np.arange(one.shape.layers), one.layout.pipeline_parallel)
    return tuple(len(stage) for stage in stages)


def _step_s(
    one: PublishedRow, kinds: Sequence[Kind], layers: tuple[int, ...], physics: Physics
) -> float:
    alone = [_alone(one, kind, kinds, physics) for kind in kinds]
    whole_s_M = np.array([_whole_s(parts, one) for parts in alone])
    kind_of_rank = np.repeat(np.arange(len(kinds)), [kind.count for kind in kinds])
    pace_s_S = whole_s_M[kind_of_rank].reshape(len(layers), -1).max(axis=1)
    stage_s_S = pace_s_S * _shares(one.shape, layers)
    slowest_s = float(stage_s_S.max())
    pipeline_s = one.accumulation * slowest_s + float(stage_s_S.sum()) - slowest_s
    rest = [float(parts.communication_s_C[0] + parts.update_s_C[0]) for parts in alone]
    return pipeline_s + max(rest)


def _alone(one: PublishedRow, kind: Kind, kinds: Sequence[Kind], physics: Physics) -> StepParts:
    """The row on machines of one kind, with the slowest of all networks."""
    runs = [
        runs_of([replace(one, gpu=kind.gpu, interconnect=other.interconnect)])[0][0]
        for other in kinds
    ]
    slowest = min(runs, key=lambda run: run.machine.node_network_bytes_per_s)
    return predicted_parts(slowest, physics)


def _whole_s(parts: StepParts, one: PublishedRow) -> float:
    """All stages of one micro-batch, one after the other."""
    busy = parts.ideal_s_C + parts.kernels_s_C + parts.recompute_s_C + parts.launch_s_C
    return float(busy[0]) * one.layout.pipeline_parallel / one.accumulation


def _shares(shape: RowShape, layers: tuple[int, ...]) -> Floats:
    """Work of each stage over all of it; the head counts as layers with as many products."""
    layer = 4 * shape.hidden**2 + 2 * shape.hidden * shape.ffn
    work = np.array(layers, np.float64)
    work[-1] += shape.vocabulary * shape.hidden / layer
    return np.asarray(work / work.sum())
