"""Which layers lie on a pipeline stage, and how many micro-batches wait there. Not: their bytes.

Shapes: S = stages, C = candidates. The last stage has the head, the first one the embedding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..table import Floats, Ints
from .memory_layouts import MemoryLayouts


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Stages:
    """The pipeline stages that are looked at; numbers are floats, since casts cost time.

    Attributes:
        stage_SC: their numbers, from 0.
        start_SC: the first layer of each.
        count_SC: its layers.
        waiting_SC: micro-batches whose activations it holds at once.
        is_first_SC: 1 for the first stage, otherwise 0.
        is_last_SC: the same for the last one.
    """

    stage_SC: Ints
    start_SC: Ints
    count_SC: Floats
    waiting_SC: Floats
    is_first_SC: Floats
    is_last_SC: Floats

    @staticmethod
    def of(stage_SC: Ints, columns: MemoryLayouts, layers: int) -> Stages:
        """Look at ``stage_SC`` of each candidate's pipeline."""
        start_SC, count_SC = layers_on(stage_SC, columns.pipeline_C, layers)
        return Stages(
            stage_SC=stage_SC,
            start_SC=start_SC,
            count_SC=count_SC.astype(np.float64),
            waiting_SC=in_flight(stage_SC, columns),
            is_first_SC=(stage_SC == 0).astype(np.float64),
            is_last_SC=(stage_SC == columns.pipeline_C - 1).astype(np.float64),
        )

    def having(self, first: int, end: int) -> Floats:
        """How many of the layers ``first`` to ``end`` (exclusive) each stage has."""
        inside: Any = np.minimum(self.start_SC + self.count_SC, end)
        return np.asarray(np.maximum(inside - np.maximum(self.start_SC, first), 0.0))


def stages_of_peak(columns: MemoryLayouts, leading_layers: int, layers: int) -> Ints:
    """Stages of which one needs the most, as rows.

    Under 1F1B the waiting micro-batches fall from stage to stage, so that only the first one of
    each make of stage can be the fullest.

    Args:
        columns: the layouts.
        leading_layers: layers of another make that come first (encoder, dense before experts).
        layers: all layers.
    """
    last = columns.pipeline_C - 1
    rows = [np.zeros_like(last)]
    if (layers % columns.pipeline_C).any():
        rows.append(np.minimum(1, last))
    if leading_layers:
        per_stage = np.maximum(1, layers // columns.pipeline_C)
        after = -(-leading_layers // per_stage)
        rows += [np.minimum(after, last), np.minimum(after + 1, last)]
    return np.stack([*rows, last])


def layers_on(stage_SC: Ints, pipeline_C: Ints, layers: int) -> tuple[Ints, Ints]:
    """First layer and number of layers of each stage.

    Where the stages do not divide the layers but would with embedding and head counted as one
    each (Llama 3, 2024, section 3.3.2: 126 layers on 16 stages), the ends have one layer less;
    otherwise the first stages have one more.
    """
    each, more = layers // pipeline_C, layers % pipeline_C
    balanced = (more != 0) & ((layers + 2) % pipeline_C == 0)
    is_first, is_last = stage_SC == 0, stage_SC == pipeline_C - 1
    start_SC = np.where(
        balanced,
        stage_SC * (each + 1) - ~is_first,
        stage_SC * each + np.minimum(stage_SC, more),
    )
    count_SC = np.where(balanced, each + 1 - is_first - is_last, each + (stage_SC < more))
    return start_SC, count_SC


def in_flight(stage_SC: Ints, columns: MemoryLayouts) -> Floats:
    """Micro-batches whose activations a stage holds at once; fractions are chunks of its layers.

    Source:
        1F1B: Narayanan et al. 2019, "PipeDream", section 3.2. Interleaved: Narayanan et al. 2021,
        "Efficient Large-Scale Language Model Training", section 2.2; the first stage has
        1 + (p - 1) / (p v) of its layers' share (Korthikanti et al. 2022, section 4.2.3).
    """
    stages, chunks = columns.pipeline_C, columns.virtual_C
    behind = stages - stage_SC
    warm_up = np.where(chunks > 1, 2 * behind - 1 + (chunks - 1) * stages, behind)
    return np.asarray(np.minimum(warm_up, columns.accumulation_C * chunks) / chunks)
