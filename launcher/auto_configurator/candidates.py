"""The candidates of ``AutoConfigurator``: NeMo 2.0's grid, each once. Not: their documents."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from autoconf_launch.autotuner.recommend.nemo_candidates import (
    NemoCandidate,
    SearchedModel,
    nemo2_name,
    nemo_candidates,
)
from autoconf_launch.autotuner.recommend.nemo_grid import (
    Grid,
    GridOverrides,
    GridQuestion,
    nemo_grid,
)
from autoconf_launch.core import ConfigError
from autoconf_launch.tuning_spaces.recommend_tables import grid_rows

from ..model_search.candidates import SearchCandidate, layout_of
from .model_facts import GENERATION
from .training import Training, with_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """What can run, in NeMo 2.0's order, and the training that it is of.

    ``training`` has another batch than was asked about where the recommended one divides nowhere.
    """

    training: Training
    points: tuple[SearchCandidate, ...]
    notes: tuple[str, ...] = ()


def nemo2_candidates(
    training: Training, lists: GridOverrides, *, is_finetune: bool
) -> Candidates | None:
    """Every valid point of NeMo 2.0's grid; None where it has none for this family or memory.

    Args:
        training: what is made fast.
        lists: what the user set.
        is_finetune: the products of model parallelism then follow from the lists.

    Raises:
        ConfigError: no point divides GPUs, batch, heads and layers.
    """
    grid = nemo_grid(grid_rows(GENERATION), _question(training), lists)
    if grid is None:
        return None
    if is_finetune:
        grid = _products_of_lists(grid, lists, training.gpus)
    points = _points(grid, training)
    if not points and not training.is_batch_given:
        training = divisible(training)
        points = _points(grid, training)
    if not points:
        raise ConfigError(_why_none(training))
    model = searched(training)
    return Candidates(
        training=training,
        points=tuple(
            SearchCandidate(
                name=nemo2_name(model, training.plan.nodes, one),
                point=one,
                layout=layout_of(one, model),
            )
            for one in points
        ),
        notes=(grid.note,) if grid.note else (),
    )


def searched(training: Training) -> SearchedModel:
    """The model as NVIDIA's rules see it; NeMo 2.0 searches no activation checkpointing."""
    facts = training.facts
    return SearchedModel(
        family=facts.family,
        size_b=facts.size_b,
        layers=facts.shape.layers,
        heads=facts.shape.heads,
        global_batch=training.global_batch,
        gpus=training.gpus,
    )


def _question(training: Training) -> GridQuestion:
    facts = training.facts
    return GridQuestion(
        family=facts.family,
        size_b=facts.size_b,
        layers=facts.shape.layers,
        sequence=facts.sequence,
        gpu_memory_gb=training.gpu_memory_gb,
    )


def _products_of_lists(grid: Grid, lists: GridOverrides, gpus: int) -> Grid:
    axes = (grid.tensor, grid.pipeline, grid.context, grid.expert)
    least = min(gpus, math.prod(map(min, axes)))
    most = min(gpus, math.prod(map(max, axes)))
    return replace(
        grid,
        least_product=lists.least_product or least,
        most_product=lists.most_product or most,
    )


def _points(grid: Grid, training: Training) -> tuple[NemoCandidate, ...]:
    """In the order of NeMo 2.0's loops: tensor, pipeline, context, expert, micro-batch."""
    return tuple(sorted(nemo_candidates(grid, searched(training)), key=_order))


def _order(one: NemoCandidate) -> tuple[int, ...]:
    return (one.tensor, one.pipeline, one.context, one.expert, one.micro_batch)


def divisible(training: Training) -> Training:
    """With the batch nearest to the recommended one that all GPUs can share."""
    batch = max(1, round(training.global_batch / training.gpus)) * training.gpus
    note = (
        f"{training.global_batch} does not divide over {training.gpus} GPUs; the global batch is "
        f"{batch}."
    )
    return with_batch(training, batch, note)


def _why_none(training: Training) -> str:
    facts, plan = training.facts, training.plan
    return (
        f"No candidate for {facts.family.name} of {facts.size_b:g} B divides {plan.nodes} x "
        f"{plan.gpus_per_node} GPUs, a global batch of {training.global_batch}, "
        f"{facts.shape.heads} heads and {facts.shape.layers} layers within the sizes to search; "
        "take other sizes, nodes, or another global_batch_size."
    )
