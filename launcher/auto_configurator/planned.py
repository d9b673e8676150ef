"""The planner's candidates of an ``AutoConfigurator``, most promising first. Not: NeMo's grid."""

from __future__ import annotations

from dataclasses import replace

from autoconf_launch.core import ConfigError

from ..model_search.candidates import CandidateList, candidates_of
from ..model_search.planner_points import search_machines
from ..model_search.question import SearchQuestion
from ..model_search.settings import GridKind
from ..planner.price_choice import ChosenPrice
from .candidates import Candidates, divisible
from .question import SearchBounds, question_of
from .training import Training


def planner_candidates(training: Training, bounds: SearchBounds) -> Candidates:
    """Every layout that the planner sees fit, cut to the limit.

    Raises:
        ConfigError: none divides GPUs and batch, or none fits into memory.
    """
    try:
        found = _listed(training, bounds)
    except ConfigError:
        if training.is_batch_given or training.global_batch % training.gpus == 0:
            raise
        training = divisible(training)
        found = _listed(training, bounds)
    asked_for_nemo = (_uncovered(training),) if bounds.grid is GridKind.NEMO else ()
    return Candidates(
        training=training, points=found.candidates, notes=(*asked_for_nemo, *found.notes)
    )


def _listed(training: Training, bounds: SearchBounds) -> CandidateList:
    question = question_of(training, replace(bounds, grid=GridKind.PLANNER))
    return candidates_of(question, search_machines(question.settings, question.gpus_per_node))


def price_elsewhere(question: SearchQuestion) -> ChosenPrice | None:
    """What an hour of a GPU elsewhere costs: as given, or published for one of this memory."""
    machines = search_machines(question.settings, question.gpus_per_node)
    found = machines.price
    if found is None or question.settings.cluster.usd_per_gpu_hour is not None:
        return found
    return replace(found, how=f"{machines.gpu} by its memory; {found.how}")


def _uncovered(training: Training) -> str:
    return (
        f"NeMo has no grid for {training.facts.family.name} on {training.gpu_memory_gb:g} GB; the "
        "candidates are the planner's."
    )
