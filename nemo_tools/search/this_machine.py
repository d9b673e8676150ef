"""The candidates that this machine can run for real, and why it cannot run others.

Ranks here are data-parallel, with any micro-batch, recomputation and ZeRO stage; all other kinds
of parallelism are named rejections.

What is kept beside weights, gradients and Adam's state is not counted: a run may still not fit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from autoconf_launch.autotuner.cost import parameters
from autoconf_launch.autotuner.planner import grids, rule_mask
from autoconf_launch.autotuner.sizing import Grid
from autoconf_launch.core import (
    ConfigError,
    Layout,
    NothingFeasibleError,
    Offload,
    Recompute,
    divisors,
)
from autoconf_launch.launcher.hosts import find_cluster
from autoconf_launch.launcher.report import size_text
from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.tuning_spaces import predefined_searches

from ..candidate_grids import NemoCandidate, limit_candidates, nemo1_name, nemo_candidates
from .candidates import CandidateList, Rejected, SearchCandidate, searched_model
from .question import SearchQuestion, nemo_grid_of
from .settings import TRAIN, SearchSettings

_PREFIX = ".".join(TRAIN)
_OF_NODE, _OF_NODES = f"{_PREFIX}.gpus_per_node", f"{_PREFIX}.num_nodes"
_FEWEST_BLOCKS = 2
"""Layers in a row by which the runtime knows what is repeated."""
_KINDS = ("tensor", "pipeline", "context", "expert")


def split_runnable(
    question: SearchQuestion, found: Iterable[SearchCandidate]
) -> tuple[tuple[SearchCandidate, ...], tuple[Rejected, ...]]:
    """Candidates that this machine can run, and the others with why not."""
    whys = [(one, why_not_here(question, one)) for one in found]
    kept = tuple(one for one, why in whys if not why)
    return kept, tuple(Rejected(candidate=one, why=why) for one, why in whys if why)


def layers_of_stage(question: SearchQuestion, stages: int) -> int:
    """Layers of the fullest stage; an encoder's layer counts as a decoder's."""
    model = question.model.architecture
    return -(-(model.layers + model.encoder_layers) // stages)


def why_no_candidate(question: SearchQuestion, rejected: tuple[Rejected, ...]) -> str:
    """Why no candidate is left, and what to give instead."""
    batch, ranks = question.global_batch, question.gpus
    if batch % ranks:
        valid = [str(count) for count in divisors(batch) if count <= 2 * ranks + 1]
        return (
            f"No candidate for {question.name} splits a global batch of {batch} over {ranks} "
            f"ranks; {_OF_NODE}={' or '.join(valid)} divides it, or take another "
            "global_batch_size."
        )
    if rejected:
        return (
            f"None of {len(rejected)} candidates can run here, such as "
            f"{rejected[0].candidate.name}: {rejected[0].why}; search other sizes."
        )
    given = "; ".join(_given_in_vain(question, batch // ranks))
    return f"No candidate for {question.name} on {ranks} ranks has the sizes given: {given}."


def why_not_here(question: SearchQuestion, one: SearchCandidate) -> str:
    """Why this machine cannot run a candidate, as the end of a sentence; "" if it can."""
    wide = [
        f"{kind} parallelism {size}"
        for kind, size in zip(_KINDS, one.layout.mesh, strict=True)
        if size > 1
    ]
    if wide:
        return f"{' and '.join(wide)}: search runs data-parallel layouts here"
    layers, whole = one.point.recompute_layers, layers_of_stage(question, 1)
    if layers and layers != whole:
        return (
            f"{layers} of {whole} layers recomputed: the runtime on this machine recomputes all "
            "layers or none"
        )
    if one.point.recompute_micro_batches or one.point.recompute_layers_per_pipeline:
        return "some micro-batches recomputed: the runtime on this machine recomputes all or none"
    recomputes = one.layout.recompute is not Recompute.NONE
    if recomputes and question.model.shape.layers < _FEWEST_BLOCKS:
        return "recomputation: the model has no repeated layers, and the runtime recomputes those"
    return ""


def _given_in_vain(question: SearchQuestion, samples: int) -> Iterator[str]:
    """Each key of the user's that leaves nothing, with what it could be."""
    degrees = question.settings.train.degrees
    micro = degrees.micro_batch
    if micro is not None and not any(samples % size == 0 for size in micro):
        valid = map(str, divisors(samples))
        yield (
            f"none of {_PREFIX}.micro_batch_sizes={list(micro)} divides the {samples} samples of "
            f"a rank; valid: {', '.join(valid)}"
        )
        return
    least = degrees.least_product
    for kind, sizes in zip(_KINDS, degrees.mesh_axes, strict=True):
        if 1 not in sizes:
            yield f"{_PREFIX}.{kind}_parallel_sizes={list(sizes)} must have 1 on this machine"
    if least is not None and least > 1:
        yield f"{_PREFIX}.min_model_parallel_size={least} must be 1 on this machine"
    if degrees.recompute_layers is not None:
        listed, whole = list(degrees.recompute_layers), layers_of_stage(question, 1)
        yield f"of {_PREFIX}.act_ckpt_layers={listed} only 0 and {whole} run"


