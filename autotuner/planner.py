"""Predictions for a whole table, and the rule that follows from memory. Not: the formulas."""

from __future__ import annotations

import numpy as np

from autoconf_launch.core import ClusterSpec, Grade, MemoryUse, ModelSpec

from .constraints import Rule, blocks_fill_units
from .cost.compute import STEP_BAND, least_step_s, step_seconds
from .cost.exchange import Network
from .cost.facts import TrainingFacts
from .cost.memory import memory_parts
from .dominance import MEMORY_BAND
from .space import SearchSpace
from .table import Bools, CandidateTable, PredictionTable

_WITHOUT_WEIGHTS = ("micro_batch", "micro_batch_split", "accumulation", "recompute")
"""Knobs that change no rank's weights."""


def predict(
    table: CandidateTable, spec: ModelSpec | None, cluster: ClusterSpec, facts: TrainingFacts
) -> PredictionTable:
    """What is known of each row before it runs; NaN throughout without a model."""
    if spec is None:
        unknown = np.full(len(table), np.nan)
        return PredictionTable(
            peak_bytes_C=unknown, step_s_C=unknown, band=None, how="the model is not known"
        )
    network = Network.of(cluster)
    step = step_seconds(table, spec, facts, network)
    on_gpu = not all(device.name.startswith("cpu") for device in cluster.devices)
    return PredictionTable(
        peak_bytes_C=memory_parts(table, spec, facts, foreach=on_gpu).peak_bytes_C,
        step_s_C=step.step_s_C,
        least_step_s_C=least_step_s(table, spec),
        parts=step.parts(),
        limit_bytes=cluster.least_memory_bytes,
        band=STEP_BAND,
        how=_how(spec, network),
    )


def memory_rule(
    predictions: PredictionTable, cluster: ClusterSpec, band: float = MEMORY_BAND
) -> Rule:
    """Rows that may fit: dropped is only what exceeds the smallest device by more than ``band``.

    The rule holds for the table that ``predictions`` were made for, and for no other.
    """
    limit_bytes = cluster.least_memory_bytes

    def keep(table: CandidateTable) -> Bools:
        if len(table) != len(predictions):
            raise ValueError(f"{len(predictions)} predictions are not of {len(table)} candidates")
        return ~(predictions.peak_bytes_C * (1 - band) > limit_bytes)

    return Rule(
        name="memory",
        keep=keep,
        why=f"a rank would need more than its {limit_bytes / 1e9:.2f} GB",
    )


def state_beyond_memory(
    space: SearchSpace, spec: ModelSpec | None, cluster: ClusterSpec, facts: TrainingFacts
) -> str | None:
    """A sentence where no candidate's ranks can hold even weights, gradients and optimizer state.

    None where one may, or where no formula says what one needs.
    """
    if spec is None:
        return None
    least_bytes, limit_bytes = np.inf, cluster.least_memory_bytes
    for table in (CandidateTable.from_candidates((space.baseline,)), space.table):
        parts = memory_parts(table, spec, facts)
        state_bytes_C = parts.parameters_bytes_C + parts.gradients_bytes_C
        if facts.optimizer is not None:  # else the script makes its own, which may have none
            state_bytes_C = state_bytes_C + parts.optimizer_bytes_C
        least_bytes = np.minimum(least_bytes, np.min(state_bytes_C, initial=np.inf))
    if not least_bytes * (1 - MEMORY_BAND) > limit_bytes:
        return None
    state = "gradients" if facts.optimizer is None else "gradients and optimizer state"
    return (
        f"The model does not fit: {spec.parameters / 1e6:,.1f} M parameters with their {state} "
        f"take at least {least_bytes / 1e9:.3g} GB per rank, and its memory is "
        f"{limit_bytes / 1e9:.3g} GB. Use more ranks, or ranks with more memory."
    )


def weights_beyond_memory(space: SearchSpace, refused: MemoryUse | None) -> str | None:
    """A sentence where weights alone did not fit, and no candidate lays them out otherwise."""
    if refused is None or not np.all(space.table.matches(space.baseline, but=_WITHOUT_WEIGHTS)):
        return None
    return (
        f"The model does not fit: its weights alone take at least {refused.peak_bytes / 1e9:.3g} "
        f"GB per rank, which has {refused.free_before_bytes / 1e9:.3g} GB. Use ranks with more "
        "memory, or shard the weights over more ranks."
    )


def knob_rules(spec: ModelSpec | None) -> tuple[Rule, ...]:
    """What the structure of a model that was looked at surely rules out of further knobs."""
    if spec is None or spec.grade not in (Grade.TRACED, Grade.MEASURED):
        return ()
    return (blocks_fill_units(sum(block.count for block in spec.blocks)),)


def _how(spec: ModelSpec, network: Network | None) -> str:
    memory = "traced memory" if spec.traced_peaks else "memory by formula"
    timed = sum(timing.forward_backward_s > 0 for timing in spec.timings)
    if not timed:
        return f"{memory} only"
    links = " and links" if network else ""
    return f"{memory}, time from {timed} profiled micro-batches{links}"
