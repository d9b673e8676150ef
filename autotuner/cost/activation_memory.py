"""Activations of one rank on each pipeline stage, by kind. Not: what a layer keeps of a token.

Shapes: S = stages, C = candidates.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autoconf_launch.core import Architecture, Recompute

from ..table import Floats, Ints
from .block_activations import (
    Split,
    backward_temporaries,
    kept,
)
from .memory_layouts import RECOMPUTE_CODES, MemoryLayouts
from .model_state import framework_of
from .parameter_count import ModelWeights
from .stage_layers import Stages
from .training_setup import Framework, TrainingSetup

_FULL = RECOMPUTE_CODES[Recompute.FULL]
_NOTHING = np.zeros(())
_MASK_BYTES = 1
_TOKEN_BYTES = 8
_LOGIT_BYTES = {Framework.MEGATRON: 6.0, Framework.DEEPSPEED: 10.0, Framework.FSDP: 14.0}
"""Megatron-core's vocab_parallel_cross_entropy works in place on fp32 logits beside 16-bit ones;
older versions copy them once; torch's cross_entropy holds logits, log-softmax and two gradients
in fp32 beside 16-bit logits."""
_FUSED_LOGIT_BYTES = 6.0
_PARALLEL_LOGIT_BYTES = 18.0
"""torch's loss_parallel: its backward makes one more fp32 array."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActivationBytes:
    """Bytes of one rank: kept for the backward pass, then what comes and goes.

    Attributes:
        inputs_SC: inputs of layers that are recomputed in full.
        embedding_SC: tokens and what the embedding keeps.
        logits_SC: logits, the loss and their gradients, on the last stage.
        working_SC: the layer being computed (again), beyond what ``logits_SC`` leaves free.
    """

    norms_SC: Floats
    attention_SC: Floats
    scores_SC: Floats
    mlp_SC: Floats
    dropout_SC: Floats
    inputs_SC: Floats
    embedding_SC: Floats
    logits_SC: Floats
    working_SC: Floats


@dataclass(frozen=True, slots=True)
class _Run:
    """Equal layers in a row, and how many of them a stage has."""

    sparse: bool
    crossed: bool
    here_SC: Floats


def activation_bytes(
    a: Architecture,
    weights: ModelWeights,
    columns: MemoryLayouts,
    setup: TrainingSetup,
    stages: Stages,
) -> ActivationBytes:
    """Activations at the fullest moment of each stage."""
    tokens_C = columns.micro_batch_C * setup.sequence / columns.context_C
    whole_C = tokens_C / np.where(columns.sequence_parallel_C, columns.tensor_C, 1)
    split_C = tokens_C / columns.tensor_C
    waiting_SC = stages.waiting_SC
    rows_C = _rule_rows(columns)
    runs = _runs(a, weights, stages)
    again_SC = _recomputed(columns, stages.count_SC)
    share_SC = (1 - again_SC / np.maximum(1.0, stages.count_SC)) * waiting_SC

    held = [run.here_SC * share_SC for run in runs]

    def of_kind(kind: str) -> Floats:
        total = _NOTHING
        for run, held_SC in zip(runs, held, strict=True):
            whole, split = _by_rule(a, setup, (run.sparse, run.crossed), kind)
            if whole.any() or split.any():
                each_C = whole[rows_C] * whole_C + split[rows_C] * split_C
                total = total + held_SC * each_C
        return total

    logits_SC = _logits(a, columns, setup, stages.is_last_SC, tokens_C)
    working_C = _working(a, columns, setup, runs, (rows_C, tokens_C, whole_C, split_C))
    masks = a.hidden * _MASK_BYTES if setup.dropout else 0
    return ActivationBytes(
        norms_SC=of_kind("norms"),
        attention_SC=of_kind("attention"),
        scores_SC=of_kind("scores"),
        mlp_SC=of_kind("mlp"),
        dropout_SC=of_kind("dropout"),
        inputs_SC=again_SC * waiting_SC * whole_C * (a.hidden * setup.value_bytes),
        embedding_SC=stages.is_first_SC
        * waiting_SC
        * (masks * whole_C + 2 * _TOKEN_BYTES * tokens_C),
        logits_SC=logits_SC,
        working_SC=np.maximum(0.0, working_C - logits_SC),
    )


def _runs(a: Architecture, weights: ModelWeights, stages: Stages) -> list[_Run]:
    crossed, first = a.encoder_layers > 0, 0
    runs = []
    for number, sparse, crosses in (
        (weights.encoder_layers, False, False),
        (weights.dense_layers, False, crossed),
        (weights.repeated_layers, a.experts is not None, crossed),
    ):
        if number:
            runs.append(_Run(sparse, crosses, stages.having(first, first + number)))
        first += number
    return runs


