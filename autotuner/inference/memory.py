"""Bytes of one rank while it generates, part by part.

Shapes: S = the first and the last pipeline stage, C = candidates.
"""

from __future__ import annotations

import numpy as np

from autoconf_launch.core import CONTEXT_BYTES

from ..cost import (
    NCCL_BYTES,
    LayoutColumns,
    MemoryParts,
    Stages,
    local_weights,
    model_weights,
)
from ..layers import (
    attention_kinds,
)
from ..space import Floats, Ints
from .engines import EngineHabits
from .generation import Generation, PointColumns
from .kernels import FP32_STATE_BYTES, cache_width

_OUTSIDE_BYTES = 2.0
"""Size of a weight of embedding and head, which are not quantized."""
_MOST_BATCH = (1 << 20) - 1


def generation_memory(
    points: PointColumns, generation: Generation, engine: EngineHabits, *, on_cpu: bool = False
) -> MemoryParts:
    """All parts at the fullest moment, for the first and the last stage.

    The cache holds prompts and answers of all batches in flight; activations are the widest moment
    of one layer over the tokens that are computed at once.
    """
    answers = points.with_beams(generation.beam_width)
    fixed = 0.0 if on_cpu else CONTEXT_BYTES + engine.graph_bytes
    joined = 0.0 if on_cpu else NCCL_BYTES
    return MemoryParts(
        named=(
            ("weights", _weights(points, generation)),
            ("cache", _cache(answers, generation, engine)[None]),
            ("activations", _activations(points, generation, engine)[None]),
            ("logits", _logits(answers, generation)),
            ("communication", _communication(points, generation, engine, joined)[None]),
            ("engine", np.full((1, len(points)), fixed)),
        )
    )


def largest_batches(
    points: PointColumns,
    generation: Generation,
    engine: EngineHabits,
    limit_bytes: float,
    *,
    on_cpu: bool = False,
) -> Ints:
    """Samples of a batch that fit with the degrees of each point; 0 if none fits."""
    low, high = np.zeros(len(points), np.int64), np.full(len(points), _MOST_BATCH, np.int64)
    while np.any(low < high):
        middle = (low + high + 1) // 2
        asked = PointColumns(
            tensor_C=points.tensor_C, pipeline_C=points.pipeline_C, batch_C=middle
        )
        peak_C = generation_memory(asked, generation, engine, on_cpu=on_cpu).peak_C
        fits_C = peak_C <= limit_bytes
        low, high = np.where(fits_C, middle, low), np.where(fits_C, high, middle - 1)
    return low


def _weights(points: PointColumns, generation: Generation) -> Floats:
    weights = model_weights(generation.model)
    layers = weights.encoder_layers + weights.dense_layers + weights.repeated_layers
    columns = _columns(points)
    stages = Stages.of(_ends(points), columns, layers)
    local = local_weights(weights, columns, stages)
    inside = local.all_SC - local.outside_SC
    outside = max(_OUTSIDE_BYTES, generation.weight_bytes)
    return np.asarray(inside * generation.weight_bytes + local.outside_SC * outside)


def _ends(points: PointColumns) -> Ints:
    return np.stack([np.zeros_like(points.pipeline_C), points.pipeline_C - 1])


def _columns(points: PointColumns) -> LayoutColumns:
    one, no = np.ones_like(points.tensor_C), np.zeros_like(points.tensor_C)
    return LayoutColumns(
        data_C=one,
        tensor_C=points.tensor_C,
        pipeline_C=points.pipeline_C,
        virtual_C=one,
        context_C=one,
        expert_C=one,
        zero_stage_C=no,
        micro_batch_C=points.batch_C,
        accumulation_C=one,
        recompute_C=no,
        recompute_layers_C=-one,
        sequence_parallel_C=no.astype(np.bool_),
        offload_C=no,
    )


def _cache(points: PointColumns, generation: Generation, engine: EngineHabits) -> Floats:
    """Keys and values of decoder layers, or their latents; windows keep no more than they see.

    Behind an encoder each layer also keeps keys and values of the prompt. A state has a fixed
    size.
    """
    model, size = generation.model, float(generation.precision.value_bytes)
    own = generation.output_tokens
    own += 1 if model.encoder_layers else generation.input_tokens
    each = np.zeros(len(points))
    for share, kind in attention_kinds(model):
        if (state := kind.state) is not None:
            heads = state.value_heads / points.tensor_C
            each = each + share * heads * state.key_head * state.value_head * FP32_STATE_BYTES
        else:
            kept = min(own, kind.window or own)
            each = each + share * kept * cache_width(kind, points) * size
    if model.encoder_layers:
        each = each + generation.input_tokens * cache_width(model, points) * size
    in_flight = points.pipeline_C if engine.fills_pipeline else 1
    layers = model.layers / points.pipeline_C
    return np.asarray(layers * each * points.batch_C * in_flight)


def _activations(points: PointColumns, generation: Generation, engine: EngineHabits) -> Floats:
    """Residual, its norm, and a layer's widest values: of an MLP, or its queries.

    A gated MLP holds both halves and their product. Kernel by kernel, GELU of an ungated one holds
    four values for each (transformers' ``NewGELUActivation``), besides more of the hidden state.
    """
    model, size = generation.model, float(generation.precision.value_bytes)
    tokens = points.batch_C * generation.input_tokens
    if engine.chunk_tokens is not None:
        tokens = np.minimum(tokens, np.maximum(engine.chunk_tokens, points.batch_C))
    values = 3.0 if model.gated else 4.0 if engine.is_eager else 2.0
    hidden = (5.0 if engine.is_eager else 3.0) * model.hidden
    wide = values * model.ffn
    if (experts := model.experts) is not None:
        copies = experts.per_token + experts.shared
        wide = copies * (values * experts.ffn + 2.0 * model.hidden)
    queries = 2.0 * (model.heads + 2 * model.kv_heads) * model.head
    inside = np.maximum(wide, queries) / points.tensor_C
    scores = np.zeros(())
    if not engine.flash:
        heads = model.heads / points.tensor_C
        scores = 2.0 * points.batch_C * heads * generation.input_tokens**2
    return np.asarray((tokens * (hidden + inside) + scores) * size)


def _communication(
    points: PointColumns, generation: Generation, engine: EngineHabits, library_bytes: float
) -> Floats:
    """The library's buffers; kernel by kernel, also hidden states that a stage gets and sends."""
    whole = np.where(points.gpus_C > 1, library_bytes, 0.0)
    if not engine.is_eager:
        return whole
    size = float(generation.model.hidden * generation.precision.value_bytes)
    states = 2.0 * points.batch_C * generation.input_tokens * size
    return np.asarray(whole + np.where(points.pipeline_C > 1, states, 0.0))


def _logits(points: PointColumns, generation: Generation) -> Floats:
    """Logits of one position on the last stage: a rank's own, and all of them in fp32."""
    size = generation.precision.value_bytes / points.tensor_C + 4.0
    rows = points.batch_C * float(generation.model.vocabulary) * size
    is_last = _ends(points) == points.pipeline_C - 1
    return np.asarray(rows * is_last)
