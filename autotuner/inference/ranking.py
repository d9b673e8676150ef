"""Best degrees and batch for generation: valid points, fitting points, and their front.

Shapes: D = distinct degrees, C = candidates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.core import divisors, pareto_front

from ..cost import Machine
from ..space import Ints
from .engines import EngineHabits
from .generation import Generation, PointColumns
from .memory import largest_batches
from .pipeline import GenerationTable, estimate_generation

MOST_BATCH = 1024
"""Default of the largest batch to try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceQuestion:
    """The points to rank, and the limits that they must meet.

    Attributes:
        world: GPUs of the cluster; GPUs beyond one copy of the model run more copies.
        limit_bytes: memory that a rank may use.
        tensor, pipeline, batches: values to try; empty: all valid values, and batches of powers of
            two up to the largest that fits or is within the bound.
        max_latency_s: bound of a batch, from its prompt to its last token.
    """

    generation: Generation
    machine: Machine
    engine: EngineHabits
    world: int
    limit_bytes: float
    tensor: tuple[int, ...] = ()
    pipeline: tuple[int, ...] = ()
    batches: tuple[int, ...] = ()
    max_latency_s: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class InferencePoint:
    """Prediction of one point; ``largest_batch`` fits with its degrees."""

    tensor_parallel: int
    pipeline_parallel: int
    batch: int
    ttft_s: float
    token_s: float
    latency_s: float
    samples_per_s_per_gpu: float
    peak_bytes: float
    largest_batch: int

    @property
    def gpus(self) -> int:
        """Ranks of one copy of the model."""
        return self.tensor_parallel * self.pipeline_parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class InferencePlan:
    """Ranking of all points.

    Attributes:
        considered: points that were priced.
        best: points that fit and are within the bound, most throughput per GPU first; if none is,
            points that fit, the fastest first.
        within: number of points within the bound.
        front: Pareto front of latency and throughput per GPU among the points that fit, the
            fastest first.
    """

    considered: int
    fit: int
    within: int
    best: tuple[InferencePoint, ...]
    front: tuple[InferencePoint, ...]


def why_no_generation(generation: Generation) -> str | None:
    """Reason why a model generates no text of these lengths, as a sentence; None if it does."""
    model, positions = generation.model, generation.model.positions
    if not model.causal and not model.encoder_layers:
        return (
            f"{model.name} is an encoder and generates no text; name a decoder, such as "
            "llama3.1-8b, or an encoder-decoder, such as t5-3b."
        )
    if model.kinds or model.indexer or model.front or model.tokens:
        return (
            f"{model.name} has several kinds of layers or reads images or sound, so only its "
            "training is predicted; name a model of equal layers, such as llama3.1-8b."
        )
    longest = generation.prompt_tokens + generation.output_tokens
    if model.encoder_layers:
        longest = max(longest, generation.input_tokens)
    if positions and longest > positions:
        return (
            f"{model.name} has {positions:,} positions, but {generation.input_tokens:,} tokens "
            f"are read and {generation.output_tokens:,} written; give fewer."
        )
    return None


def why_not_degrees(
    tensor: int, pipeline: int, generation: Generation, engine: EngineHabits
) -> str | None:
    """Reason why a model cannot be sharded like this, as a sentence; None if it can."""
    model = generation.model
    if model.heads % tensor:
        return _indivisible("tp", tensor, model.heads, "attention heads")
    spare = engine.repeats_keys and tensor % model.kv_heads == 0
    if model.latent is None and model.kv_heads % tensor and not spare:
        return _indivisible("tp", tensor, model.kv_heads, "key-value heads")
    wide = model.ffn if model.experts is None else math.gcd(model.ffn, model.experts.ffn)
    if wide % tensor:
        return _indivisible("tp", tensor, wide, "columns of the MLP")
    for layers, what in ((model.layers, "layers"), (model.encoder_layers, "encoder layers")):
        if layers % pipeline:
            return _indivisible("pp", pipeline, layers, what)
    return None


def _indivisible(knob: str, value: int, count: int, what: str) -> str:
    valid = [str(n) for n in divisors(count) if n <= 128]
    return f"{knob}={value} must divide the {count:,} {what}; valid: {' '.join(valid)}."


