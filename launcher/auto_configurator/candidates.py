"""The candidates of ``AutoConfigurator``: NeMo 2.0's grid, each once. Not: their documents."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from autoconf_launch.autotuner.recommend.nemo_candidates import (
    NemoCandidate,
    nemo2_name,
    nemo_candidates,
)
from autoconf_launch.autotuner.recommend.nemo_grid import (
    Grid,
    GridOverrides,
    NoRule,
    nemo_grid,
)
from autoconf_launch.core import ConfigError
from autoconf_launch.tuning_spaces.recommend_tables import grid_rows

from ..model_search.candidates import SearchCandidate, layout_of, searched_model
from ..model_search.nemo_rules import grid_question
from ..model_search.question import SearchQuestion
from .model_facts import GENERATION
from .training import Training, with_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """What can run, in order, and the training that it is of.

    ``training`` has another batch than was asked about where the recommended one divides nowhere.
    """

    training: Training
    points: tuple[SearchCandidate, ...]
    notes: tuple[str, ...] = ()


def nemo2_candidates(training: Training, *, is_finetune: bool) -> Candidates | NoRule:
    """Every valid point of NeMo 2.0's grid, in its order, where its rules have a grid.

    Args:
        training: what is made fast, with the user's lists.
        is_finetune: the products of model parallelism then follow from the lists.

    Raises:
        ConfigError: no point divides GPUs, batch, heads and layers.
    """
    question = training.question
    lists = question.settings.train.grid
    grid = nemo_grid(grid_rows(GENERATION), grid_question(question), lists)
    if isinstance(grid, NoRule):
        return grid
    if is_finetune:
        grid = _products_of_lists(grid, lists, question.gpus)
    points = _points(grid, question)
    if not points and not training.is_batch_given:
        training = divisible(training)
        points = _points(grid, training.question)
    if not points:
        raise ConfigError(_why_none(training.question))
    return Candidates(
        training=training,
        points=tuple(_candidate(one, training.question) for one in points),
        notes=(grid.note,) if grid.note else (),
    )


def divisible(training: Training) -> Training:
    """With the batch nearest to the recommended one that all GPUs can share."""
    gpus, recommended = training.question.gpus, training.question.model.global_batch
    batch = max(1, round(recommended / gpus)) * gpus
    note = f"{recommended} does not divide over {gpus} GPUs; the global batch is {batch}."
    return with_batch(training, batch, note)


def _candidate(one: NemoCandidate, question: SearchQuestion) -> SearchCandidate:
    model = searched_model(question, question.gpus)
    return SearchCandidate(
        name=nemo2_name(model, question.nodes, one), point=one, layout=layout_of(one, model)
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


def _points(grid: Grid, question: SearchQuestion) -> tuple[NemoCandidate, ...]:
    """In the order of NeMo 2.0's loops: tensor, pipeline, context, expert, micro-batch."""
    found = nemo_candidates(grid, searched_model(question, question.gpus))
    return tuple(sorted(found, key=lambda one: (*one.degrees, one.micro_batch)))


def _why_none(question: SearchQuestion) -> str:
    model = question.model
    return (
        f"No candidate for {question.family.name} of {question.size_b:g} B divides "
        f"{question.nodes} x {question.gpus_per_node} GPUs, a global batch of "
        f"{model.global_batch}, {model.heads} heads and {model.layers} layers within the sizes "
        "to search; take other sizes, nodes, or another global_batch_size."
    )
