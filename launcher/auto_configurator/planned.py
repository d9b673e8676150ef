"""The planner's candidates of an ``AutoConfigurator``, most promising first. Not: NeMo's grid."""

from __future__ import annotations

from dataclasses import replace

from autoconf_launch.autotuner.recommend.nemo_candidates import nemo2_name
from autoconf_launch.core import ConfigError

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
    points = tuple(_named(one, training.question) for one in found.candidates)
    return Candidates(training=training, points=points, notes=(*notes, *found.notes))


def price_elsewhere(question: SearchQuestion) -> ChosenPrice | None:
    """What an hour of a GPU elsewhere costs: as given, or published for one of this memory."""
    machines = search_machines(question.settings, question.gpus_per_node)
    found = machines.price
    if found is None or question.settings.cluster.usd_per_gpu_hour is not None:
        return found
    return replace(found, how=f"{machines.gpu} by its memory; {found.how}")


def _named(one: SearchCandidate, question: SearchQuestion) -> SearchCandidate:
    """As NeMo 2.0 names a run; the planner has one candidate for each mesh and micro-batch."""
    model = searched_model(question, question.gpus)
    return replace(one, name=nemo2_name(model, question.nodes, one.point))


def _listed(question: SearchQuestion) -> CandidateList:
    settings = replace(question.settings, grid=GridKind.PLANNER)
    machines = search_machines(settings, question.gpus_per_node)
    return candidates_of(replace(question, settings=settings), machines)
