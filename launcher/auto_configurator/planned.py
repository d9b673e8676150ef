"""The planner's candidates of an ``AutoConfigurator``, most promising first. Not: NeMo's grid."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest

from autoconf_launch.autotuner.recommend.nemo_candidates import nemo2_name
from autoconf_launch.core import ConfigError, Recompute

from ..model_search.candidates import (
    CandidateList,
    SearchCandidate,
    candidates_of,
    searched_model,
)
from ..model_search.planner_points import search_machines
from ..model_search.question import SearchQuestion
from ..model_search.settings import GridKind
from ..planner.price_choice import ChosenPrice
from .candidates import Candidates, divisible
from .training import Training


def planner_candidates(training: Training, notes: tuple[str, ...] = ()) -> Candidates:
    """Every layout that the planner sees fit, cut to the limit; whatever grid was asked for.

    Args:
        training: what is made fast.
        notes: why the planner is asked, before its own.

    Raises:
        ConfigError: none divides GPUs and batch, or none fits into memory.
    """
    question = training.question
    try:
        found = _listed(question)
    except ConfigError:
        if training.is_batch_given or question.model.global_batch % question.gpus == 0:
            raise
        training = divisible(training)
        found = _listed(training.question)
    lists = [found.candidates]
    if not training.is_batch_given and question.settings.grid is GridKind.PLANNER:
        lists += _other_batches(training)
        notes = (*notes, _searched_batches(lists))
    points = tuple(
        _named(one, training.question) for turn in zip_longest(*lists) for one in turn if one
    )
    limit = question.settings.train.limit_runs or None
    return Candidates(training=training, points=points[:limit], notes=(*notes, *found.notes))


def _other_batches(training: Training) -> Iterator[tuple[SearchCandidate, ...]]:
    """Candidates with half and with twice the recommended batch, where they divide."""
    question = training.question
    batch = question.model.global_batch
    for other in (2 * batch, batch // 2):
        model = replace(question.model, global_batch=other)
        try:
            yield _listed(replace(question, model=model)).candidates
        except ConfigError:
            yield ()


def _searched_batches(lists: Sequence[Sequence[SearchCandidate]]) -> str:
    batches = sorted({one.layout.global_batch for listed in lists for one in listed})
    return (
        f"Global batches searched: {', '.join(map(str, batches))}, compared by samples/s. A "
        "larger one has fewer optimizer steps for the same tokens; the learning rate stays."
    )


def price_elsewhere(question: SearchQuestion) -> ChosenPrice | None:
    """What an hour of a GPU elsewhere costs: as given, or published for one of this memory."""
    machines = search_machines(question.settings, question.gpus_per_node)
    found = machines.price
    if found is None or question.settings.cluster.usd_per_gpu_hour is not None:
        return found
    return replace(found, how=f"{machines.gpu} by its memory; {found.how}")


def _named(one: SearchCandidate, question: SearchQuestion) -> SearchCandidate:
    """As NeMo 2.0 names a run, with what else is searched at the end."""
    name = nemo2_name(searched_model(question, question.gpus), question.nodes, one.point)
    if one.layout.recompute is not Recompute.NONE:
        name += f"_act_ckpt_{one.point.recompute_layers or one.layout.recompute.value}"
    if one.layout.global_batch != question.model.global_batch:
        name += f"_gbs_{one.layout.global_batch}"
    return replace(one, name=name)


def _listed(question: SearchQuestion) -> CandidateList:
    settings = replace(question.settings, grid=GridKind.PLANNER)
    machines = search_machines(settings, question.gpus_per_node)
    return candidates_of(replace(question, settings=settings), machines)
