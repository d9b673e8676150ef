"""Progress of the exploration of one tuning space. Not: which stage is next (Study)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autoconf_launch.core import Layout

from .constraints import is_out_of_memory
from .settings import AutotuningSettings, Objective
from .table import CandidateTable, Ints
from .trial import Record

ZERO_SPACES = ("z0", "z1", "z2", "z3")
TUNING_SPACES = (*ZERO_SPACES, "tensor", "pipeline", "3d", "expert", "context")
"""Tuning spaces in the order of a staged search: data parallelism by its ZeRO stage, then each
family of model parallelism with all of its stages; 3d is tensor and pipeline together."""
_TENSOR, _PIPELINE, _BOTH, _EXPERT, _CONTEXT = range(len(ZERO_SPACES), len(TUNING_SPACES))


def space_numbers(table: CandidateTable) -> Ints:
    """Position in ``TUNING_SPACES`` of each row."""
    return _numbers(
        table["zero_stage"],
        tensor=table["tensor_parallel"],
        pipeline=table["pipeline_parallel"],
        expert=table["expert_parallel"],
        context=table["context_parallel"],
    )


def space_number(layout: Layout) -> int:
    """Position in ``TUNING_SPACES``."""
    tensor, pipeline, context, expert = layout.mesh
    found = _numbers(
        layout.zero_stage, tensor=tensor, pipeline=pipeline, expert=expert, context=context
    )
    return int(found)


def space_name(layout: Layout) -> str:
    """Tuning space of a layout, as tables have it."""
    return TUNING_SPACES[space_number(layout)]


def _numbers(zero_stage: Any, *, tensor: Any, pipeline: Any, expert: Any, context: Any) -> Ints:
    is_split, is_piped = np.asarray(tensor) > 1, np.asarray(pipeline) > 1
    rows = [np.asarray(context) > 1, np.asarray(expert) > 1, is_split & is_piped]
    rows += [is_piped, is_split]
    numbers: Any = [_CONTEXT, _EXPERT, _BOTH, _PIPELINE, _TENSOR]
    return np.asarray(np.select(rows, numbers, default=zero_stage), np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProgress:
    """Progress of a stage.

    Attributes:
        name: a name in ``TUNING_SPACES``.
        experiments: trials that came back, the baseline and second attempts included.
        tried: candidates that came back.
        best: best measured record, the earlier one if two are equal.
        since_best: trials in a row that were no better, within a phase; out of memory does not
            count, as it says nothing of speed.
        further: the phase of the other knobs has begun.
    """

    name: str
    experiments: int = 0
    tried: int = 0
    best: Record | None = None
    since_best: int = 0
    further: bool = False

    def after(self, record: Record, objective: Objective, *, further: bool) -> StageProgress:
        """Progress with one more record; ``further``: the trial changes other knobs."""
        trial = record.trial
        counted = replace(
            self,
            experiments=self.experiments + 1,
            tried=self.tried + (trial.number > 0 and trial.attempt == 1),
            since_best=self.since_best if further == self.further else 0,
            further=self.further or further,
        )
        if is_better(record, self.best, objective):
            return replace(counted, best=record, since_best=0)
        if is_out_of_memory(record):
            return counted
        return replace(counted, since_best=counted.since_best + 1)

    def remaining(self, settings: AutotuningSettings, running: int, *, further: bool) -> int:
        """Trials that may still start in a phase, besides the ``running`` trials of this stage."""
        impatient = self.since_best >= settings.patience
        if further == self.further and impatient:
            return 0
        return max(0, settings.tuner_num_trials - self.tried - running)


def is_better(record: Record, best: Record | None, objective: Objective) -> bool:
    """True if a record has the metric and beats ``best``; equal ones do not."""
    value = objective.of(record)
    if value is None:
        return False
    best_value = objective.of(best) if best else None
    return best_value is None or objective.better(value, best_value)
