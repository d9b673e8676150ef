"""Measured candidates that a tuner may be run against. Not: reading them (launcher), nor running.

Shapes: C = candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.core import Candidate, Failure, FailureKind

from .knobs import candidate_name
from .table import Bools, CandidateTable, Floats, PredictionTable
from .trial import FailedTrial, Measurement, Record, Trial


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Landscape:
    """One model on one machine, in an order that says nothing of what is good.

    Attributes:
        name: of the group, for people.
        table: different candidates.
        step_s_C: measured seconds of a step of the candidate's global batch; NaN where it ran
            out of memory.
        predictions: made without any of these measurements.
    """

    name: str
    table: CandidateTable
    step_s_C: Floats
    predictions: PredictionTable | None = None

    def __len__(self) -> int:
        return len(self.table)

    @property
    def cost_s_C(self) -> Floats:
        """Seconds of a sample; infinite where there was not enough memory."""
        cost_s = self.step_s_C / self.table.global_batch_C
        return np.where(np.isnan(cost_s), np.inf, cost_s)

    @property
    def regret_C(self) -> Floats:
        """How much more than the best each candidate takes, as a share."""
        cost_s = self.cost_s_C
        return np.asarray(cost_s / cost_s.min() - 1.0)

    def record(self, row: int, number: int) -> Record:
        """What a trial of a row gives."""
        candidate = self.table.row(row)
        trial = Trial(
            number=number,
            name=candidate_name(candidate),
            candidate=candidate,
            space=family(self, row),
        )
        step_s = float(self.step_s_C[row])
        outcome: Measurement | FailedTrial = _OUT_OF_MEMORY
        if not np.isnan(step_s):
            outcome = Measurement(
                step_s=(step_s,),
                samples_per_step=candidate.layout.global_batch,
                world_size=candidate.layout.world_size,
            )
        predicted = None if self.predictions is None else self.predictions.row(row)
        return Record(trial=trial, outcome=outcome, wall_s=0.0, prediction=predicted)


_OUT_OF_MEMORY = FailedTrial(
    failure=Failure(kind=FailureKind.OUT_OF_MEMORY, detail="it ran out of memory when measured")
)


def family(landscape: Landscape, row: int) -> str:
    """Stage that a row belongs to: its ZeRO stage, and which degrees are above 1."""
    table = landscape.table
    tags = [tag for knob, tag in _DEGREES if table[knob][row] > 1]
    return "_".join((f"z{table['zero_stage'][row]}", *tags))


_DEGREES = (
    ("tensor_parallel", "tp"),
    ("pipeline_parallel", "pp"),
    ("context_parallel", "cp"),
    ("expert_parallel", "ep"),
)


def families(landscape: Landscape) -> tuple[tuple[str, Bools], ...]:
    """Stages with their rows: the fewest kinds of parallelism first, then by ZeRO stage."""
    names = np.array([family(landscape, row) for row in range(len(landscape))])
    order = sorted(set(names.tolist()), key=lambda name: (name.count("_"), name))
    return tuple((name, names == name) for name in order)


def merged(landscape: Landscape, samples_C: Sequence[float]) -> Landscape:
    """Equal candidates as one, with the median of what was measured, in the order of knobs.

    Args:
        landscape: rows as they were measured, times and predictions of what was really trained on.
        samples_C: that this was; times are scaled to the candidate's global batch, which differs
            where a last micro-batch is smaller.
    """
    table = landscape.table
    factor_C = table.global_batch_C / np.asarray(samples_C, float)
    scaled_s = landscape.step_s_C * factor_C
    kept: dict[Candidate, list[int]] = {}
    for row in np.lexsort([column.codes for _, column in reversed(table.columns)]).tolist():
        kept.setdefault(table.row(row), []).append(row)
    first = [rows[0] for rows in kept.values()]
    predictions = landscape.predictions
    return replace(
        landscape,
        table=table.take(first),
        step_s_C=np.array([_median(scaled_s[rows]) for rows in kept.values()]),
        predictions=None if predictions is None else _scaled(predictions, factor_C).take(first),
    )


def _median(repeats_s: Floats) -> float:
    """NaN where most of the repeats failed."""
    ran = repeats_s[~np.isnan(repeats_s)]
    return float(np.median(ran)) if 2 * len(ran) > len(repeats_s) else float("nan")


def _scaled(predictions: PredictionTable, factor_C: Floats) -> PredictionTable:
    least_s = predictions.least_step_s_C
    return replace(
        predictions,
        step_s_C=predictions.step_s_C * factor_C,
        least_step_s_C=None if least_s is None else least_s * factor_C,
        parts=tuple((name, seconds * factor_C) for name, seconds in predictions.parts),
    )
