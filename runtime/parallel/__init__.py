"""Applies a layout to a model, one kind of parallelism after the other.

A kind is a module with ``apply(applied, meshes, config) -> Applied`` that changes nothing where
the configuration does not ask for it.
"""

from __future__ import annotations

from torch import nn

from autoconf_launch.core import ResolvedConfig

from . import context, expert, fully_shard, pipeline, recompute, replicate, tensor
from .base import Applied, Passes
from .context import context_degree, context_split
from .context_attention import scaled_dot_product_attention
from .expert import expert_degree, expert_split
from .extras import found_extras
from .fully_shard import LateReduction
from .mesh import REPLICATE, SHARD, DeviceMeshes, copy_weights, make_meshes, mesh_degree
from .pipeline import Pipeline, gather_weights
from .recompute import recompute_of_blocks
from .replicate import shard_optimizer
from .tensor import SameBatch, is_sequence_parallel, tensor_degree
from .tensor_plan import COLUMNS, ROWS, SUMMED, read_tensor_plan, tensor_split, tensor_words

_IN_ORDER = (
    *(context.apply, tensor.apply, expert.apply, pipeline.apply, recompute.apply),
    *(replicate.apply, fully_shard.apply),
)


def parallelize(model: nn.Module, meshes: DeviceMeshes, config: ResolvedConfig) -> Applied:
    """The model laid out as the configuration says; the same weights on all ranks.

    Raises:
        ConfigError: the model lacks what the configuration asks for.
    """
    if not meshes.is_data_only:
        copy_weights(model, meshes.world)
    applied = Applied(module=model, check_batch=SameBatch(meshes))
    for apply in _IN_ORDER:
        applied = apply(applied, meshes, config)
    for stage in applied.stages:
        stage.begin_at_first_block()
    return applied


__all__ = ["Applied", "Passes", "parallelize"]
