"""Upper bounds of what a launch takes, from what was measured. Not: what may be spent (limits).

Of a step: that of the nearest measured candidate, times as much more as the planner says of the
two with its band. Without predictions, as its micro-batch and its accumulation are larger, with
room for steps that grow faster than their samples. Of a launch: the longest start of the latest
ones, and its steps.
Shapes: C = candidates of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from autoconf_launch.core import Candidate

from .table import CandidateTable, Floats, PredictionTable
from .trial import Measurement, Record

MARGIN = 1.25
"""Of a step that was measured: launches of one configuration were seen to differ by 12 to 25 %."""
_GROWTH = 1.2
"""Power of the micro-batch: 256 times the samples took up to 800 times as long, once caches were
full."""
_OTHER_STRUCTURE = 2.0
"""Another ZeRO stage or another value of a further knob, of which nothing is predicted."""
_LATEST = 5


class StepBounds:
    """Of an optimizer step of each row, as records come."""

    def __init__(self, table: CandidateTable, predictions: PredictionTable | None) -> None:
        self._table, self._predictions = table, predictions
        self._nearest_C = np.full(len(table), np.inf)
        self._bound_s_C = np.full(len(table), np.inf)
        self._count = 0

    def add(self, records: Sequence[Record]) -> None:
        """Take records of which those of the last call are the first."""
        for record in records[self._count :]:
            self._count += 1
            if record.measurement is None:
                continue
            growth_C = _growth(self._table, record.trial.candidate)
            known = self._predictions
            found_C = growth_C if known is None else _predicted(growth_C, known, record)
            nearer_C = growth_C < self._nearest_C
            step_s_C = MARGIN * record.measurement.mean_step_s * found_C
            self._nearest_C = np.where(nearer_C, growth_C, self._nearest_C)
            self._bound_s_C = np.where(nearer_C, step_s_C, self._bound_s_C)

    def and_of(self, later: StepBounds) -> Floats:
        """Upper bounds by these records, and then by those of another one of the same rows."""
        nearer_C = later._nearest_C < self._nearest_C
        return np.where(nearer_C, later._bound_s_C, self._bound_s_C)


def step_bounds_s(
    table: CandidateTable, predictions: PredictionTable | None, records: Sequence[Record]
) -> Floats:
    """Upper bounds of an optimizer step of each row; infinite where nothing was measured."""
    bounds = StepBounds(table, predictions)
    bounds.add(records)
    return bounds.and_of(bounds)


class LaunchBounds:
    """What a launch of each row takes at most, by the trials and the repeats of a search."""

    def __init__(
        self, table: CandidateTable, predictions: PredictionTable | None, *, steps: int
    ) -> None:
        self._trials = StepBounds(table, predictions)
        self._repeats = StepBounds(table, predictions)
        self._steps = steps

    def seconds_C(self, records: Sequence[Record], repeats: Sequence[Record]) -> Floats:
        """Of each row; both grow from call to call."""
        self._trials.add(records)
        self._repeats.add(repeats)
        start_s = start_bound_s((*records, *repeats))
        return start_s + self._steps * self._trials.and_of(self._repeats)


def start_bound_s(records: Sequence[Record]) -> float:
    """Of what a launch takes beside its steps; 0 where no end of a launch was seen."""
    starts_s = (
        record.wall_s - record.measurement.mean_step_s * steps_made(record.measurement)
        for record in reversed(records)
        if record.measurement and record.wall_s
    )
    return MARGIN * max([0.0, *islice(starts_s, _LATEST)])


def steps_made(measured: Measurement) -> int:
    """Those that do not count with them."""
    return (measured.first_step or 1) - 1 + len(measured.step_s)


def _growth(table: CandidateTable, measured: Candidate) -> Floats:
    """How many times as long a step may be, if nothing but its samples tell."""
    layout = measured.layout
    larger_C = np.maximum(1.0, table["micro_batch"] / layout.micro_batch) ** _GROWTH
    growth_C = np.maximum(1.0, larger_C * table["accumulation"] / layout.accumulation)
    alike_C = table.matches(measured, but=("micro_batch", "accumulation"))
    return np.asarray(np.where(alike_C, growth_C, _OTHER_STRUCTURE * growth_C))


def _predicted(growth_C: Floats, predictions: PredictionTable, record: Record) -> Floats:
    """The same as the planner says it, where it says something."""
    predicted_s = record.prediction.step_s if record.prediction else None
    if not predicted_s:
        return growth_C
    ratio_C = predictions.step_s_C / predicted_s * (1.0 + (predictions.band or 0.0))
    return np.where(np.isnan(ratio_C), growth_C, ratio_C)
