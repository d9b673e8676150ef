"""The points of NVIDIA's grids that can run, each once.

NVIDIA's tool keeps points that need more GPUs than there are, leaves context parallelism out of
its second check of the batch, and writes some twice; here each kept point runs and stands once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from autoconf_launch.autotuner.sizing import (
    BLOCK,
    Family,
    Grid,
    RecomputeChoices,
    recompute_choices,
)
from autoconf_launch.core import Layout, Recompute

_Mesh: TypeAlias = tuple[int, int, int, int]
"""Tensor, pipeline, context and expert ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedModel:
    """The model that a grid is for; ``layers`` of T5 counts one stack.

    ``recompute_layers`` takes the place of the grid's where ``method`` is block.
    """

    family: Family
    size_b: float
    layers: int
    heads: int
    global_batch: int
    gpus: int
    method: str | None = None
    recompute_layers: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoCandidate:
    """A run in NVIDIA's terms: its layout, and recomputation as in ``RecomputeChoices``."""

    layout: Layout
    virtual: int | None = None
    recompute_layers: int | None = None
    recompute_micro_batches: int | None = None
    recompute_layers_per_pipeline: int | None = None


def nemo_candidates(grid: Grid, model: SearchedModel) -> tuple[NemoCandidate, ...]:
    """Every valid point once, in NVIDIA's order.

    That is by layers that checkpoint, or where none do by micro-batch, ascending; inside by
    tensor, pipeline, context, expert. Take the first few by :func:`limit_candidates`.
    """
    found = dict.fromkeys(_points(grid, model))
    has_layers = any(one.recompute_layers is not None for one in found)
    if has_layers:
        return tuple(sorted(found, key=lambda one: one.recompute_layers or 0))
    return tuple(sorted(found, key=lambda one: one.layout.micro_batch))


def limit_candidates(candidates: Sequence[NemoCandidate], limit: int) -> tuple[NemoCandidate, ...]:
    """Candidates in turn of each micro-batch, the largest first, at most ``limit``; 0 takes all.

    NVIDIA's tool cuts the largest micro-batches first, which are usually the fastest.
    """
    if not 0 < limit < len(candidates):
        return tuple(candidates)
    sizes = sorted({one.layout.micro_batch for one in candidates}, reverse=True)
    by_size = [[one for one in candidates if one.layout.micro_batch == size] for size in sizes]
    turns = itertools.zip_longest(*by_size)
    chosen = [one for turn in turns for one in turn if one is not None]
    return tuple(chosen[:limit])


def minimum_nodes(grid: Grid, model: SearchedModel, gpus_per_node: int) -> int:
    """Nodes that the widest point of a grid needs, as the BigNLP HP tool searches.

    That has one data-parallel rank: ``model.gpus``, of a training, do not matter.
    """
    widest = max(map(math.prod, _meshes(grid, model)), default=1)
    return -(-widest // gpus_per_node)


def nemo1_name(model: SearchedModel, nodes: int, one: NemoCandidate) -> str:
    """Name of a run, as NeMo 1.0 writes it."""
    return (
        f"{_start(model, nodes, one)}_act_ckpt_{one.recompute_layers}"
        f"_num_mbs_act_{one.recompute_micro_batches}"
        f"_act_per_pipe_{one.recompute_layers_per_pipeline}"
    )


def nemo2_name(model: SearchedModel, nodes: int, one: NemoCandidate) -> str:
    """Name of a run, as NeMo 2.0 writes it."""
    return f"{_start(model, nodes, one)}_vp_{one.virtual}"


def minutes_limit(minutes: int) -> str:
    """Slurm's ``D-H:M:00`` of minutes: 1500 are a day and an hour (NVIDIA's tool has 25 hours)."""
    hours, rest = divmod(minutes, 60)
    return f"{hours // 24}-{hours % 24}:{rest}:00"


def _start(model: SearchedModel, nodes: int, one: NemoCandidate) -> str:
    tensor, pipeline, context, expert = one.layout.mesh
    return (
        f"{model.family.name}_{model.size_b:.10g}b_{nodes}nodes_tp_{tensor}_pp_{pipeline}"
        f"_cp_{context}_ep_{expert}_mbs_{one.layout.micro_batch}"
    )


def _points(grid: Grid, model: SearchedModel) -> Iterator[NemoCandidate]:
    for mesh in _meshes(grid, model):
        if model.gpus % math.prod(mesh):
            continue
        choices = _choices(model, mesh[1])
        for micro in grid.degrees.micro_batch or ():
            layout = _layout(mesh, micro, model)
            if layout.global_batch == model.global_batch:
                layout = replace(layout, virtual_pipeline=choices.virtual or 1)
                yield from _with_recompute(layout, choices)


def _layout(mesh: _Mesh, micro: int, model: SearchedModel) -> Layout:
    """A layout with a distributed optimizer; a batch that does not divide is cut."""
    tensor, pipeline, context, expert = mesh
    data = model.gpus // (tensor * pipeline * context)
    return Layout(
        data_parallel=data,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        context_parallel=context,
        expert_parallel=expert,
        zero_stage=1 if data * context > 1 else 0,
        micro_batch=micro,
        accumulation=model.global_batch // (data * micro),
        sequence_parallel=tensor > 1,
    )


def _meshes(grid: Grid, model: SearchedModel) -> Iterator[_Mesh]:
    """Each mesh of the grid that the model allows, on any GPUs."""
    for tensor, pipeline, context, expert in itertools.product(*grid.degrees.mesh_axes):
        mesh = (tensor, pipeline, context, expert)
        if _is_mesh(mesh, model) and grid.degrees.allows_product(math.prod(mesh)):
            yield mesh


def _is_mesh(mesh: _Mesh, model: SearchedModel) -> bool:
    """True if the degrees divide heads and layers, and context and experts do not combine."""
    tensor, pipeline, context, expert = mesh
    stacks = 2 if model.family.is_encoder_decoder else 1
    return (
        1 in (context, expert)
        and model.heads % tensor == 0
        and stacks * model.layers % pipeline == 0
    )


def _choices(model: SearchedModel, pipeline: int) -> RecomputeChoices:
    choices = recompute_choices(
        model.family, model.size_b, model.layers, pipeline=pipeline, method=model.method
    )
    if model.recompute_layers is None or model.method != BLOCK:
        return choices
    return replace(choices, layers=tuple(dict.fromkeys(model.recompute_layers)))


def _with_recompute(layout: Layout, choices: RecomputeChoices) -> Iterator[NemoCandidate]:
    dimensions = (choices.layers, choices.micro_batches, choices.layers_per_pipeline)
    for layers, micro_batches, per_pipeline in itertools.product(*dimensions):
        kind = Recompute.FULL if layers else Recompute.NONE
        yield NemoCandidate(
            layout=replace(layout, recompute=kind),
            virtual=choices.virtual,
            recompute_layers=layers,
            recompute_micro_batches=micro_batches,
            recompute_layers_per_pipeline=per_pipeline,
        )
