"""The candidates of ``AutoConfigurator``: NeMo 2.0's grid, each once."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from autoconf_launch.autotuner.sizing import Grid, NoRule, nemo_grid
from autoconf_launch.core import ConfigError, Degrees, Recompute
from autoconf_launch.launcher.estimates import ChosenPrice
from autoconf_launch.tuning_spaces import grid_rows

from ..candidate_grids import NemoCandidate, nemo2_name, nemo_candidates
from ..search import (
    CandidateList,
    GridKind,
    SearchCandidate,
    SearchQuestion,
    candidates_of,
    grid_question,
    search_machines,
    searched_model,
)
from .model_facts import GENERATION
from .training import RecipeTraining, with_batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """Candidates that can run, in order, and their training.

    ``training`` has another batch than was asked about where the recommended one divides nowhere.
    """

    training: RecipeTraining
    points: tuple[SearchCandidate, ...]
    notes: tuple[str, ...] = ()


def nemo2_candidates(training: RecipeTraining, *, is_finetune: bool) -> Candidates | NoRule:
    """Every valid point of NeMo 2.0's grid, in its order, where its rules have a grid.

    Args:
        training: what is made fast, with the user's lists.
        is_finetune: the products of model parallelism then follow from the lists.

    Raises:
        ConfigError: no point divides GPUs, batch, heads and layers.
    """
    question = training.question
    lists = question.settings.train.degrees
    grid = nemo_grid(grid_rows(GENERATION), grid_question(question), lists)
    if isinstance(grid, NoRule):
        return grid
    if is_finetune:
        grid = _products_of_lists(grid, lists, question.gpus)
    points = _points(grid, question)
    if not points and not training.is_batch_given:
        training = divisible(training)
        points = _points(grid, training.question)
    asked, shape = training.question, training.question.model.shape
    if not points:
        raise ConfigError(
            f"No candidate for {asked.family.name} of {asked.size_b:g} B divides {asked.nodes} x "
            f"{asked.gpus_per_node} GPUs, a global batch of {asked.global_batch}, {shape.heads} "
            f"heads and {shape.layers} layers within the sizes to search; take other sizes, "
            "nodes, or another global_batch_size."
        )
    model = searched_model(asked, asked.gpus)
    return Candidates(
        training=training,
        points=tuple(
            SearchCandidate(name=nemo2_name(model, asked.nodes, one), point=one) for one in points
        ),
        notes=(grid.note,) if grid.note else (),
    )


def divisible(training: RecipeTraining) -> RecipeTraining:
    """The training with the batch nearest to the recommended one that all GPUs can share."""
    gpus, recommended = training.question.gpus, training.question.global_batch
    batch = max(1, round(recommended / gpus)) * gpus
    note = f"{recommended} does not divide over {gpus} GPUs; the global batch is {batch}."
    return with_batch(training, batch, note)


def _products_of_lists(grid: Grid, lists: Degrees, gpus: int) -> Grid:
    axes = grid.degrees.mesh_axes
    degrees = replace(
        grid.degrees,
        least_product=lists.least_product or min(gpus, math.prod(map(min, axes))),
        most_product=lists.most_product or min(gpus, math.prod(map(max, axes))),
    )
    return replace(grid, degrees=degrees)


def _points(grid: Grid, question: SearchQuestion) -> tuple[NemoCandidate, ...]:
    """Points in the order of NeMo 2.0's loops: tensor, pipeline, context, expert, micro-batch."""
    found = nemo_candidates(grid, searched_model(question, question.gpus))
    return tuple(sorted(found, key=lambda one: (*one.layout.mesh, one.layout.micro_batch)))


def planner_candidates(training: RecipeTraining, notes: tuple[str, ...] = ()) -> Candidates:
    """Every layout that the planner sees fit, cut to the limit; whatever grid was asked for.

    Args:
        training: what is made fast.
        notes: why the planner is asked, before its own.

    Raises:
        ConfigError: none divides GPUs and batch, or none fits into memory.
    """
    question = training.question
    try:
        found = _list_candidates(question)
    except ConfigError:
        if training.is_batch_given or question.global_batch % question.gpus == 0:
            raise
        training = divisible(training)
        found = _list_candidates(training.question)
    lists = [found.candidates]
    if not training.is_batch_given and question.settings.grid is GridKind.PLANNER:
        lists += _other_batches(training)
        notes = (*notes, _searched_batches(lists))
    points = tuple(
        _with_nemo2_name(one, training.question)
        for turn in zip_longest(*lists)
        for one in turn
        if one
    )
    limit = question.settings.train.limit_runs or None
    return Candidates(training=training, points=points[:limit], notes=(*notes, *found.notes))


def _other_batches(training: RecipeTraining) -> Iterator[tuple[SearchCandidate, ...]]:
    """Candidates with half and with twice the recommended batch, where they divide."""
    question = training.question
    batch = question.global_batch
    for other in (2 * batch, batch // 2):
        samples = replace(question.model.batch, global_batch=other)
        model = replace(question.model, batch=samples)
        try:
            yield _list_candidates(replace(question, model=model)).candidates
        except ConfigError:
            yield ()


def _searched_batches(lists: Sequence[Sequence[SearchCandidate]]) -> str:
    batches = sorted({one.layout.global_batch for listed in lists for one in listed})
    return (
        f"Global batches searched: {', '.join(map(str, batches))}, compared by samples/s. A "
        "larger one has fewer optimizer steps for the same tokens; the learning rate stays."
    )


def price_elsewhere(question: SearchQuestion) -> ChosenPrice | None:
    """Price of a GPU elsewhere: the given one, or one published for this GPU memory."""
    machines = search_machines(question.settings, question.gpus_per_node)
    found = machines.price
    if found is None or question.settings.cluster.usd_per_gpu_hour is not None:
        return found
    return replace(found, how=f"{machines.gpu} by its memory; {found.how}")


def _with_nemo2_name(one: SearchCandidate, question: SearchQuestion) -> SearchCandidate:
    """The candidate under NeMo 2.0's name of its run, what else is searched at the end."""
    name = nemo2_name(searched_model(question, question.gpus), question.nodes, one.point)
    if one.layout.recompute is not Recompute.NONE:
        name += f"_act_ckpt_{one.point.recompute_layers or one.layout.recompute.value}"
    if one.layout.global_batch != question.global_batch:
        name += f"_gbs_{one.layout.global_batch}"
    return replace(one, name=name)


def _list_candidates(question: SearchQuestion) -> CandidateList:
    settings = replace(question.settings, grid=GridKind.PLANNER)
    machines = search_machines(settings, question.gpus_per_node)
    note = (
        f"Candidates are ranked for {machines.gpu}, by gpu_memory_gb "
        f"({settings.train.gpu_memory_gb:g}); run() measures them on this machine's devices."
    )
    return candidates_of(replace(question, settings=settings), replace(machines, notes=(note,)))
