"""The points of an inference search: NVIDIA's or ours, with what is predicted of each.

A point that cannot be run stays in the list with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from autoconf_launch.autotuner.cost import MEMORY_BAND
from autoconf_launch.autotuner.inference import (
    InferencePoint,
    InferenceQuestion,
    priced_points,
    rank_points,
    why_no_generation,
    why_not_degrees,
)
from autoconf_launch.core import Candidate, ConfigError, GenerationTask, Layout
from autoconf_launch.launcher.report import memory_size

from ..search import GridKind, SearchQuestion

_BLOCK = 128
"""``make_vocab_size_divisible_by`` of NVIDIA's base configurations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPoint:
    """A run that the search could make.

    Attributes:
        name: of its folder.
        predicted: None where nothing was.
        why_not: why it is not run, as a sentence; empty where it is.
    """

    name: str
    task: GenerationTask
    predicted: InferencePoint | None = None
    why_not: str = ""

    @property
    def layout(self) -> Layout:
        """Tensor and pipeline ranks; its micro-batch is the batch."""
        return self.task.layout

    @property
    def candidate(self) -> Candidate:
        """The point as studies and journals know it."""
        return self.task.candidate

    @property
    def gpus(self) -> int:
        """Ranks of the run."""
        return self.layout.world_size


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthQuestion:
    """The question that all points of one search share.

    Attributes:
        priced: the model, the machine, the engine's habits and the memory of a rank.
        gpus_per_node: of a node, in NVIDIA's rules.
        why_not: of the engine.
    """

    search: SearchQuestion
    priced: InferenceQuestion
    gpus_per_node: int
    why_not: Callable[[GenerationTask], str]


def padded_vocabulary(vocabulary: int) -> int:
    """Rows of the embedding: the next multiple of a block, which a multiple itself is."""
    return -(-vocabulary // _BLOCK) * _BLOCK


def nodes_necessary(gpus_per_node: int, tensor: int, pipeline: int) -> int:
    """Nodes of a run by NVIDIA's rule: a stage has a node of its own; 0 where it has no place."""
    if tensor <= gpus_per_node:
        return pipeline
    if tensor % gpus_per_node:
        return 0
    return max(pipeline, pipeline * tensor // gpus_per_node)


def model_name(question: SearchQuestion) -> str:
    """The model in names of folders."""
    return question.settings.inference.name or question.name


def search_points(asked: LengthQuestion) -> tuple[SearchPoint, ...]:
    """All points, those to be run first: NVIDIA's in NVIDIA's order, ours by their promise.

    Raises:
        ConfigError: the model writes no text of these lengths, or no size is valid.
    """
    generation = asked.priced.generation
    if why := why_no_generation(generation):
        raise ConfigError(why)
    is_nemo = asked.search.settings.grid is GridKind.NEMO
    triples = tuple(_nemo_triples(asked) if is_nemo else _triples(asked))
    if not triples:
        raise ConfigError(_nothing_valid(asked))
    degrees = {(t, p): _why_not_shared(t, p, asked) for t, p, _ in triples}
    valid = [triple for triple in triples if not degrees[triple[:2]]]
    predicted = dict(zip(valid, priced_points(asked.priced, valid), strict=True)) if valid else {}
    points = [_point(asked, triple, degrees, predicted.get(triple)) for triple in triples]
    if is_nemo:
        return tuple(sorted(points, key=lambda one: bool(one.why_not)))
    return tuple(sorted(points, key=lambda one: _promise(one, asked.priced.max_latency_s)))


def _nemo_triples(asked: LengthQuestion) -> Iterator[tuple[int, int, int]]:
    """Tensor ranks, stages and batches that NVIDIA's tool would run."""
    model, each = asked.priced.generation.model, asked.gpus_per_node
    for tensor, pipeline, batch in _triples(asked):
        divides = model.heads % tensor == 0 and model.layers % pipeline == 0
        fills = pipeline == 1 or tensor >= each
        if divides and fills and nodes_necessary(each, tensor, pipeline):
            yield tensor, pipeline, batch


def _triples(asked: LengthQuestion) -> Iterator[tuple[int, int, int]]:
    """The lists that were asked for; auto: all valid degrees, and powers of two that fit."""
    settings = asked.search.settings.inference
    lists = (settings.tensor, settings.pipeline, settings.batches)
    if None in lists:
        question = replace(
            asked.priced,
            tensor=settings.tensor or (),
            pipeline=settings.pipeline or (),
            batches=settings.batches or (),
            max_latency_s=math.inf,
        )
        found = rank_points(question).best
        yield from sorted((one.tensor_parallel, one.pipeline_parallel, one.batch) for one in found)
        return
    for tensor in settings.tensor or ():
        for pipeline in settings.pipeline or ():
            for batch in settings.batches or ():
                yield tensor, pipeline, batch


def _why_not_shared(tensor: int, pipeline: int, asked: LengthQuestion) -> str:
    why = why_not_degrees(tensor, pipeline, asked.priced.generation, asked.priced.engine)
    if why:
        return why
    ranks = tensor * pipeline
    if ranks > asked.priced.world:
        return f"needs {ranks} ranks, but there are {asked.priced.world} slots."
    return ""


def _point(
    asked: LengthQuestion,
    triple: tuple[int, int, int],
    degrees: dict[tuple[int, int], str],
    predicted: InferencePoint | None,
) -> SearchPoint:
    tensor, pipeline, batch = triple
    generation = asked.priced.generation
    layout = Layout(tensor_parallel=tensor, pipeline_parallel=pipeline, micro_batch=batch)
    task = GenerationTask(
        layout=layout,
        input_len=generation.input_tokens,
        output_len=generation.output_tokens,
        precision=generation.precision,
    )
    why_not = degrees[tensor, pipeline] or asked.why_not(task) or _why_no_room(asked, predicted)
    return SearchPoint(
        name=f"{model_name(asked.search)}_tp{tensor}_pp{pipeline}_bs{batch}",
        task=task,
        predicted=predicted,
        why_not=why_not,
    )


def _why_no_room(asked: LengthQuestion, predicted: InferencePoint | None) -> str:
    """Why memory surely does not suffice, beyond what the prediction errs by."""
    if predicted is None:
        return ""
    limit = asked.priced.limit_bytes
    if predicted.peak_bytes <= limit * (1.0 + MEMORY_BAND):
        return ""
    return (
        f"needs {memory_size(predicted.peak_bytes)} on a rank by prediction, but "
        f"{memory_size(limit)} are there; give more ranks or a smaller batch."
    )


def _promise(one: SearchPoint, bound_s: float) -> tuple[bool, bool, float]:
    """Within the bound first, then the most throughput of each GPU."""
    if one.predicted is None:
        return (bool(one.why_not), True, 0.0)
    late = one.predicted.latency_s > bound_s
    return (bool(one.why_not), late, -one.predicted.samples_per_s_per_gpu)


def _nothing_valid(asked: LengthQuestion) -> str:
    settings, model = asked.search.settings.inference, asked.priced.generation.model
    return (
        f"No point of {model_name(asked.search)} is valid: tensor_parallel_sizes "
        f"{_list_text(settings.tensor)} must divide {model.heads} heads, pipeline_parallel_sizes "
        f"{_list_text(settings.pipeline)} {model.layers} layers, and both fit into "
        f"{asked.priced.world} ranks; give other sizes."
    )


def _list_text(sizes: tuple[int, ...] | None) -> str:
    return "auto" if sizes is None else str(list(sizes))