_MOST_SUBJECTS = 4
_MOST_WHYS = 3
LEAST_TEXT_VOCABULARY = 259
"""Vocabulary of the text that ranks here train on: bytes and three special tokens."""


def local_ranks(settings: SearchSettings) -> int:
    """Ranks of a run: as many as are asked for, or all GPUs, or one for each core."""
    asked = settings.train.gpus_per_node if _OF_NODE in settings.given else None
    return len(find_cluster(local_request(asked or settings.cluster.gpus_per_node)).devices)


def local_request(ranks: int | None) -> LaunchRequest:
    """A launch of so many ranks of nothing yet; None for all slots."""
    return LaunchRequest(script="", processes=ranks or "auto")


def local_candidates(question: SearchQuestion) -> CandidateList:
    """Candidates that this machine can run, in NVIDIA's order or ours, and the others.

    Ours is by micro-batch, the largest first, until a profile run has told more.

    Raises:
        ConfigError: nothing divides ranks and batch, nothing of it can run here, or the
            vocabulary is too small for the text.
    """
    vocabulary = question.settings.train.vocabulary
    if vocabulary < LEAST_TEXT_VOCABULARY:
        raise ConfigError(
            f"{'.'.join((*TRAIN, 'vocab_size'))} is {vocabulary}, but runs on this machine read a "
            f"text that needs at least {LEAST_TEXT_VOCABULARY}."
        )
    grid = nemo_grid_of(question)
    is_nemo = isinstance(grid, Grid)
    found = tuple(_of_nemo(question, grid) if isinstance(grid, Grid) else _of_planner(question))
    runnable, rejected = split_runnable(question, found)
    if not runnable:
        raise ConfigError(why_no_candidate(question, rejected))
    if is_nemo:  # the first of each micro-batch in turn, so the largest are not cut first
        by_point = {one.point: one for one in runnable}
        limited = limit_candidates(tuple(by_point), question.settings.train.limit_runs)
        runnable = tuple(by_point[point] for point in limited)
    return CandidateList(
        candidates=runnable,
        nodes=question.nodes,
        found=len(found),
        rejected=rejected,
        notes=tuple(_notes(question, rejected)),
    )


def first_shown(found: CandidateList, limit: int) -> CandidateList:
    """The candidates that a search would run, where no profile run says which; 0 for all."""
    count = len(found.candidates)
    if not 0 < limit < count:
        return found
    note = (
        f"limit_search_runs is {limit}: a profile run of the model, which --dry-run skips, "
        f"chooses them among {count}; the first ones are shown."
    )
    return replace(found, candidates=found.candidates[:limit], notes=(*found.notes, note))


def with_zero(candidate: SearchCandidate, stage: int) -> SearchCandidate:
    """The candidate with another ZeRO stage."""
    layout = replace(candidate.layout, zero_stage=stage)
    return replace(candidate, point=replace(candidate.point, layout=layout))


def _of_nemo(question: SearchQuestion, grid: Grid) -> Iterator[SearchCandidate]:
    model = searched_model(question, question.gpus)
    for one in nemo_candidates(grid, model):
        yield SearchCandidate(name=nemo1_name(model, question.nodes, one), point=one)


def _of_planner(question: SearchQuestion) -> Iterator[SearchCandidate]:
    """The planner's valid space, each mesh with ZeRO 1 where it has ranks to share with."""
    train, model = question.settings.train, question.model.architecture
    degrees = replace(
        train.degrees,
        virtual_pipeline=(1,),
        zero_stage=(0, 1),
        recompute_layers=(),
        sequence_parallel=(False,),
        offload=(Offload.NONE,),
    )
    layouts: dict[tuple[object, ...], Layout] = {}
    for piece in grids(question.gpus, question.global_batch, model, degrees):
        kept = np.broadcast_to(rule_mask(piece, model, train.sequence, {}), piece.shape)
        for layout in piece.rows(np.flatnonzero(kept)).layouts():
            if degrees.allows_product(math.prod(layout.mesh)):
                key = (layout.mesh, layout.micro_batch, layout.recompute)
                layouts[key] = layout  # ZeRO 1 comes after 0
    kinds = list(Recompute)
    for layout in sorted(
        layouts.values(), key=lambda one: (one.mesh, kinds.index(one.recompute), -one.micro_batch)
    ):
        yield from _with_recompute(question, layout)


