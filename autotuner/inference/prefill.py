"""Seconds of the prompt: a forward pass over all of its tokens, and logits of the last one.

Shapes: C = candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.core import Software, Workload

from ..cost import Stack, attention_kinds, attention_times, expert_layers, layer_times, stacks
from ..space import Floats
from .decode import last_s, layer_step_s
from .generation import Generation, PointColumns
from .kernels import Rank, layouts_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PhaseTimes:
    """Seconds of one pass: of a layer, in which it waits for other ranks, and of both ends.

    Attributes:
        layer_s_C: the mean layer, its all-reduces included.
        joining_s_C: those all-reduces alone.
        layers: that it passes.
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
    """The mean layer over the whole prompt, with its two all-reduces, and these alone."""
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
