"""The points of NVIDIA's grids that can run, each once. Not: which of them is fast.

NVIDIA's tool keeps points that need more GPUs than there are, leaves context parallelism out of
its second check of the batch, and writes some twice; here each kept point runs and stands once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autoconf_launch.autotuner.sizing import (
    BLOCK,
    Family,
    Grid,
    RecomputeChoices,
    RecomputeQuestion,
    recompute_choices,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedModel:
    """What a grid is searched for; ``layers`` of T5 are those of one stack.

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
    """One run, in NVIDIA's terms; see ``RecomputeChoices`` for the last four."""

    tensor: int
    pipeline: int
    context: int
    expert: int
    micro_batch: int
    virtual: int | None = None
    recompute_layers: int | None = None
    recompute_micro_batches: int | None = None
    recompute_layers_per_pipeline: int | None = None

    @property
    def degrees(self) -> tuple[int, int, int, int]:
        """Tensor, pipeline, context, expert: the order of NVIDIA's loops."""
        return (self.tensor, self.pipeline, self.context, self.expert)

    @property
    def product(self) -> int:
        """Product of all degrees of model parallelism, as NVIDIA counts it: with expert ranks."""
        return math.prod(self.degrees)


def nemo_candidates(grid: Grid, model: SearchedModel) -> tuple[NemoCandidate, ...]:
    """Every valid point once, in NVIDIA's order.

    That is by layers that checkpoint, or where none do by micro-batch, ascending; inside by
    tensor, pipeline, context, expert. Take the first few by :func:`limited`.
    """
    found = dict.fromkeys(_points(grid, model))
    has_layers = any(one.recompute_layers is not None for one in found)
    if has_layers:
        return tuple(sorted(found, key=lambda one: one.recompute_layers or 0))
    return tuple(sorted(found, key=lambda one: one.micro_batch))


def limited(candidates: Sequence[NemoCandidate], limit: int) -> tuple[NemoCandidate, ...]:
    """At most ``limit``, in turn of each micro-batch, the largest first; 0 takes all.

    NVIDIA's tool cuts the largest micro-batches first, which are usually the fastest.
    """
    if not 0 < limit < len(candidates):
        return tuple(candidates)
    sizes = sorted({one.micro_batch for one in candidates}, reverse=True)
    by_size = [[one for one in candidates if one.micro_batch == size] for size in sizes]
    turns = itertools.zip_longest(*by_size)
    chosen = [one for turn in turns for one in turn if one is not None]
    return tuple(chosen[:limit])


def minimum_nodes(grid: Grid, model: SearchedModel, gpus_per_node: int) -> int:
    """Nodes that the widest point of a grid needs, as the BigNLP HP tool searches.

    That has one data-parallel rank: ``model.gpus``, of a training, do not matter.
    """
    widest = max((one.product for one in _meshes(grid, model)), default=1)
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
    return (
        f"{model.family.name}_{model.size_b:.10g}b_{nodes}nodes_tp_{one.tensor}_pp_{one.pipeline}"
        f"_cp_{one.context}_ep_{one.expert}_mbs_{one.micro_batch}"
    )


def _points(grid: Grid, model: SearchedModel) -> Iterator[NemoCandidate]:
    for one in _meshes(grid, model):
        if model.gpus % one.product:
            continue
        choices = _choices(model, one.pipeline)
        data = model.gpus // (one.tensor * one.pipeline * one.context)
        for micro in grid.micro_batch:
            if model.global_batch % (micro * data) == 0:
                yield from _with_recompute(one, micro, choices)


def _meshes(grid: Grid, model: SearchedModel) -> Iterator[NemoCandidate]:
    """Each mesh of the grid that the model allows, with a micro-batch of 1, on any GPUs."""
    meshes = itertools.product(grid.tensor, grid.pipeline, grid.context, grid.expert)
    for tensor, pipeline, context, expert in meshes:
        one = NemoCandidate(
            tensor=tensor, pipeline=pipeline, context=context, expert=expert, micro_batch=1
        )
        if _is_mesh(one, grid, model):
            yield one


def _is_mesh(one: NemoCandidate, grid: Grid, model: SearchedModel) -> bool:
    """Whether the degrees divide what they must, and fit the grid's bounds."""
    stacks = 2 if model.family.is_encoder_decoder else 1
    return (
        grid.least_product <= one.product <= grid.most_product
        and 1 in (one.context, one.expert)
        and model.heads % one.tensor == 0
        and stacks * model.layers % one.pipeline == 0
    )


def _choices(model: SearchedModel, pipeline: int) -> RecomputeChoices:
    choices = recompute_choices(
        RecomputeQuestion(
            family=model.family,
            size_b=model.size_b,
            layers=model.layers,
            pipeline=pipeline,
            method=model.method,
        )
    )
    if model.recompute_layers is None or model.method != BLOCK:
        return choices
    return replace(choices, layers=tuple(dict.fromkeys(model.recompute_layers)))


def _with_recompute(
    one: NemoCandidate, micro: int, choices: RecomputeChoices
) -> Iterator[NemoCandidate]:
    dimensions = (choices.layers, choices.micro_batches, choices.layers_per_pipeline)
    for layers, micro_batches, per_pipeline in itertools.product(*dimensions):
        yield replace(
            one,
            micro_batch=micro,
            virtual=choices.virtual,
            recompute_layers=layers,
            recompute_micro_batches=micro_batches,
            recompute_layers_per_pipeline=per_pipeline,
        )
