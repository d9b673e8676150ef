"""Memory of one rank on each pipeline stage, part by part. Not: what fits (a rule), nor time.

These formulas are for transformers by their published shapes on any layout; those of ``memory``
are for our own runtime and whatever model it profiled.
Shapes: S = stages, C = candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from autoconf_launch.core import Architecture

from ..table import Floats, Ints
from .activation_memory import ActivationBytes, activation_bytes
from .broadcast import broadcast_sum
from .local_weights import LocalWeights, local_weights, trained_weights
from .memory_layouts import MemoryLayouts
from .memory_overheads import Overheads, overheads
from .model_state import ModelState, model_state
from .parameter_count import model_weights
from .stage_layers import Stages, stages_of_peak
from .training_setup import TrainingSetup

MEMORY_BAND = 0.10
"""Relative error to expect: nine of ten published peaks lie within 7.3 %, and those are of few
models and codes."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageMemory:
    """Bytes of one rank at the fullest moment of a step; the parts add up to the peak.

    ``stage_SC`` says which pipeline stage each row is of.
    """

    stage_SC: Ints
    state: ModelState
    activations: ActivationBytes
    overheads: Overheads

    def parts(self) -> tuple[tuple[str, Floats], ...]:
        """Name (``weights``, ``mlp``, ``context``, …) and bytes of each part, in order."""
        groups = (self.state, self.activations, self.overheads)
        return tuple(
            (part.name.removesuffix("_SC"), getattr(group, part.name))
            for group in groups
            for part in fields(group)
        )

    @property
    def total_SC(self) -> Floats:
        """Sum of all parts on each stage."""
        return broadcast_sum(part for _, part in self.parts())

    @property
    def peak_C(self) -> Floats:
        """What the fullest of these stages needs."""
        return np.asarray(self.total_SC.max(axis=0), np.float64)


def memory_bytes(
    columns: MemoryLayouts,
    architecture: Architecture,
    setup: TrainingSetup,
    stages: Ints | None = None,
) -> StageMemory:
    """All parts for each candidate.

    Args:
        columns: the layouts; shapes that broadcast.
        architecture: the model.
        setup: what the training does.
        stages: stages of the pipeline as rows, broadcast against the candidates; None takes those
            few of which one is the fullest.
    """
    weights = model_weights(architecture)
    leading = weights.encoder_layers + weights.dense_layers
    layers = leading + weights.repeated_layers
    if stages is None:
        stages = stages_of_peak(columns, leading, layers)
    looked_at = Stages.of(stages, columns, layers)
    local = local_weights(weights, columns, looked_at)
    trained = _trained(architecture, setup, columns, looked_at, local)
    activations = activation_bytes(architecture, weights, columns, setup, looked_at)
    return StageMemory(
        stage_SC=stages,
        state=model_state(local, trained, columns, setup),
        activations=activations,
        overheads=overheads(
            (local, trained), activations, columns, setup, (looked_at, architecture.hidden)
        ),
    )


def peak_bytes(columns: MemoryLayouts, architecture: Architecture, setup: TrainingSetup) -> Floats:
    """Bytes that the fullest rank of each candidate needs."""
    return memory_bytes(columns, architecture, setup).peak_C


def _trained(
    a: Architecture,
    setup: TrainingSetup,
    columns: MemoryLayouts,
    stages: Stages,
    local: LocalWeights,
) -> LocalWeights:
    if setup.lora_rank is None and not setup.frozen:
        return local
    return local_weights(trained_weights(a, setup), columns, stages)
