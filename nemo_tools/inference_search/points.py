"""From the question of a search to the points of its inference half; nothing is launched.

Points are NVIDIA's or ours, with the prediction for each; a point that cannot be run stays in
the list with the reason.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from autoconf_launch.autotuner.cost import MEMORY_BAND
from autoconf_launch.autotuner.inference import (
    ENGINE_HABITS,
    Generation,
    InferencePoint,
    InferenceQuestion,
    priced_points,
    rank_points,
    why_no_generation,
    why_not_degrees,
)
from autoconf_launch.autotuner.space import Outcome
from autoconf_launch.core import (
    ClusterSpec,
    ConfigError,
    Failure,
    FailureKind,
    GenerationTask,
    Layout,
    Precision,
    RawConfig,
)
from autoconf_launch.launcher.estimates import machine_of
from autoconf_launch.launcher.hosts import find_cluster
from autoconf_launch.launcher.machine import is_cpu
from autoconf_launch.launcher.report import memory_size
from autoconf_launch.launcher.results import ResultsPaths

from ..report import InferenceRun, SearchPoint, not_run
from ..search import (
    ClusterKind,
    GridKind,
    InferenceSettings,
    SearchQuestion,
    SearchSettings,
    gpu_peak_flops_per_s,
    local_ranks,
    local_request,
    search_machines,
)
from .engines import EngineRun, InferenceEngine, load_engine

_BLOCK = 128
"""``make_vocab_size_divisible_by`` of NVIDIA's base configurations."""
_VOCABULARY = ("autoconf", "vocab_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lengths:
    """The question that all points of one search share."""

    prepared: PreparedInference
    priced: InferenceQuestion
    folder: Path

    @property
    def is_nemo(self) -> bool:
        """True if the points are NVIDIA's."""
        return self.prepared.question.scope.grid is GridKind.NEMO

    @property
    def gpus_per_node(self) -> int:
        """GPUs of a node in NVIDIA's rules."""
        return self.prepared.settings.gpus_per_node or self.prepared.gpus_per_node

    def why_not(self, task: GenerationTask) -> str:
        """The engine's reason for not running a task."""
        return self.prepared.engine.why_not(self.prepared.engine_run(task, self.folder))


def padded_vocabulary(vocabulary: int) -> int:
    """Rows of the embedding: the next multiple of a block, which a multiple itself is."""
    return -(-vocabulary // _BLOCK) * _BLOCK


def nodes_necessary(gpus_per_node: int, tensor: int, pipeline: int) -> int:
    """Nodes of a run by NVIDIA's rule: a stage has its own node; 0 if it has no place."""
    if tensor <= gpus_per_node:
        return pipeline
    if tensor % gpus_per_node:
        return 0
    return max(pipeline, pipeline * tensor // gpus_per_node)


def _search_points(asked: _Lengths) -> tuple[SearchPoint, ...]:
    """All points, those to be run first: NVIDIA's in NVIDIA's order, ours by predicted throughput.

    Raises:
        ConfigError: the model writes no text of these lengths, or no size is valid.
    """
    generation = asked.priced.generation
    if why := why_no_generation(generation):
        raise ConfigError(why)
    triples = tuple(_nemo_triples(asked) if asked.is_nemo else _triples(asked))
    if not triples:
        raise ConfigError(_nothing_valid(asked))
    degrees = {(t, p): _why_not_shared(t, p, asked) for t, p, _ in triples}
    valid = [triple for triple in triples if not degrees[triple[:2]]]
    predicted = dict(zip(valid, priced_points(asked.priced, valid), strict=True)) if valid else {}
    points = [_point(asked, triple, degrees, predicted.get(triple)) for triple in triples]
    if asked.is_nemo:
        return tuple(sorted(points, key=lambda one: bool(one.why_not)))
    return tuple(sorted(points, key=lambda one: _promise(one, asked.priced.max_latency_s)))


def _nemo_triples(asked: _Lengths) -> Iterator[tuple[int, int, int]]:
    model, each = asked.priced.generation.model, asked.gpus_per_node
    for tensor, pipeline, batch in _triples(asked):
        divides = model.heads % tensor == 0 and model.layers % pipeline == 0
        fills = pipeline == 1 or tensor >= each
        if divides and fills and nodes_necessary(each, tensor, pipeline):
            yield tensor, pipeline, batch


def _triples(asked: _Lengths) -> Iterator[tuple[int, int, int]]:
    """The requested lists; auto: all valid degrees, and powers of two that fit."""
    settings = asked.prepared.settings
    lists = (settings.tensor, settings.pipeline, settings.batches)
    if None not in lists:
        yield from itertools.product(*filter(None, lists))
        return
    question = replace(
        asked.priced,
        tensor=settings.tensor or (),
        pipeline=settings.pipeline or (),
        batches=settings.batches or (),
        max_latency_s=math.inf,
    )
    found = rank_points(question).best
    yield from sorted((one.tensor_parallel, one.pipeline_parallel, one.batch) for one in found)


def _why_not_shared(tensor: int, pipeline: int, asked: _Lengths) -> str:
    why = why_not_degrees(tensor, pipeline, asked.priced.generation, asked.priced.engine)
    if why:
        return why
    ranks = tensor * pipeline
    if ranks > asked.priced.world:
        return f"needs {ranks} ranks, but there are {asked.priced.world} slots."
    return ""


def _point(
    asked: _Lengths,
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
        name=f"{asked.prepared.name}_tp{tensor}_pp{pipeline}_bs{batch}",
        task=task,
        predicted=predicted,
        why_not=why_not,
    )


def _why_no_room(asked: _Lengths, predicted: InferencePoint | None) -> str:
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


def _nothing_valid(asked: _Lengths) -> str:
    settings, model = asked.prepared.settings, asked.priced.generation.model
    return (
        f"No point of {asked.prepared.name} is valid: tensor_parallel_sizes "
        f"{_list_text(settings.tensor)} must divide {model.heads} heads, pipeline_parallel_sizes "
        f"{_list_text(settings.pipeline)} {model.layers} layers, and both fit into "
        f"{asked.priced.world} ranks; give other sizes."
    )


def _list_text(sizes: tuple[int, ...] | None) -> str:
    return "auto" if sizes is None else str(list(sizes))


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthSearch:
    """The search of one pair of lengths."""

    points: tuple[SearchPoint, ...]
    folder: Path

    @property
    def runnable(self) -> tuple[SearchPoint, ...]:
        return tuple(point for point in self.points if not point.why_not)

    @property
    def paths(self) -> ResultsPaths:
        """Journal and folders of the runs."""
        asked = self.folder / "asked"
        return ResultsPaths(results=self.folder, exps=asked, chosen_by="results_dir")

    @property
    def summary(self) -> Path:
        return self.folder / "final_summary"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedInference:
    """All that the inference half would do.

    Attributes:
        all_settings: of the whole search; ``settings`` is this half only.
        base: the model's configuration with the vocabulary that runs have.
        cluster: of this machine, or of the nodes that jobs ask for.
        gpus_per_node: of a job's node.
        refused: reasons for which other pairs of lengths are not searched.
    """

    all_settings: SearchSettings
    question: SearchQuestion
    engine_name: str
    engine: InferenceEngine
    base: RawConfig
    cluster: ClusterSpec
    gpus_per_node: int
    searches: tuple[LengthSearch, ...] = ()
    refused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def settings(self) -> InferenceSettings:
        return self.all_settings.inference

    @property
    def name(self) -> str:
        """The model in names of folders."""
        return self.settings.name or self.question.name

    @property
    def is_local(self) -> bool:
        return self.all_settings.cluster.is_local

    @property
    def bound_s(self) -> float:
        """The latency limit of the recommended points."""
        return self.settings.max_latency_s or math.inf

    @property
    def gpu_peak_flops_per_s(self) -> float | None:
        """The most that one GPU can do; None if it is not known, or a CPU."""
        gpu = self.cluster.devices[0].name if self.is_local else None
        return gpu_peak_flops_per_s(self.question, gpu, self.settings.precision.value)

    def least_flops(self, point: SearchPoint) -> float:
        """Operations of a point's batch in the weights of its layers; 0 behind an encoder."""
        model, task = self.question.model, point.task
        shape = model.architecture
        if shape.encoder_layers:
            return 0.0
        rows = shape.vocabulary * (1 if shape.tied_embeddings else 2) + shape.positions
        tokens = task.layout.micro_batch * (task.input_len + task.output_len - 1)
        return 2.0 * (model.active_count - rows * shape.hidden) * tokens

    def engine_run(self, task: GenerationTask, folder: Path) -> EngineRun:
        return EngineRun(
            task=task,
            base=self.base,
            family=self.question.family.name,
            folder=folder,
            beam_width=self.settings.beam_width,
        )

    def run_of(self, point: SearchPoint, search: LengthSearch) -> EngineRun:
        return self.engine_run(point.task, search.folder / point.name)

    def inference_run(self, point: SearchPoint, outcome: Outcome) -> InferenceRun:
        """A point with its outcome; a time that no such GPU can reach is a failure."""
        run = InferenceRun(point=point, outcome=outcome, bound_s=self.bound_s)
        peak = self.gpu_peak_flops_per_s
        if run.latency_s is None or peak is None:
            return run
        made = self.least_flops(point) / run.latency_s / point.gpus
        if made <= peak:
            return run
        detail = (
            f"Batches of {1e3 * run.latency_s:.4g} ms would be {made / 1e12:,.0f} TFLOP/s per "
            f"GPU, above the peak of {peak / 1e12:,.0f}: not a measurement of this point; check "
            "model, batch and lengths of the run"
        )
        return not_run(point, self.bound_s, Failure(kind=FailureKind.NO_STEPS, detail=detail))


def prepare_inference(
    whole: SearchSettings, question: SearchQuestion, *, dry_run: bool
) -> PreparedInference:
    """Check the settings, and list the points of each pair of lengths.

    Raises:
        ConfigError: an engine that is unknown, cannot run here or has no such model or type, a
            model that writes no text, lengths beyond its positions, or no valid size.
    """
    settings = whole.inference
    name = settings.engine or ("native" if whole.cluster.is_local else "vllm")
    engine = load_engine(name)
    refused_here = engine.why_not_here() if whole.cluster.is_local else ""
    if refused_here and not dry_run:
        raise ConfigError(refused_here)
    cluster = _cluster(whole, question)
    precision, notes = _precision(settings.precision, cluster)
    vocabulary = padded_vocabulary(settings.vocabulary or whole.train.vocabulary)
    base = question.completed_base
    rows = (path for path in (_VOCABULARY, ("model", "config", "vocab_size")) if path in base)
    prepared = PreparedInference(
        all_settings=whole,
        question=question,
        engine_name=name,
        engine=engine,
        base=base.with_values((path, vocabulary) for path in rows),
        cluster=cluster,
        gpus_per_node=len(cluster.nodes[0].devices),
    )
    searches, refused = list[LengthSearch](), list[str]()
    for lengths in settings.lengths:
        try:
            searches.append(_length_search(prepared, lengths, precision))
        except ConfigError as error:
            refused.append(str(error))
    if not searches:
        raise ConfigError(refused[0])
    refusal = (f"A run would be refused here: {refused_here}",) if refused_here else ()
    return replace(
        prepared,
        searches=tuple(searches),
        refused=tuple(refused),
        notes=(*notes, *refused, *_notes(whole, name), *refusal),
    )


def _length_search(
    prepared: PreparedInference, lengths: tuple[int, int], precision: Precision
) -> LengthSearch:
    question, settings, cluster = prepared.question, prepared.settings, prepared.cluster
    read, written = lengths
    model = replace(
        question.model.architecture,
        vocabulary=prepared.base.get(_VOCABULARY),
        name=prepared.name,
    )
    priced = InferenceQuestion(
        generation=Generation(
            model=model,
            input_tokens=read,
            output_tokens=written,
            precision=precision,
            beam_width=settings.beam_width,
        ),
        machine=machine_of(cluster),
        engine=ENGINE_HABITS.get(prepared.engine_name, ENGINE_HABITS["vllm"]),
        world=len(cluster.devices),
        limit_bytes=float(cluster.least_memory_bytes)
        if prepared.is_local
        else search_machines(question).memory_bytes,
        max_latency_s=prepared.bound_s,
    )
    label = f"in{read}_out{written}" if len(settings.lengths) > 1 else ""
    results = settings.results or question.scope.logs
    folder = results.absolute() / "inference" / label

    asked = _Lengths(prepared=prepared, priced=priced, folder=folder)
    points = _search_points(asked)
    whys = {asked.why_not(point.task) for point in points}
    if len(whys) == 1 and (why := whys.pop()):  # of the model or its type, not of a point
        raise ConfigError(why)
    return LengthSearch(points=points, folder=folder)


def _cluster(settings: SearchSettings, question: SearchQuestion) -> ClusterSpec:
    if settings.cluster.is_local:
        return find_cluster(local_request(local_ranks(settings)))
    each = settings.inference.gpus_per_node or settings.train.gpus_per_node
    return search_machines(question, each).cluster(settings.train.nodes)


def _precision(asked: Precision, cluster: ClusterSpec) -> tuple[Precision, tuple[str, ...]]:
    """Processes of a CPU compute in fp32 if 16 bits are requested."""
    if not is_cpu(cluster) or asked not in (Precision.FP16, Precision.BF16):
        return asked, ()
    return Precision.FP32, (f"data_type is {asked.value}; runs on this CPU compute in fp32.",)


def _notes(settings: SearchSettings, engine: str) -> Iterator[str]:
    inference = settings.inference
    if unused := inference.without_effect:
        beams = f"by {inference.beam_width} beams" if inference.beam_width > 1 else "greedily"
        yield (
            f"{', '.join(unused)} {'change' if len(unused) > 1 else 'changes'} no time: every "
            f"answer has exactly output_len tokens, chosen {beams}."
        )
    if inference.beam_width > 1:
        yield (
            f"beam_width is {inference.beam_width}: predictions count as many sequences for each "
            "sample, which was never compared with a measurement; a test under load writes "
            "single answers."
        )
    container = settings.paths.container
    is_bcm = settings.cluster.kind is ClusterKind.BCM
    if is_bcm and container and not inference.container:
        yield (
            f"Jobs look for engine {engine} in the container of the training ({container}); "
            "inference_container names another."
        )
