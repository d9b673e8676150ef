"""Latency and throughput of a generation on every point: the prompt, then stage after stage.

Shapes: C = candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.core import Architecture, Software, Workload

from ..cost import (
    Machine,
    MemoryParts,
    Stack,
    attention_times,
    layer_times,
    stacks,
)
from ..layers import (
    attention_kinds,
    expert_layers,
)
from ..space import CandidateTable, Floats
from .engines import EngineHabits
from .generation import Generation, PointColumns
from .kernels import Rank, last_s, layer_step_s, layouts_of
from .memory import generation_memory

_BANDS, _EXPERTS_BANDS = (0.29, 0.11), (0.45, 0.21)
"""Nine of ten points of NVIDIA's estimator from measured kernels are within them, in time to the
first token and per token: three dense models and two with experts on A100 and H100, 1 to 8 tensor
ranks, batches of 1 to 64 (``benchmarks/inference_accuracy.py``)."""
_TOKEN_BYTES = 8.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GenerationTable:
    """Predictions of each point.

    Attributes:
        ttft_s_C: time to first token of a whole batch.
        token_s_C: time per output token after it.
        latency_s_C: time of one batch from its prompt to its last token.
        samples_per_s_C: throughput of one copy of the model, with its engine's batches in flight.
        peak_bytes_C: memory of the fullest rank.
        memory: its parts.
        parts: names and seconds of the parts of a batch's latency.
    """

    points: PointColumns
    ttft_s_C: Floats
    token_s_C: Floats
    latency_s_C: Floats
    samples_per_s_C: Floats
    memory: MemoryParts
    parts: tuple[tuple[str, Floats], ...]

    @property
    def peak_bytes_C(self) -> Floats:
        """Memory of the fullest rank."""
        return self.memory.peak_C

    @property
    def samples_per_s_per_gpu_C(self) -> Floats:
        """Throughput of each GPU."""
        return np.asarray(self.samples_per_s_C / self.points.gpus_C)


def estimate_generation(
    candidates: CandidateTable | PointColumns,
    generation: Generation,
    machine: Machine,
    engine: EngineHabits,
) -> GenerationTable:
    """Time, throughput and memory of each candidate.

    Args:
        candidates: tensor and pipeline ranks, and the micro-batch as the batch; whether heads and
            layers can be shared out so is not asked here.
        generation: the model and its lengths.
        machine: equal nodes of equal GPUs, or of processes of a CPU.
        engine: the engine that runs it.
    """
    points = candidates
    if isinstance(points, CandidateTable):
        points = PointColumns.from_table(points)
    rank = Rank(machine=machine, engine=engine, generation=generation)
    answers = points.with_beams(generation.beam_width)
    prompt, step = prefill_times(points, rank), step_times(answers, rank)
    later = generation.output_tokens - 1
    ttft_s, prompt_period_s, prompt_send_s = _through(
        points, prompt, rank, generation.input_tokens
    )
    token_s, period_s, token_send_s = _through(answers, step, rank, 1)
    latency_s = ttft_s + later * token_s
    busy_s = prompt_period_s + later * period_s if engine.fills_pipeline else latency_s
    joining_s = prompt.layers * prompt.joining_s_C + later * step.layers * step.joining_s_C
    sends_s = prompt_send_s + later * token_send_s
    decode_s = later * (token_s - step.layers * step.joining_s_C - token_send_s)
    return GenerationTable(
        points=points,
        ttft_s_C=ttft_s,
        token_s_C=token_s,
        latency_s_C=latency_s,
        samples_per_s_C=np.asarray(points.samples_C / busy_s),
        memory=generation_memory(points, generation, engine, on_cpu=rank.is_cpu),
        parts=(
            ("prefill", latency_s - joining_s - sends_s - decode_s),
            ("decode", decode_s),
            ("tensor_parallel", joining_s),
            ("pipeline", sends_s),
        ),
    )


def generation_bands(model: Architecture) -> tuple[float, float]:
    """Relative error that nine of ten points stay within: time to the first token, and a token."""
    return _BANDS if model.experts is None else _EXPERTS_BANDS


def step_times(points: PointColumns, rank: Rank) -> PhaseTimes:
    """Time of one later token of each answer, at the mean length of the cache."""
    model = rank.generation.model
    layer_s, joining_s = layer_step_s(points, rank, context=rank.generation.mean_context)
    tokens_C = points.samples_C * float(model.hidden)
    return PhaseTimes(
        layer_s_C=layer_s,
        joining_s_C=joining_s,
        layers=model.layers,
        first_s_C=rank.kernels.traffic_s(tokens_C * 4.0, 2),
        last_s_C=last_s(points, rank) + rank.engine.step_host_s,
    )


def _through(
    points: PointColumns, phase: PhaseTimes, rank: Rank, tokens: int
) -> tuple[Floats, Floats, Floats]:
    """Seconds of a pass through all stages, of the slowest stage, and of sends between stages.

    The chosen token goes back to the first stage.
    """
    pipeline_C, model = points.pipeline_C, rank.generation.model
    size = float(rank.generation.precision.value_bytes)
    hidden = points.samples_C * (tokens * model.hidden * size)
    sends = rank.sends(points, hidden)
    sends_s = sends.way_s_C + rank.sends(points, points.samples_C * _TOKEN_BYTES).back_s_C
    ends_s = phase.first_s_C + phase.last_s_C
    whole_s = phase.layers * phase.layer_s_C + ends_s + sends_s
    slower_s = np.where(
        pipeline_C > 1, np.maximum(phase.first_s_C, phase.last_s_C) + sends.slowest_s_C, ends_s
    )
    period_s = phase.layers / pipeline_C * phase.layer_s_C + slower_s
    return whole_s, np.asarray(period_s), sends_s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhaseTimes:
    """Seconds of one pass: of a layer, of its communication, and of both ends.

    Attributes:
        layer_s_C: the mean layer, its all-reduces included.
        joining_s_C: only the all-reduces.
        layers: number of layers.
        first_s_C: embedding.
        last_s_C: norm, logits and the choice of a token.
    """

    layer_s_C: Floats
    joining_s_C: Floats
    layers: int
    first_s_C: Floats
    last_s_C: Floats


def prefill_times(points: PointColumns, rank: Rank) -> PhaseTimes:
    """The whole batch's prompts; a decoder behind an encoder then writes its first token."""
    generation = rank.generation
    model = generation.model
    encoder, *decoder = stacks(prompt_workload(generation, rank))
    if not decoder:
        layer_s, joining_s = _stack_s(encoder, points, rank)
        layers = model.layers
    else:
        layer_s, joining_s, layers = _both_s(encoder, points, rank)
    tokens_C = points.samples_C * generation.input_tokens
    return PhaseTimes(
        layer_s_C=layer_s,
        joining_s_C=joining_s,
        layers=layers,
        first_s_C=rank.kernels.traffic_s(tokens_C * model.hidden * 4.0, 2),
        last_s_C=last_s(points, rank),
    )


