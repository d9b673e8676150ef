"""Seconds of one optimizer step from the profile run. Not: memory, and no guess without timings.

Shapes: C = candidates.
"""

from __future__ import annotations

import numpy as np

from autoconf_launch.core import ModelSpec, Recompute

from ..table import CandidateTable, Floats
from .facts import TrainingFacts
from .line import fit
from .memory import covered

STEP_BAND = 0.3
"""Relative error to expect of a step's seconds; a guess until predictions are calibrated."""

_WORK = {Recompute.NONE: 1.0, Recompute.SELECTIVE: 1.05, Recompute.FULL: 4 / 3}
"""Work of forward and backward over that without recomputation: a full one repeats the forward
pass, a third of it (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost")."""


def step_seconds(
    table: CandidateTable,
    spec: ModelSpec,
    facts: TrainingFacts,
    *,
    bandwidth_bytes_per_s: float | None = None,
) -> Floats:
    """Seconds for each row; NaN without timings or where no formula covers the row.

    Args:
        table: the candidates.
        spec: the model with its timings.
        facts: precision.
        bandwidth_bytes_per_s: of a rank's link; None leaves communication out.
    """
    timed = [(t.micro_batch, t.forward_backward_s) for t in spec.timings if t.forward_backward_s]
    if not timed:
        return np.full(len(table), np.nan)
    line = fit(timed)
    work = np.empty(len(table))
    for kind, factor in _WORK.items():
        work[table.is_value("recompute", kind)] = factor
    micro_batches_s = table["accumulation"] * line.at(table["micro_batch"]) * work
    update_s = (spec.optimizer_step_s or 0.0) / np.where(
        table["zero_stage"] > 0, table["data_parallel"], 1
    )
    step_s = micro_batches_s + update_s
    if bandwidth_bytes_per_s:
        step_s = step_s + communicated_bytes(table, spec, facts) / bandwidth_bytes_per_s
    return np.where(covered(table), step_s, np.nan)


def communicated_bytes(table: CandidateTable, spec: ModelSpec, facts: TrainingFacts) -> Floats:
    """Bytes that a rank sends in one step: rings, (N-1)/N of a buffer for each pass over it.

    DDP reduces once a step, FSDP2 gathers and scatters for each micro-batch.
    """
    ranks = table["data_parallel"]
    gradients = spec.trainable_parameters * spec.parameter_bytes_each
    weights = spec.parameters * facts.compute_bytes
    times = table["accumulation"]
    by_stage = (
        np.broadcast_to(2 * gradients, ranks.shape),
        np.broadcast_to(3 * gradients, ranks.shape),
        times * (weights + gradients),
        times * (2 * weights + gradients),
    )
    passes = np.choose(table["zero_stage"], by_stage)
    return np.asarray(passes * (ranks - 1) / ranks, np.float64)
