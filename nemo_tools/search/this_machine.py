"""Candidates that our own runtime trains, on this machine or in jobs, and reasons for the others.

The runtime's rules decide before a launch, and the profiled model's own limits after it. Memory
beyond weights, gradients and Adam's state is not counted: a run may still run out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from autoconf_launch.autotuner.cost import ALL_LAYERS, LayoutColumns, parameters
from autoconf_launch.autotuner.planner import grids, plan_only_by, rule_mask
from autoconf_launch.autotuner.sizing import Grid, search_rules
from autoconf_launch.core import (
    ConfigError,
    Layout,
    ModelSpec,
    NothingFeasibleError,
    Offload,
    Recompute,
    divisors,
)
from autoconf_launch.launcher.hosts import find_cluster
from autoconf_launch.launcher.report import RULES_IN_WORDS, size_text
from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.tuning_spaces import predefined_searches

from ..candidate_grids import NemoCandidate, limit_candidates, nemo1_name, nemo_candidates
from .candidates import CandidateList, Rejected, SearchCandidate
from .question import SearchQuestion, grid_question, nemo_grid_of
from .settings import TRAIN, SearchSettings

_PREFIX = ".".join(TRAIN)
_OF_NODE = f"{_PREFIX}.gpus_per_node"
_FEWEST_BLOCKS = 2
"""Fewest layers in a row that the runtime recognizes as repeated."""
_KINDS = ("tensor", "pipeline", "context", "expert")
_MOST_SUBJECTS = 4
_MOST_WHYS = 3
LEAST_TEXT_VOCABULARY = 259
"""Vocabulary of the text that ranks train on: bytes and three special tokens."""
STATE_BYTES = 16
"""State per parameter: 4 + 4 + 8 in fp32; 2 + 2 + 12 in bf16 with a master copy (ZeRO, 3.1)."""


def split_runnable(
    question: SearchQuestion, found: Iterable[SearchCandidate]
) -> tuple[tuple[SearchCandidate, ...], tuple[Rejected, ...]]:
    """Candidates that the runtime trains, and the others with the reason."""
    every = tuple(found)
    if not every:
        return (), ()
    layers = [_some_layers(question, one) or ALL_LAYERS for one in every]
    columns = LayoutColumns.from_layouts([one.layout for one in every], layers)
    model = question.model.architecture
    broken = plan_only_by(columns, model, question.sequence)
    whys = []
    for one, rule in zip(every, broken, strict=True):
        sizes = zip(_KINDS, one.layout.mesh, strict=True)
        wide = " and ".join(f"{kind} parallelism {size}" for kind, size in sizes if size > 1)
        own = _why_not_recomputed(question, one)
        whys.append(f"{wide}: {RULES_IN_WORDS[rule]}" if rule else own)
    return _split(every, whys)


def split_trainable(
    spec: ModelSpec | None, found: tuple[SearchCandidate, ...]
) -> tuple[tuple[SearchCandidate, ...], tuple[Rejected, ...]]:
    """Candidates that the profiled model allows, and the others with its own reason."""
    limits = {one.key: one for one in spec.degree_limits} if spec else {}

    def why(one: SearchCandidate) -> str:
        degrees = zip(_KINDS, one.layout.mesh, strict=True)
        found = (limits[kind].obstacle(size) for kind, size in degrees if kind in limits)
        return next(filter(None, found), "")

    return _split(found, [why(one).rstrip(".") for one in found])


def _split(
    found: tuple[SearchCandidate, ...], whys: list[str]
) -> tuple[tuple[SearchCandidate, ...], tuple[Rejected, ...]]:
    pairs = tuple(zip(found, whys, strict=True))
    rejected = tuple(Rejected(candidate=one, why=why) for one, why in pairs if why)
    return tuple(one for one, why in pairs if not why), rejected


def layers_of_stage(question: SearchQuestion, stages: int) -> int:
    """Layers of the fullest stage; an encoder's layer counts as a decoder's."""
    model = question.model.architecture
    return -(-(model.layers + model.encoder_layers) // stages)


def _some_layers(question: SearchQuestion, one: SearchCandidate) -> int | None:
    """Number of layers that a rank recomputes; None for all or no layers."""
    layers = one.point.recompute_layers
    whole = layers_of_stage(question, one.layout.pipeline_parallel)
    return layers if layers and layers != whole else None


def runtime_extras(question: SearchQuestion, one: SearchCandidate) -> tuple[tuple[str, int], ...]:
    """Knobs of a candidate beyond its layout, by our runtime's names."""
    layers = _some_layers(question, one)
    return () if layers is None else (("recompute_layers", layers),)