def _with_recompute(question: SearchQuestion, layout: Layout) -> Iterator[SearchCandidate]:
    """The candidates of a layout: one for each number of recomputed layers requested."""
    wanted, kind = question.settings.train.degrees.recompute_layers, layout.recompute
    whole = layers_of_stage(question, layout.pipeline_parallel)
    if wanted is None:
        numbers: tuple[int | None, ...] = (whole if kind is Recompute.FULL else None,)
    elif kind is Recompute.SELECTIVE:
        return
    else:
        numbers = tuple(n for n in wanted if bool(n) == (kind is Recompute.FULL))
    for number in numbers:
        one = NemoCandidate(layout=layout, recompute_layers=number)
        name = nemo1_name(searched_model(question, question.gpus), question.nodes, one)
        selective = "_selective" if kind is Recompute.SELECTIVE else ""
        yield SearchCandidate(name=f"{name}{selective}", point=one)


def _notes(question: SearchQuestion, rejected: tuple[Rejected, ...]) -> Iterator[str]:
    settings = question.settings
    if _OF_NODES in settings.given and settings.train.nodes > question.nodes:
        yield f"num_nodes is {settings.train.nodes}, but this machine is one node."
    if "data_dir" in settings.given:
        yield "Runs of our runtime read a text made at run time; data_dir is not read."
    if rejected:
        whys = _reasons(rejected)
        shown = "; ".join(whys[:_MOST_WHYS])
        more = f"; and {len(whys) - _MOST_WHYS} more reasons" if len(whys) > _MOST_WHYS else ""
        yield f"{len(rejected)} candidates are not started: {shown}{more}."


def _reasons(rejected: tuple[Rejected, ...]) -> list[str]:
    """Each reason once, after all that it holds for: ``pipeline parallelism 2: search runs …``."""
    subjects: dict[str, list[str]] = {}
    for why in dict.fromkeys(one.why for one in rejected):
        subject, colon, reason = why.rpartition(": ")
        subjects.setdefault(f"{colon}{reason}", []).append(subject)
    return [f"{_some(found)}{reason}" for reason, found in subjects.items()]


def _some(subjects: list[str]) -> str:
    more = len(subjects) - _MOST_SUBJECTS
    return ", ".join(subjects[:_MOST_SUBJECTS]) + (f" and {more} more" if more > 0 else "")


STATE_BYTES = 16
"""State per parameter: 4 + 4 + 8 in fp32; 2 + 2 + 12 in bf16 with a master copy (ZeRO, 3.1)."""


def require_room(question: SearchQuestion) -> None:
    """See that all ranks together hold the state of the model, each its share (ZeRO 3)."""
    for refusal in refusals(question):
        raise NothingFeasibleError(refusal)


def refusals(question: SearchQuestion) -> tuple[str, ...]:
    """Why this machine, as it is now, cannot hold a model; nothing where it can."""
    cluster = find_cluster(local_request(question.gpus))
    refusal = why_no_room(question, cluster.least_memory_bytes)
    return (refusal,) if refusal else ()


def why_no_room(question: SearchQuestion, rank_bytes: int) -> str:
    """Why a model cannot be held by ranks with so much memory each; "" where it can."""
    count, ranks = parameters(question.model.architecture), question.gpus
    needed, held = STATE_BYTES * count / ranks, rank_bytes * ranks // STATE_BYTES
    if needed <= rank_bytes:
        return ""
    each = f"each of {ranks} ranks" if ranks > 1 else "one rank"
    return (
        f"{question.name} needs at least {size_text(needed)} on {each} for weights, gradients and "
        f"Adam's state ({STATE_BYTES} bytes for each of {count / 1e9:.3g} B parameters), but this "
        f"machine has {size_text(rank_bytes)} free for each; {_instead(question, held)}."
    )


def _instead(question: SearchQuestion, held: int) -> str:
    sizes = {
        one.size_b: one.name
        for one in predefined_searches()
        if one.family == question.family.predefined and one.size_b * 1e9 <= held
    }
    if sizes:
        return f"the largest predefined size that it holds is search_config={sizes[max(sizes)]}"
    return f"it holds {held / 1e9:.2g} B: give a smaller model_size_in_b"
