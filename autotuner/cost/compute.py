"""Seconds of one optimizer step from the profile run. Not: memory, and no guess without timings.

Shapes: C = candidates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from autoconf_launch.core import MicroBatchTiming, ModelSpec, Recompute

from ..noise import PRIOR, t_quantile
from ..table import CandidateTable, Floats
from .exchange import Network, exchange_s
from .facts import TrainingFacts
from .line import fit
from .memory import covered

STEP_BAND = 0.3
"""Relative error to expect of a step's seconds; a guess until predictions are calibrated."""

_WORK = {Recompute.NONE: 1.0, Recompute.SELECTIVE: 1.05, Recompute.FULL: 4 / 3}
"""Work of forward and backward over that without recomputation: a full one repeats the forward
pass, a third of it (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost")."""

_CALMER = math.exp(-t_quantile(0.98, PRIOR.between_freedom) * math.sqrt(2.0) * PRIOR.between)
"""What one launch in fifty takes less than, over another one minutes before."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepSeconds:
    """Seconds that add up to one step; NaN throughout where no formula covers the row.

    Attributes:
        samples_s_C: what each sample costs, at the rate that large micro-batches reach.
        launch_s_C: what each micro-batch costs whatever its size.
        recompute_s_C: forward passes that are made again.
        communication_s_C: between ranks, where nothing hides it; 0 where links are not known.
        update_s_C: the optimizer's.
    """

    samples_s_C: Floats
    launch_s_C: Floats
    recompute_s_C: Floats
    communication_s_C: Floats
    update_s_C: Floats

    @property
    def step_s_C(self) -> Floats:
        """Sum of all parts."""
        return np.asarray(np.sum([part for _, part in self.parts()], axis=0), np.float64)

    def parts(self) -> tuple[tuple[str, Floats], ...]:
        """Name (``samples``, ``launch``, …) and seconds of each part, in order."""
        return tuple(
            (part.name.removesuffix("_s_C"), getattr(self, part.name)) for part in fields(self)
        )


def step_seconds(
    table: CandidateTable, spec: ModelSpec, facts: TrainingFacts, network: Network | None = None
) -> StepSeconds:
    """Seconds for each row; NaN without timings or where no formula covers the row.

    Args:
        table: the candidates.
        spec: the model with its timings.
        facts: precision.
        network: between ranks; None leaves communication out.
    """
    timed = [(t.micro_batch, t.forward_backward_s) for t in _timed(spec)]
    if not timed:
        unknown = np.full(len(table), np.nan)
        return StepSeconds(**{part.name: unknown for part in fields(StepSeconds)})
    line = fit(timed)
    known = np.where(covered(table), 0.0, np.nan)
    work = _work(table)
    times, micro = table["accumulation"], table["micro_batch"]
    micro_batch_s = line.at(micro)
    update_s = (spec.optimizer_step_s or 0.0) / np.where(
        table["zero_stage"] > 0, table["data_parallel"], 1
    )
    communication = (
        exchange_s(table, spec, facts, network, micro_batch_s * work)
        if network
        else np.zeros(len(table))
    )
    return StepSeconds(
        samples_s_C=known + times * micro * line.each,
        launch_s_C=known + times * line.fixed,
        recompute_s_C=known + times * micro_batch_s * (work - 1.0),
        communication_s_C=known + communication,
        update_s_C=known + update_s,
    )


def least_step_s(table: CandidateTable, spec: ModelSpec) -> Floats:
    """What no step of a row comes below by the profile: its samples alone, no launch, no exchange.

    A sample costs no less than a larger micro-batch took at the fastest beyond a smaller one, less
    what a launch as far away in time may be slower without cause. NaN where nothing was timed or
    no formula covers the row.
    """
    timed = sorted(_timed(spec), key=lambda timing: timing.micro_batch)
    if not timed:
        return np.full(len(table), np.nan)
    known = np.where(covered(table), 0.0, np.nan)
    samples = table["accumulation"] * table["micro_batch"]
    return np.asarray(known + samples * _work(table) * _least_sample_s(timed) * _CALMER)


def _least_sample_s(timed: Sequence[MicroBatchTiming]) -> float:
    """Of timings in the order of their micro-batches."""
    small, large = timed[0], timed[-1]
    fastest_s = large.fastest_s or large.forward_backward_s
    if small is large:
        return fastest_s / large.micro_batch
    beyond_s = fastest_s - small.forward_backward_s
    line = fit([(t.micro_batch, t.forward_backward_s) for t in timed])
    return max(0.0, min(line.each, beyond_s / (large.micro_batch - small.micro_batch)))


def _timed(spec: ModelSpec) -> tuple[MicroBatchTiming, ...]:
    return tuple(timing for timing in spec.timings if timing.forward_backward_s)


def _work(table: CandidateTable) -> Floats:
    work = np.empty(len(table))
    for kind, factor in _WORK.items():
        work[table.is_value("recompute", kind)] = factor
    return work
