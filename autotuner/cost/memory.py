"""Memory of one rank by formula, part by part. Not: what fits (a rule of the planner).

The formulas are of our runtime: stored weights are fp32; stages 0 and 1 are DDP, whose buckets
hold the gradients and which computes in 16 bits by autocast; stages 2 and 3 are FSDP2, which
gathers weights in the precision of the run and scatters gradients with each micro-batch.
Shapes: C = candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from autoconf_launch.core import Grade, ModelSpec, Recompute

from ..knobs import KNOBS, Naming
from ..table import Bools, CandidateTable, Floats
from .activations import activation_line, recompute_factor
from .facts import TrainingFacts
from .line import Line

__all__ = ["GRADES", "MemoryParts", "TrainingFacts", "covered", "memory_parts"]

GRADES = frozenset({Grade.ARCHITECTURE, Grade.TRACED, Grade.MEASURED})
"""Descriptions of a model that these formulas can read."""

_LOGIT_BYTES = 4  # the gradient of the loss by its logits is fp32 in every precision
_REDUCED_BYTES = 4
_UNITS_IN_FLIGHT = 2  # the one in use and the next, which is prefetched


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryParts:
    """Bytes of one rank at the fullest moment of a step; their sum is the peak.

    Attributes:
        parameters_bytes_C: weights at rest, frozen ones included.
        gradients_bytes_C: gradients of trainable weights.
        copies_bytes_C: gradients of earlier micro-batches, which DDP copies into its buckets
            only with the last one; all of them where they do not live in buckets.
        optimizer_bytes_C: the optimizer's state.
        gathered_bytes_C: weights in use beyond those at rest, and gradients before they are
            scattered.
        activations_bytes_C: what forward keeps for backward.
        logits_bytes_C: the gradient of the logits.
        update_bytes_C: temporaries of the optimizer beyond what backward has freed by then.
    """

    parameters_bytes_C: Floats
    gradients_bytes_C: Floats
    copies_bytes_C: Floats
    optimizer_bytes_C: Floats
    gathered_bytes_C: Floats
    activations_bytes_C: Floats
    logits_bytes_C: Floats
    update_bytes_C: Floats

    @property
    def peak_bytes_C(self) -> Floats:
        """Sum of all parts."""
        parts = [getattr(self, part.name) for part in fields(self)]
        return np.asarray(np.sum(parts, axis=0), np.float64)


def memory_parts(
    table: CandidateTable, spec: ModelSpec, facts: TrainingFacts, *, foreach: bool = False
) -> MemoryParts:
    """All parts for each row; NaN where no formula covers the row or the model.

    Args:
        table: the candidates.
        spec: the model.
        facts: optimizer and precision.
        foreach: the optimizer updates all weights at once, as torch does on GPUs.

    Source:
        Rajbhandari et al. 2020, "ZeRO", section 3, for what each stage shards.
    """
    each = spec.parameter_bytes_each
    weights, trained = spec.parameters * each, spec.trainable_parameters * each
    states = facts.states * trained
    known = np.where(covered(table) & (spec.grade in GRADES), 0.0, np.nan)
    logit_line = _logit_line(spec)
    logits = logit_line.at(table["micro_batch"])
    line = activation_line(
        spec, rest_bytes=weights + states, gradient_bytes=trained, logits=logit_line
    )
    activations = _activations(table, spec, facts, line)
    gathered = _gathered(table, spec, facts, autocast_bytes=line.fixed)
    temporary = _held(table, trained, sharded_from=1) if foreach and facts.states > 1 else 0.0
    return MemoryParts(
        parameters_bytes_C=known + _held(table, weights, sharded_from=2),
        gradients_bytes_C=known + _held(table, trained, sharded_from=2),
        copies_bytes_C=known + _copies(table, trained),
        optimizer_bytes_C=known + _held(table, states, sharded_from=1),
        gathered_bytes_C=known + gathered,
        activations_bytes_C=known + activations,
        logits_bytes_C=known + logits,
        update_bytes_C=known + np.maximum(0.0, temporary - activations - gathered - logits),
    )


def covered(table: CandidateTable) -> Bools:
    """Rows whose ranks differ only in their data; other kinds have no formula here yet."""
    rows = np.ones(len(table), np.bool_)
    for knob in KNOBS:
        if knob.naming is Naming.UNLESS_DEFAULT and knob.name != "recompute":
            rows &= table.is_value(knob.name, knob.default)
    return rows


def _held(table: CandidateTable, total_bytes: float, *, sharded_from: int) -> Floats:
    """The part of ``total_bytes`` that a rank holds when stages from one on shard it."""
    share = np.ceil(total_bytes / table["data_parallel"])
    return np.where(table["zero_stage"] < sharded_from, total_bytes, share)


def _copies(table: CandidateTable, trained_bytes: float) -> Floats:
    is_ddp = (table["zero_stage"] < 2) & (table["data_parallel"] > 1)
    outside = table.numbers("gradient_as_bucket_view", 1.0) == 0.0
    return np.where(is_ddp & ((table["accumulation"] > 1) | outside), trained_bytes, 0.0)


def _activations(
    table: CandidateTable, spec: ModelSpec, facts: TrainingFacts, line: Line
) -> Floats:
    factors = np.full(len(table), np.nan)
    for kind in Recompute:
        rows = table.is_value("recompute", kind)
        factors[rows] = recompute_factor(kind, spec, facts.compute_bytes)
    fixed = 0.0 if facts.compute_bytes < spec.parameter_bytes_each else line.fixed
    return np.asarray(Line(fixed, line.each).at(table["micro_batch"]) * factors, np.float64)


def _gathered(
    table: CandidateTable, spec: ModelSpec, facts: TrainingFacts, *, autocast_bytes: float
) -> Floats:
    """Weights in use beyond those at rest, and gradients on their way to shards.

    DDP under autocast keeps 16-bit copies of the weights. FSDP gathers all of them in stage 2,
    in stage 3 those outside of blocks and two units of blocks; a unit's whole gradients and the
    fp32 buffer in which they are reduced stand beside them.
    """
    size = facts.compute_bytes
    casts = 0.0 if size >= spec.parameter_bytes_each else autocast_bytes or spec.parameters * size
    repeated = [block for block in spec.blocks if block.count > 1]
    outside = spec.parameters - sum(block.count * block.parameters for block in repeated)
    largest = max((block.parameters for block in repeated), default=0)
    unit = largest * table.numbers("blocks_per_unit", 1.0)
    in_flight = np.maximum(_UNITS_IN_FLIGHT, 1 + table.numbers("forward_prefetch", 0.0))
    by_units = np.minimum(spec.parameters, outside + in_flight * unit)
    reduced = np.maximum(unit, outside) * (size + _REDUCED_BYTES)
    by_stage = (
        np.full(len(table), casts),
        np.full(len(table), casts),
        spec.parameters * size + reduced,
        by_units * size + reduced,
    )
    return np.asarray(np.choose(table["zero_stage"], by_stage), np.float64)


def _logit_line(spec: ModelSpec) -> Line:
    return Line(0.0, (spec.vocabulary_size or 0) * (spec.sequence_length or 0) * _LOGIT_BYTES)