def _why_not_recomputed(question: SearchQuestion, one: SearchCandidate) -> str:
    layers, model = _some_layers(question, one), question.model.architecture
    if layers and model.encoder_layers:
        whole = layers_of_stage(question, one.layout.pipeline_parallel)
        return (
            f"{layers} of {whole} layers recomputed: the runtime recomputes all layers of an "
            "encoder-decoder or none"
        )
    if one.point.recompute_micro_batches or one.point.recompute_layers_per_pipeline:
        return "some micro-batches recomputed: the runtime recomputes all or none"
    recomputes = one.layout.recompute is not Recompute.NONE
    if recomputes and question.model.shape.layers < _FEWEST_BLOCKS:
        return "recomputation: the model has no repeated layers, and the runtime recomputes those"
    return ""


def why_no_candidate(
    question: SearchQuestion, rejected: tuple[Rejected, ...], broken: Iterable[str] = ()
) -> str:
    """The reason why no candidate is left, and the remedy; ``broken`` are rules of layouts."""
    batch, ranks = question.global_batch, question.gpus
    if batch % ranks:
        valid = [str(count) for count in divisors(batch) if count <= 2 * ranks + 1]
        return (
            f"No candidate for {question.name} that runs here splits a global batch of {batch} "
            f"over {ranks} ranks; {_OF_NODE}={' or '.join(valid)} divides it, or take another "
            "global_batch_size."
        )
    if rejected:
        return (
            f"None of {len(rejected)} candidates can run here, such as "
            f"{rejected[0].candidate.name}: {rejected[0].why}; search other sizes."
        )
    micro = question.scope.degrees.micro_batch or (1,)
    if all(batch % size for size in micro):
        why = (
            f"none of {_PREFIX}.micro_batch_sizes={list(micro)} divides the {batch} samples of a "
            f"step; valid: {', '.join(map(str, divisors(batch)))}"
        )
    else:
        why = "; ".join(broken) or f"their degrees do not multiply to {ranks} ranks"
    return f"No candidate for {question.name} on {ranks} ranks has the sizes given: {why}."


def local_ranks(settings: SearchSettings) -> int:
    """Ranks of a run: the requested number, or all GPUs, or one for each core."""
    asked = settings.train.gpus_per_node if _OF_NODE in settings.given else None
    return len(find_cluster(local_request(asked or settings.cluster.gpus_per_node)).devices)


def local_request(ranks: int | None) -> LaunchRequest:
    """A launch request without a script; None takes all slots."""
    return LaunchRequest(script="", processes=ranks or "auto")


def local_candidates(question: SearchQuestion) -> CandidateList:
    """Candidates that our runtime trains, in NVIDIA's order or ours, and the others.

    Ours is by degrees of parallelism and by micro-batch, the largest first; a profile run orders
    them by their predicted time.

    Raises:
        ConfigError: nothing divides ranks and batch, nothing of it can run here, or the
            vocabulary is too small for the text.
    """
    vocabulary = question.model.asked.vocabulary
    if vocabulary < LEAST_TEXT_VOCABULARY:
        raise ConfigError(
            f"{'.'.join((*TRAIN, 'vocab_size'))} is {vocabulary}, but runs on this machine read a "
            f"text that needs at least {LEAST_TEXT_VOCABULARY}."
        )
    grid, broken = nemo_grid_of(question), dict[str, str]()
    is_nemo = isinstance(grid, Grid)
    listed = _of_nemo(question, grid) if isinstance(grid, Grid) else _of_planner(question, broken)
    found = tuple(listed)
    runnable, rejected = split_runnable(question, found)
    if not runnable:
        raise ConfigError(why_no_candidate(question, rejected, broken.values()))
    if is_nemo:  # the first of each micro-batch in turn, so the largest are not cut first
        by_point = {one.point: one for one in runnable}
        limited = limit_candidates(tuple(by_point), question.scope.limit_runs)
        runnable = tuple(by_point[point] for point in limited)
    return CandidateList(
        candidates=runnable,
        nodes=question.nodes,
        found=len(found),
        rejected=rejected,
        notes=_rejection_note(rejected),
    )


def first_shown(found: CandidateList, limit: int) -> CandidateList:
    """The candidates that a dry run shows of those among which a profile run would choose."""
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
    model = grid_question(question)
    for one in nemo_candidates(grid, model):
        yield SearchCandidate(name=nemo1_name(model, question.nodes, one), point=one)


