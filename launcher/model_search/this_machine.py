"""The candidates that this machine can run for real, and why it cannot run others. Not: running.

Ranks here are data-parallel, with any micro-batch, recomputation and ZeRO stage; all other kinds
of parallelism are named rejections.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from autoconf_launch.autotuner.layouts.choices import Choices
from autoconf_launch.autotuner.layouts.grids import grids
from autoconf_launch.autotuner.layouts.rules import obeying
from autoconf_launch.autotuner.layouts.search import layouts_of
from autoconf_launch.autotuner.recommend.nemo_candidates import (
    NemoCandidate,
    limited,
    nemo1_name,
    nemo_candidates,
)
from autoconf_launch.autotuner.recommend.nemo_grid import Grid
from autoconf_launch.core import ConfigError, Layout, Offload, Recompute

from ..machine.discover import find_cluster
from ..request import LaunchRequest
from .candidates import (
    CandidateList,
    Rejected,
    SearchCandidate,
    layout_of,
    searched_model,
)
from .known_keys import TRAIN
from .nemo_rules import nemo_grid_of
from .not_here import layers_of_stage, why_not_here, why_nothing
from .question import SearchQuestion
from .settings import SearchSettings

_OF_NODE = ".".join((*TRAIN, "gpus_per_node"))
_OF_NODES = ".".join((*TRAIN, "num_nodes"))
_MOST_WHYS = 3
LEAST_VOCABULARY = 259
"""Vocabulary of the text that ranks here train on: bytes and three special tokens."""


def local_ranks(settings: SearchSettings) -> int:
    """Ranks of a run: as many as are asked for, or all GPUs, or one for each core.

    Raises:
        HardwareError: more GPUs are asked for than are visible.
    """
    asked = settings.train.gpus_per_node if _OF_NODE in settings.given else None
    return len(find_cluster(local_request(asked or settings.cluster.gpus_per_node)).devices)


def local_request(ranks: int | None) -> LaunchRequest:
    """A launch of so many ranks of nothing yet; None for all slots."""
    return LaunchRequest(script="", processes=ranks or "auto")


def local_candidates(question: SearchQuestion) -> CandidateList:
    """What can be run, NVIDIA's order or ours, and what cannot.

    Ours is by micro-batch, the largest first, until a profile run has told more.

    Raises:
        ConfigError: nothing divides ranks and batch, nothing of it can run here, or the
            vocabulary is too small for the text.
    """
    vocabulary = question.settings.train.vocabulary
    if vocabulary < LEAST_VOCABULARY:
        raise ConfigError(
            f"{'.'.join((*TRAIN, 'vocab_size'))} is {vocabulary}, but runs on this machine read a "
            f"text that needs at least {LEAST_VOCABULARY}."
        )
    grid = nemo_grid_of(question)
    is_nemo = isinstance(grid, Grid)
    found = tuple(_of_nemo(question, grid) if isinstance(grid, Grid) else _of_planner(question))
    runnable = [one for one in found if not why_not_here(question, one)]
    rejected = tuple(
        Rejected(candidate=one, why=why) for one in found if (why := why_not_here(question, one))
    )
    if not runnable:
        raise ConfigError(why_nothing(question, rejected))
    limit = question.settings.train.limit_runs
    return CandidateList(
        candidates=_cut(runnable, limit) if is_nemo else tuple(runnable),
        nodes=1,
        found=len(found),
        rejected=rejected,
        notes=tuple(_notes(question, rejected)),
    )


def first_shown(found: CandidateList, limit: int) -> CandidateList:
    """As many as a search would run, where no profile run says which; 0 for all."""
    count = len(found.candidates)
    if not 0 < limit < count:
        return found
    note = (
        f"limit_search_runs is {limit}: a profile run of the model, which --dry-run leaves out, "
        f"chooses them among {count}; the first ones are shown."
    )
    return replace(found, candidates=found.candidates[:limit], notes=(*found.notes, note))


def _cut(found: Sequence[SearchCandidate], limit: int) -> tuple[SearchCandidate, ...]:
    """In turn of each micro-batch, so that the largest are not cut first; 0 takes all."""
    points = limited(tuple(dict.fromkeys(one.point for one in found)), limit)
    kept = [one for point in points for one in found if one.point == point]
    return tuple(kept[: limit or None])


def with_zero(candidate: SearchCandidate, stage: int) -> SearchCandidate:
    """The same with another ZeRO stage."""
    return replace(candidate, layout=replace(candidate.layout, zero_stage=stage))


def _of_nemo(question: SearchQuestion, grid: Grid) -> Iterator[SearchCandidate]:
    model = searched_model(question, question.gpus)
    for one in nemo_candidates(grid, model):
        name = nemo1_name(model, 1, one)
        yield SearchCandidate(name=name, point=one, layout=layout_of(one, model))


def _of_planner(question: SearchQuestion) -> Iterator[SearchCandidate]:
    """The planner's valid space, each mesh with ZeRO 1 where it has ranks to share with."""
    train, grid = question.settings.train, question.settings.train.grid
    choices = Choices(
        tensor=grid.tensor,
        pipeline=grid.pipeline,
        virtual=(1,),
        context=grid.context,
        expert=grid.expert,
        micro_batch=grid.micro_batch,
        zero=(0, 1),
        layers=(),
        sequence_parallel=(False,),
        offload=(Offload.NONE,),
    )
    least, most = grid.least_product or 1, grid.most_product or question.gpus
    model = question.architecture
    layouts: dict[tuple[object, ...], Layout] = {}
    for piece in grids(question.gpus, question.model.global_batch, model, choices):
        kept = np.broadcast_to(obeying(piece, model, train.sequence, {}), piece.shape)
        for layout in layouts_of(piece.rows(np.flatnonzero(kept))):
            if least <= math.prod(_mesh(layout)) <= most:
                layouts[_key(layout)] = layout  # ZeRO 1 comes after 0
    for layout in sorted(layouts.values(), key=_order):
        yield from _with_recompute(question, layout)