def _recomputed(columns: MemoryLayouts, count_SC: Floats) -> Floats:
    """Layers of each stage that are recomputed in full."""
    wanted_C = columns.recompute_layers_C
    covered_SC = np.where(wanted_C < 0, count_SC, np.minimum(wanted_C, count_SC))
    return np.asarray(covered_SC * (columns.recompute_C == _FULL))


def _rule_rows(columns: MemoryLayouts) -> Ints:
    return columns.zero_stage_C * len(RECOMPUTE_CODES) + columns.recompute_C


@lru_cache(maxsize=256)
def _by_rule(
    a: Architecture, setup: TrainingSetup, make: tuple[bool, bool], kind: str
) -> tuple[Floats, Floats]:
    """Bytes per token by ZeRO stage (which may mean another framework) and recomputation.

    Args:
        a: the model.
        setup: what the training does.
        make: whether the layer has experts, and whether it attends to an encoder.
        kind: an attribute of ``LayerActivations``.
    """
    sparse, crossed = make
    found: list[Split] = [
        getattr(kept(a, setup, framework_of(z, setup), one, sparse=sparse, crossed=crossed), kind)
        for z in range(4)
        for one in Recompute
    ]
    return np.array([s.whole for s in found]), np.array([s.split for s in found])


@lru_cache(maxsize=64)
def _again_by_rule(
    a: Architecture, setup: TrainingSetup, make: tuple[bool, bool]
) -> tuple[Floats, Floats]:
    """Bytes per token of what a layer makes again, and of its gradients; as ``_by_rule``."""
    sparse, crossed = make
    framework = framework_of(0, setup)
    every = kept(a, setup, framework, Recompute.NONE, sparse=sparse, crossed=crossed).total
    whole, split = _by_rule(a, setup, make, "total")
    covers = np.array([kind is Recompute.FULL for _ in range(4) for kind in Recompute])
    gradients = backward_temporaries(a, setup, sparse=sparse)
    again_whole = np.where(covers, every.whole, np.maximum(0.0, every.whole - whole))
    again_split = np.where(covers, every.split, np.maximum(0.0, every.split - split))
    return again_whole + gradients.whole, again_split + gradients.split


def _working(
    a: Architecture,
    columns: MemoryLayouts,
    setup: TrainingSetup,
    runs: list[_Run],
    cells: tuple[Ints, Floats, Floats, Floats],
) -> Floats:
    """What is recomputed of the largest layer, its gradients, and its gathered input."""
    rows_C, tokens_C, whole_C, split_C = cells
    gathers_C = columns.sequence_parallel_C & (columns.tensor_C > 1)
    largest: Floats | float = 0.0
    for run in runs:
        whole, split = _again_by_rule(a, setup, (run.sparse, run.crossed))
        one_C = whole[rows_C] * whole_C + split[rows_C] * split_C
        largest = np.maximum(largest, one_C)
    return np.asarray(largest + gathers_C * tokens_C * (a.hidden * setup.value_bytes))


def _logits(
    a: Architecture,
    columns: MemoryLayouts,
    setup: TrainingSetup,
    is_last_SC: Floats,
    tokens_C: Floats,
) -> Floats:
    """Logits and loss, split over the vocabulary, and the last hidden states.

    torch's pipeline keeps the outputs of all micro-batches (``PipelineStage.output_chunks``).
    """
    by_stage = np.array([_LOGIT_BYTES[framework_of(z, setup)] for z in range(4)])
    is_fsdp = np.array([framework_of(z, setup) is Framework.FSDP for z in range(4)])
    each_C = by_stage[columns.zero_stage_C]
    parallel_C = is_fsdp[columns.zero_stage_C] & (columns.tensor_C > 1)
    each_C = np.where(parallel_C, _PARALLEL_LOGIT_BYTES, each_C)
    if setup.fused_loss:
        each_C = np.minimum(each_C, _FUSED_LOGIT_BYTES)
    gathered_C = columns.sequence_parallel_C & (columns.tensor_C > 1)
    states_C = tokens_C * (2 * a.hidden * setup.value_bytes) * gathered_C
    pipelined_C = is_fsdp[columns.zero_stage_C] & (columns.pipeline_C > 1)
    outputs_C = pipelined_C * (columns.accumulation_C - 1) * setup.value_bytes
    logits_C = tokens_C / columns.tensor_C * a.vocabulary * (each_C + outputs_C)
    return np.asarray(is_last_SC * (logits_C + states_C))
