"""What a rank holds beside model state and activations. Not: either of those.

Shapes: S = stages, C = candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from autoconf_launch.core import Precision

from ..table import Bools, Floats
from .activation_memory import ActivationBytes
from .broadcast import broadcast_sum
from .local_weights import LocalWeights
from .memory_layouts import MemoryLayouts
from .model_state import framework_of, update_bytes
from .stage_layers import Stages
from .training_setup import Framework, TrainingSetup

CONTEXT_BYTES = 0.75 * 2**30
"""CUDA context, kernels and library workspaces of one process."""
NCCL_BYTES = 1.0 * 2**30
"""NCCL's own buffers: a few communicators with two buffers of 4 MiB for each of 24 to 32 channels
(NCCL_BUFFSIZE); taken as one figure, since how many there are depends on the framework."""
FRAGMENTATION = 0.04
"""Of what comes and goes: reserved by torch's allocator over what is allocated."""
COMPILED_FRAGMENTATION = 0.01
"""The same where a compiler plans which buffers are used again."""
_BUCKET_VALUES = 5e8
"""DeepSpeed's ``reduce_bucket_size`` by default."""
_BF16_GATHER_VALUES = 5e9
"""``allgather_bucket_size`` of its BF16_Optimizer by default."""
_LIVE_VALUES = 1e9
"""DeepSpeed's ``stage3_max_live_parameters`` by default."""
_LAYERS_IN_FLIGHT = 2
_REDUCED_BYTES = 4.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Overheads:
    """Bytes of one rank.

    Attributes:
        gathered_SC: weights in use beyond those at rest, and gradients before they are shared.
        communication_SC: buckets, pipeline buffers and NCCL's own.
        context_SC: of the device's driver and libraries.
        fragmentation_SC: what the allocator cannot use.
        update_SC: temporaries of the optimizer beyond the room that activations leave to them.
    """

    gathered_SC: Floats
    communication_SC: Floats
    context_SC: Floats
    fragmentation_SC: Floats
    update_SC: Floats


def overheads(
    counts: tuple[LocalWeights, LocalWeights],
    activations: ActivationBytes,
    columns: MemoryLayouts,
    setup: TrainingSetup,
    where: tuple[Stages, int],
) -> Overheads:
    """All of them.

    Args:
        counts: all weights and the trained ones.
        activations: what comes and goes.
        columns: the layouts.
        setup: what the training does.
        where: the stages and the width of hidden states.
    """
    (local, trained), (stages, hidden) = counts, where
    by_stage = [framework_of(stage, setup) for stage in range(4)]
    is_fsdp_C = _is(by_stage, Framework.FSDP)[columns.zero_stage_C]
    is_deepspeed_C = _is(by_stage, Framework.DEEPSPEED)[columns.zero_stage_C]
    gathered_SC = np.zeros_like(local.outside_SC)
    if is_fsdp_C.any():
        gathered_SC = _fsdp_gathered(local, trained, columns, setup) * is_fsdp_C
    bucket_SC = np.zeros(())
    if is_deepspeed_C.any():
        bucket_SC = _buckets(trained, columns, setup) * is_deepspeed_C
        live_SC = np.minimum(_LIVE_VALUES, local.all_SC) * setup.value_bytes
        gathered_SC = gathered_SC + live_SC * (is_deepspeed_C & (columns.zero_stage_C == 3))
    keeps_C = is_fsdp_C | is_deepspeed_C
    kept_SC = stages.waiting_SC * keeps_C + is_deepspeed_C
    pipeline_SC = _pipeline_buffers(columns, setup, hidden, kept_SC)
    ranks_C = columns.data_C * columns.context_C * columns.tensor_C * columns.pipeline_C
    coming_SC = broadcast_sum(getattr(activations, part.name) for part in fields(activations))
    coming_SC = coming_SC + gathered_SC
    update_SC = update_bytes(trained, columns, setup)
    if update_SC.any():
        update_SC = np.maximum(0.0, update_SC - coming_SC)
    lost = COMPILED_FRAGMENTATION if setup.compiled else FRAGMENTATION
    return Overheads(
        gathered_SC=gathered_SC,
        communication_SC=pipeline_SC + bucket_SC + np.where(ranks_C > 1, NCCL_BYTES, 0.0),
        context_SC=np.full_like(gathered_SC, CONTEXT_BYTES),
        fragmentation_SC=np.asarray(lost * coming_SC),
        update_SC=update_SC,
    )


def _is(frameworks: list[Framework], wanted: Framework) -> Bools:
    return np.array([framework is wanted for framework in frameworks])


def _fsdp_gathered(
    local: LocalWeights, trained: LocalWeights, columns: MemoryLayouts, setup: TrainingSetup
) -> Floats:
    """Weights cast or gathered for use.

    Stages 0 and 1 are DDP under autocast, which keeps 16-bit copies. Stage 2 keeps gathered
    weights, and stage 3 does too with a pipeline (torchtitan: a gather for each micro-batch would
    cost more), where gradients wait in fp32 for the last micro-batch; otherwise two layers and
    what stands outside of layers is gathered, and a layer's gradients are reduced in fp32.
    """
    size = setup.value_bytes
    casts_SC = local.all_SC * (size if size < 4 else 0)
    pipelined_C = (columns.pipeline_C > 1) & (columns.zero_stage_C >= 2)
    whole_C = (columns.zero_stage_C == 2) | pipelined_C
    by_layers_SC = local.outside_SC + _LAYERS_IN_FLIGHT * local.layer_C
    weights_SC = np.where(whole_C, local.all_SC, np.minimum(by_layers_SC, local.all_SC)) * size
    reduced_SC = np.maximum(trained.layer_C, trained.outside_SC / 2) * (size + _REDUCED_BYTES)
    waiting_SC = np.where(pipelined_C, trained.all_SC * _REDUCED_BYTES, reduced_SC)
    return np.asarray(np.where(columns.zero_stage_C < 2, casts_SC, weights_SC + waiting_SC))


def _pipeline_buffers(
    columns: MemoryLayouts, setup: TrainingSetup, hidden: int, kept_SC: Floats
) -> Floats:
    """Hidden states being sent and received, one each way, and those kept after sending."""
    tokens_C = columns.micro_batch_C * setup.sequence / columns.context_C
    tokens_C = tokens_C / np.where(columns.sequence_parallel_C, columns.tensor_C, 1)
    one_C = (columns.pipeline_C > 1) * tokens_C * (hidden * setup.value_bytes)
    return np.asarray(one_C * (2 + kept_SC))


def _buckets(trained: LocalWeights, columns: MemoryLayouts, setup: TrainingSetup) -> Floats:
    """DeepSpeed's buckets.

    Of gradients in the format in which they are added up, and, where an optimizer is shared, of
    new weights, which torch's ``all_gather`` of a list copies once more.
    """
    is_fp16 = setup.precision is Precision.FP16
    reduced_SC = np.minimum(_BUCKET_VALUES, trained.all_SC) * (2.0 if is_fp16 else 4.0)
    limit = _BUCKET_VALUES if is_fp16 else _BF16_GATHER_VALUES
    gathered_SC = np.minimum(limit, trained.all_SC) * setup.value_bytes
    return np.asarray(reduced_SC + gathered_SC * np.isin(columns.zero_stage_C, (1, 2)))