def _key(layout: Layout) -> tuple[object, ...]:
    return (*_mesh(layout), layout.micro_batch, layout.recompute)


def _mesh(layout: Layout) -> tuple[int, ...]:
    return (
        layout.tensor_parallel,
        layout.pipeline_parallel,
        layout.context_parallel,
        layout.expert_parallel,
    )


def _order(layout: Layout) -> tuple[object, ...]:
    return (_mesh(layout), list(Recompute).index(layout.recompute), -layout.micro_batch)


def _with_recompute(question: SearchQuestion, layout: Layout) -> Iterator[SearchCandidate]:
    """One candidate, or one for each of the numbers of layers that the user wants."""
    wanted, kind = question.settings.train.recompute_layers, layout.recompute
    whole = layers_of_stage(question, layout.pipeline_parallel)
    if wanted is None:
        numbers: tuple[int | None, ...] = (whole if kind is Recompute.FULL else None,)
    elif kind is Recompute.SELECTIVE:
        return
    else:
        numbers = tuple(n for n in wanted if bool(n) == (kind is Recompute.FULL))
    for number in numbers:
        yield _candidate(question, layout, number)


def _candidate(question: SearchQuestion, layout: Layout, layers: int | None) -> SearchCandidate:
    one = NemoCandidate(
        tensor=layout.tensor_parallel,
        pipeline=layout.pipeline_parallel,
        context=layout.context_parallel,
        expert=layout.expert_parallel,
        micro_batch=layout.micro_batch,
        recompute_layers=layers,
    )
    name = nemo1_name(searched_model(question, question.gpus), 1, one)
    selective = "_selective" if layout.recompute is Recompute.SELECTIVE else ""
    return SearchCandidate(name=f"{name}{selective}", point=one, layout=layout)


def _notes(question: SearchQuestion, rejected: tuple[Rejected, ...]) -> Iterator[str]:
    settings = question.settings
    if _OF_NODES in settings.given and settings.train.nodes > 1:
        yield f"num_nodes is {settings.train.nodes}, but this machine is one node."
    if "data_dir" in settings.given:
        yield "Runs on this machine read a text made at run time; data_dir is not read."
    if rejected:
        whys = list(dict.fromkeys(one.why for one in rejected))
        shown = "; ".join(whys[:_MOST_WHYS])
        more = f"; and {len(whys) - _MOST_WHYS} more reasons" if len(whys) > _MOST_WHYS else ""
        yield f"{len(rejected)} candidates are not started: {shown}{more}."
