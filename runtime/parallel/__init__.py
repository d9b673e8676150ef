"""Applies a layout to a model, one kind of parallelism after the other.

A kind is a module with ``apply(applied, meshes, config) -> Applied``, which changes nothing if
the configuration does not ask for it. The rows of knobs name their modules, which also have
``look(root, optimizer, zero_stage)``: the values that a live model has.
"""

from __future__ import annotations

from importlib import import_module

from torch import nn
from torch.optim import Optimizer

from autoconf_launch.core import FIRST_FSDP_STAGE, RUNTIME_KNOBS, KnobValue, ResolvedConfig

from . import context, expert, pipeline, recompute, tensor
from .base import (
    REPLICATE,
    SHARD,
    Applied,
    DeviceMeshes,
    Extras,
    Passes,
    copy_weights,
    make_meshes,
    mesh_degree,
)
from .context import context_degree, context_split
from .context_attention import scaled_dot_product_attention
from .expert import expert_degree, expert_split
from .fully_shard import LateReduction
from .pipeline import Pipeline, gather_weights
from .recompute import recompute_of_blocks
from .replicate import shard_optimizer
from .tensor import (
    COLUMNS,
    ROWS,
    SUMMED,
    SameBatch,
    is_sequence_parallel,
    read_tensor_plan,
    tensor_degree,
    tensor_split,
    tensor_words,
)

_OF_KNOBS = tuple(
    import_module(f"autoconf_launch.{name}")
    for name in dict.fromkeys(knob.applied_by for knob in RUNTIME_KNOBS.values())
)
_IN_ORDER = (
    *(context.apply, tensor.apply, expert.apply, pipeline.apply, recompute.apply),
    *(module.apply for module in _OF_KNOBS),
)


def parallelize(model: nn.Module, meshes: DeviceMeshes, config: ResolvedConfig) -> Applied:
    """The model laid out as the configuration says; the same weights on all ranks.

    Raises:
        ConfigError: the model lacks a feature that the configuration requests.
    """
    if not meshes.is_data_only:
        copy_weights(model, meshes.world)
    applied = Applied(module=model, checks=(SameBatch(meshes),))
    for apply in _IN_ORDER:
        applied = apply(applied, meshes, config)
    for stage in applied.stages:
        stage.begin_at_first_block()
    return applied


def found_extras(
    root: nn.Module, optimizer: Optimizer | None, zero_stage: int = FIRST_FSDP_STAGE
) -> Extras:
    """Every knob that a live model has, in the order of ``RUNTIME_KNOBS``."""
    seen: dict[str, KnobValue] = {}
    for module in _OF_KNOBS:
        seen |= module.look(root, optimizer, zero_stage)
    return tuple((name, seen[name]) for name in RUNTIME_KNOBS if name in seen)


__all__ = ["Applied", "Passes", "parallelize"]