def prompt_workload(generation: Generation, rank: Rank) -> Workload:
    """The prompt as a training's forward pass has it."""
    is_flash = rank.engine.flash and rank.machine.accelerator.flash > 0.0
    return Workload(
        model=generation.model,
        sequence_length=generation.input_tokens,
        decoder_sequence_length=1 if generation.model.encoder_layers else None,
        precision=generation.precision,
        software=Software(flash_attention=is_flash, compiled=not rank.engine.is_eager),
    )


def _both_s(encoder: Stack, points: PointColumns, rank: Rank) -> tuple[Floats, Floats, int]:
    """The mean layer of an encoder, and of a decoder that writes one token."""
    model = rank.generation.model
    read_s, read_joining_s = _stack_s(encoder, points, rank)
    write_s, write_joining_s = layer_step_s(points, rank, context=1.0)
    keys_s = _cross_keys_s(points, rank)
    layers = model.encoder_layers + model.layers
    share = model.encoder_layers / layers
    layer_s = share * read_s + (1.0 - share) * (write_s + keys_s)
    return layer_s, share * read_joining_s + (1.0 - share) * write_joining_s, layers


def _cross_keys_s(points: PointColumns, rank: Rank) -> Floats:
    """Keys and values that a decoder's layer makes of the encoder's tokens, once."""
    model = rank.generation.model
    wide = 2.0 * np.maximum(model.kv_heads / points.tensor_C, 1.0) * model.head
    tokens = points.samples_C * rank.generation.input_tokens
    return rank.products_s([(tokens, wide, model.hidden, 1)])


def _stack_s(stack: Stack, points: PointColumns, rank: Rank) -> tuple[Floats, Floats]:
    """The mean layer over the whole prompt, with its two all-reduces, and only these."""
    model, inner = rank.generation.model, layouts_of(points)
    sparse = expert_layers(model) / model.layers
    total = np.zeros(len(points))
    for alike, kind in attention_kinds(stack.workload.architecture):
        own = replace(stack, workload=replace(stack.workload, model=kind))
        attention = attention_times(own, inner, rank.kernels)
        for share, experts in ((1.0 - sparse, None), (sparse, model.experts)):
            if share:
                times = layer_times(own, inner, rank.kernels, attention, experts=experts)
                total = total + alike * share * times.forward_s_U
    buffer_C = points.samples_C * rank.generation.input_tokens * float(model.hidden)
    joining_s = 2.0 * rank.all_reduce_s(
        points.tensor_C, buffer_C * rank.generation.precision.value_bytes
    )
    total = rank.launched_s(total)
    return total + joining_s, joining_s