def _of_planner(question: SearchQuestion, broken: dict[str, str]) -> Iterator[SearchCandidate]:
    """The planner's valid space, each mesh with ZeRO 1 if it has ranks to share with.

    ``broken`` receives each rule that rejects a layout, in words.
    """
    model = question.model.architecture
    degrees = replace(
        question.scope.degrees,
        virtual_pipeline=(1,),
        zero_stage=(0, 1),
        recompute_layers=(),
        sequence_parallel=(False,),
        offload=(Offload.NONE,),
    )
    rules, dropped = search_rules(question.gpus_per_node, degrees), dict[str, int]()
    layouts: dict[tuple[object, ...], Layout] = {}
    for piece in grids(question.gpus, question.global_batch, model, degrees):
        mask = rule_mask(piece, model, question.sequence, dropped, rules)
        kept = np.broadcast_to(mask, piece.shape)
        for layout in piece.rows(np.flatnonzero(kept)).layouts():
            key = (layout.mesh, layout.micro_batch, layout.recompute)
            layouts[key] = layout  # ZeRO 1 comes after 0
    for rule in rules:
        if rule.name in dropped and rule.knob != "zero_stage_C":
            broken[rule.name] = RULES_IN_WORDS.get(rule.name, f"{rule.flag} {rule.why}")
    kinds = list(Recompute)
    for layout in sorted(
        layouts.values(), key=lambda one: (one.mesh, kinds.index(one.recompute), -one.micro_batch)
    ):
        yield from _with_recompute(question, layout)


def _with_recompute(question: SearchQuestion, layout: Layout) -> Iterator[SearchCandidate]:
    """The candidates of a layout: one for each number of recomputed layers requested."""
    wanted, kind = question.scope.degrees.recompute_layers, layout.recompute
    whole = layers_of_stage(question, layout.pipeline_parallel)
    if wanted is None:
        numbers: tuple[int | None, ...] = (whole if kind is Recompute.FULL else None,)
    elif kind is Recompute.SELECTIVE:
        return
    else:
        numbers = tuple(n for n in wanted if bool(n) == (kind is Recompute.FULL) and n <= whole)
    for number in numbers:
        one = NemoCandidate(layout=layout, recompute_layers=number)
        name = nemo1_name(grid_question(question), question.nodes, one)
        selective = "_selective" if kind is Recompute.SELECTIVE else ""
        yield SearchCandidate(name=f"{name}{selective}", point=one)


def _rejection_note(rejected: tuple[Rejected, ...]) -> tuple[str, ...]:
    whys = _reasons(rejected)
    shown = "; ".join(whys[:_MOST_WHYS])
    more = f"; and {len(whys) - _MOST_WHYS} more reasons" if len(whys) > _MOST_WHYS else ""
    count = len(rejected)
    return (f"{count} candidates are not started: {shown}{more}.",) if rejected else ()


def _reasons(rejected: tuple[Rejected, ...]) -> list[str]:
    """Each reason once, after all that it holds for: ``tensor parallelism 2, ...: TP does …``."""
    subjects: dict[str, list[str]] = {}
    for why in dict.fromkeys(one.why for one in rejected):
        subject, colon, reason = why.rpartition(": ")
        subjects.setdefault(f"{colon}{reason}", []).append(subject)
    texts = []
    for reason, found in subjects.items():
        more = len(found) - _MOST_SUBJECTS
        some = ", ".join(found[:_MOST_SUBJECTS]) + (f" and {more} more" if more > 0 else "")
        texts.append(f"{some}{reason}")
    return texts


def require_room(question: SearchQuestion) -> None:
    """Check that all ranks together hold the model's state, each its share (ZeRO 3)."""
    for refusal in refusals(question):
        raise NothingFeasibleError(refusal)


def refusals(question: SearchQuestion) -> tuple[str, ...]:
    """The reason why this machine cannot hold a model now; empty if it can."""
    cluster = find_cluster(local_request(question.gpus))
    refusal = why_no_room(question, cluster.least_memory_bytes)
    return (refusal,) if refusal else ()


def why_no_room(question: SearchQuestion, rank_bytes: int) -> str:
    """The reason why ranks with this much memory each cannot hold a model; "" if they can."""
    count, ranks = parameters(question.model.architecture), question.gpus
    needed, held = STATE_BYTES * count / ranks, rank_bytes * ranks // STATE_BYTES
    if needed <= rank_bytes:
        return ""
    each = f"each of {ranks} ranks" if ranks > 1 else "one rank"
    sizes = {
        one.size_b: one.name
        for one in predefined_searches()
        if one.family == question.family.predefined and one.size_b * 1e9 <= held
    }
    instead = f"it holds {held / 1e9:.2g} B: give a smaller model_size_in_b"
    if sizes:
        best = sizes[max(sizes)]
        instead = f"the largest predefined size that it holds is search_config={best}"
    return (
        f"{question.name} needs at least {size_text(needed)} on {each} for weights, gradients and "
        f"Adam's state ({STATE_BYTES} bytes for each of {count / 1e9:.3g} B parameters), but this "
        f"machine has {size_text(rank_bytes)} free for each; {instead}."
    )
