"""Bytes of weights, gradients and optimizer state at rest, by each framework's rules.

Not: activations, nor weights that are gathered for use. A rule is bytes for each weight, in part
on every data-parallel rank and in part shared by them.

Source:
    Rajbhandari et al. 2020, "ZeRO", section 3 (what each stage shards). Megatron-LM,
    docs/source/api-guide/dist_optimizer.md (4 + 16/d, 6 + 12/d, 8 + 8/d bytes; 20, 18, 16 without
    it). DeepSpeed, runtime/zero/stage_1_and_2.py (flat gradients of a share) and
    runtime/bf16_optimizer.py (fp32 gradients beside 16-bit ones). FSDP2: fp32 shards throughout
    (torch.distributed.fsdp.fully_shard).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoconf_launch.core import Offload, Precision

from ..table import Floats
from .local_weights import LocalWeights
from .memory_layouts import OFFLOAD_CODES, MemoryLayouts
from .training_setup import OPTIMIZER_BYTES, Framework, TrainingSetup

_MASTER = 4.0
_FOREACH = frozenset({"adam", "adamw"})
"""Optimizers of torch that make one more value for each weight while they update all at once."""
_STAGES = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelState:
    """Bytes of one rank."""

    weights_SC: Floats
    gradients_SC: Floats
    optimizer_SC: Floats


@dataclass(frozen=True, slots=True)
class _Bytes:
    """For each weight; ``update`` is there while weights change, when activations are not."""

    weight: float
    gradient: float
    state: float
    update: float


@dataclass(frozen=True, slots=True)
class _Rule:
    """One part: bytes of it ``whole`` on every data-parallel rank, or ``shared`` by them."""

    whole: float
    shared: float


def framework_of(stage: int, setup: TrainingSetup) -> Framework:
    """The framework whose rules hold for a ZeRO stage."""
    if setup.framework is not Framework.AUTO:
        return setup.framework
    return Framework.FSDP if stage >= 2 else Framework.MEGATRON


def model_state(
    local: LocalWeights, trained: LocalWeights, columns: MemoryLayouts, setup: TrainingSetup
) -> ModelState:
    """Bytes at rest; frozen weights are kept in the precision of the run."""
    stage_C = columns.zero_stage_C
    ranks_C = columns.data_C * columns.context_C
    on_device = columns.offload_C == OFFLOAD_CODES[Offload.NONE]
    weights_away = (columns.offload_C == OFFLOAD_CODES[Offload.PARAMETERS]) & (stage_C == 3)
    weights = _held("weight", trained, columns, setup)
    if trained is not local:
        resting = np.where(stage_C == 3, setup.value_bytes / ranks_C, setup.value_bytes)
        weights = weights + np.maximum(0, local.all_SC - trained.all_SC) * resting
    return ModelState(
        weights_SC=np.where(weights_away, 0.0, weights),
        gradients_SC=np.where(weights_away, 0.0, _held("gradient", trained, columns, setup)),
        optimizer_SC=_held("state", trained, columns, setup) * on_device,
    )


def update_bytes(trained: LocalWeights, columns: MemoryLayouts, setup: TrainingSetup) -> Floats:
    """What the optimizer's update makes and frees, on each stage."""
    on_device = columns.offload_C == OFFLOAD_CODES[Offload.NONE]
    return np.asarray(_held("update", trained, columns, setup) * on_device)


def _held(part: str, counts: LocalWeights, columns: MemoryLayouts, setup: TrainingSetup) -> Floats:
    rules = [_rule(part, stage, setup) for stage in range(_STAGES)]
    whole = np.array([rule.whole for rule in rules])[columns.zero_stage_C]
    shared = np.array([rule.shared for rule in rules])[columns.zero_stage_C]
    ranks_C = columns.data_C * columns.context_C
    held_SC = counts.shared_SC * (whole + shared / ranks_C)
    if counts.experts_SC.any():
        expert_ranks_C = np.maximum(1, ranks_C // columns.expert_C)
        held_SC = held_SC + counts.experts_SC * (whole + shared / expert_ranks_C)
    return np.asarray(held_SC)


def _rule(part: str, stage: int, setup: TrainingSetup) -> _Rule:
    framework = framework_of(stage, setup)
    each = _BYTES[framework](setup)
    size: float = getattr(each, part)
    if part == "gradient" and setup.gradient_bytes is not None:
        size = setup.gradient_bytes
    is_fsdp = framework is Framework.FSDP
    shared_from = {"weight": 2 if is_fsdp else 3, "gradient": 2}.get(part, 1)
    return _Rule(0.0, size) if stage >= shared_from else _Rule(size, 0.0)


def _megatron(setup: TrainingSetup) -> _Bytes:
    states = OPTIMIZER_BYTES[setup.optimizer]
    if setup.precision is Precision.FP32:
        return _Bytes(4.0, 4.0, states, 0.0)
    if setup.precision is Precision.FP16:  # fp32 gradients are made for the update
        return _Bytes(2.0, 2.0, _MASTER + states, 4.0)
    cached = 2.0 if setup.precision.is_fp8 and not setup.fp8_weights else 0.0
    return _Bytes(2.0 + cached, 4.0, _MASTER + states, 0.0)


def _deepspeed(setup: TrainingSetup) -> _Bytes:
    states = OPTIMIZER_BYTES[setup.optimizer]
    if setup.precision is Precision.FP32:
        return _Bytes(4.0, 4.0, states, 0.0)
    if setup.precision is Precision.FP16:  # gradients of the share, flat twice and once in fp32;
        # too large for blocks that activations have left
        return _Bytes(2.0, 2.0, _MASTER + 2.0 + 2.0 + 4.0 + states, 0.0)
    return _Bytes(2.0, 6.0, _MASTER + states, 0.0)


def _fsdp(setup: TrainingSetup) -> _Bytes:
    states = OPTIMIZER_BYTES[setup.optimizer]
    return _Bytes(4.0, 4.0, states, 4.0 if setup.optimizer in _FOREACH else 0.0)


_BYTES = {
    Framework.MEGATRON: _megatron,
    Framework.DEEPSPEED: _deepspeed,
    Framework.FSDP: _fsdp,
}