def rank_points(question: InferenceQuestion) -> InferencePlan:
    """Price every point, and order those that fit."""
    degrees = _degrees(question)
    most_D = _largest(degrees, question)
    points, most_C = _points(degrees, most_D, question)
    table = estimate_generation(points, question.generation, question.machine, question.engine)
    fits_C = table.peak_bytes_C <= question.limit_bytes
    within_C = fits_C & (table.latency_s_C <= question.max_latency_s)
    rows = np.flatnonzero(within_C if within_C.any() else fits_C)
    speed_C, latency_C = table.samples_per_s_per_gpu_C, table.latency_s_C
    keys = (latency_C[rows], -speed_C[rows])
    order = np.lexsort(keys if within_C.any() else keys[::-1])

    def points_of(numbers: Ints) -> tuple[InferencePoint, ...]:
        return tuple(_point(table, most_C, row) for row in numbers.tolist())

    return InferencePlan(
        considered=len(points),
        fit=int(fits_C.sum()),
        within=int(within_C.sum()),
        best=points_of(rows[order]),
        front=tuple(
            pareto_front(
                points_of(np.flatnonzero(fits_C)),
                lambda point: (point.latency_s, -point.samples_per_s_per_gpu),
            )
        ),
    )


def _degrees(question: InferenceQuestion) -> PointColumns:
    model, world = question.generation.model, question.world
    tensor = question.tensor or divisors(model.heads)
    pipeline = question.pipeline or divisors(model.layers)
    pairs = [
        (t, p)
        for t in tensor
        for p in pipeline
        if t * p <= world and not why_not_degrees(t, p, question.generation, question.engine)
    ]
    columns = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return PointColumns(
        tensor_C=columns[0], pipeline_C=columns[1], batch_C=np.ones(len(pairs), np.int64)
    )


def _largest(degrees: PointColumns, question: InferenceQuestion) -> Ints:
    return largest_batches(
        degrees,
        question.generation,
        question.engine,
        question.limit_bytes,
        on_cpu=question.machine.accelerator.is_cpu,
    )


def _points(
    degrees: PointColumns, most_D: Ints, question: InferenceQuestion
) -> tuple[PointColumns, Ints]:
    """Degrees with their batches, and the largest batch of each row's degrees."""
    quick_D = _quick_batches(degrees, question)
    found = [
        (row, batch)
        for row, (most, quick) in enumerate(zip(most_D.tolist(), quick_D.tolist(), strict=True))
        for batch in question.batches or _batches(most, quick)
    ]
    rows, batch_C = np.array(found, dtype=np.int64).reshape(-1, 2).T
    return replace(degrees.take(rows), batch_C=batch_C), most_D[rows]


def _batches(most: int, quick: int) -> Iterator[int]:
    """Powers of two, and the largest batches that fit and that are within the bound."""
    most = min(most, MOST_BATCH)
    powers = (1 << bits for bits in range(MOST_BATCH.bit_length()))
    yield from sorted({n for n in (*powers, most, min(most, quick)) if 1 <= n <= max(most, 1)})


def _quick_batches(degrees: PointColumns, question: InferenceQuestion) -> Ints:
    """The largest batch of each row that is within the bound; 0 if none is."""
    low, high = np.zeros(len(degrees), np.int64), np.full(len(degrees), MOST_BATCH, np.int64)
    if question.batches or math.isinf(question.max_latency_s):
        return high
    while np.any(low < high):
        middle = (low + high + 1) // 2
        latency_D = estimate_generation(
            replace(degrees, batch_C=middle),
            question.generation,
            question.machine,
            question.engine,
        ).latency_s_C
        quick_D = latency_D <= question.max_latency_s
        low, high = np.where(quick_D, middle, low), np.where(quick_D, high, middle - 1)
    return low


def _point(table: GenerationTable, most_C: Ints, row: int) -> InferencePoint:
    points = table.points
    return InferencePoint(
        tensor_parallel=int(points.tensor_C[row]),
        pipeline_parallel=int(points.pipeline_C[row]),
        batch=int(points.batch_C[row]),
        ttft_s=float(table.ttft_s_C[row]),
        token_s=float(table.token_s_C[row]),
        latency_s=float(table.latency_s_C[row]),
        samples_per_s_per_gpu=float(table.samples_per_s_per_gpu_C[row]),
        peak_bytes=float(table.peak_bytes_C[row]),
        largest_batch=int(most_C[row]),
    )


def priced_points(
    question: InferenceQuestion, points: Sequence[tuple[int, int, int]]
) -> tuple[InferencePoint, ...]:
    """Points of tensor ranks, stages and batch, in their order, whether they fit or not."""
    tensor, pipeline, batch = np.array(points, dtype=np.int64).reshape(-1, 3).T
    columns = PointColumns(tensor_C=tensor, pipeline_C=pipeline, batch_C=batch)
    table = estimate_generation(columns, question.generation, question.machine, question.engine)
    most_C = _largest(columns, question)
    return tuple(_point(table, most_C, row) for row in range(len(columns)))
