"""Bytes that a micro-batch holds until its backward pass.

Every kind has a ``split`` part, shared by the tensor-parallel ranks, and a ``whole`` part, which
only sequence parallelism shares. All numbers depend only on the model and the training, so they
are computed once for any number of candidates.

Source:
    Korthikanti et al. 2022, "Reducing Activation Recomputation in Large Transformer Models",
    sections 4.1 and 4.2: 10 sbh + (24 sbh + 5 a s^2 b) / t in 16 bits with dropout. Generalised
    here to grouped queries, gated MLPs, experts, latent attention and flash attention
    (Dao et al. 2022: of the scores only one fp32 sum for each token and head remains).

Shapes: S = stages, C = candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np

from autoconf_launch.core import (
    Architecture,
    Framework,
    Recompute,
    StateMixer,
    Workload,
)

from ..layers import (
    attends,
    attention_kinds,
    crosses,
    has_mixer,
    kept_values,
    uniform_parts,
)
from ..space import Floats
from .layout_columns import FULL, LayoutColumns, broadcast_sum, front_workload
from .layout_rules import Stages
from .software import eager_copies, keeps_gate, loss_bytes, repeats_modules
from .weights import ModelWeights

_MASK_BYTES = 1
_SUM_BYTES = 4
_TOKEN_BYTES = 8
_UNITS_ON_DEVICE = 2.0
"""Layers whose offloaded activations are on the GPU: one computes while another moves
(github.com/pytorch/torchtune torchtune/training/_activation_offloading.py, two streams)."""


@dataclass(frozen=True, slots=True)
class Split:
    """Bytes for each token: ``whole`` on each tensor-parallel rank, ``split`` over them."""

    whole: float = 0.0
    split: float = 0.0

    def __add__(self, other: Split) -> Split:
        return Split(self.whole + other.whole, self.split + other.split)

    def times(self, factor: float) -> Split:
        """Both parts scaled."""
        return Split(self.whole * factor, self.split * factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerActivations:
    """Activations kept by a layer, by kind.

    Attributes:
        scores: the matrix of attention scores, its softmax and dropout; none with flash attention.
        adapters: what the first matrix of each adapter gives to the second.
    """

    norms: Split = Split()
    attention: Split = Split()
    scores: Split = Split()
    mlp: Split = Split()
    dropout: Split = Split()
    adapters: Split = Split()

    @property
    def total(self) -> Split:
        """All kinds."""
        base = self.norms + self.attention + self.scores + self.mlp + self.dropout
        return base + self.adapters


def layer_activations(
    workload: Workload, framework: Framework, *, sparse: bool, crossed: bool
) -> LayerActivations:
    """Activations without recomputation; ``crossed`` layers attend to an encoder, too."""
    a = workload.architecture
    attentions = 2 if crossed else 1
    product_bytes = _product_bytes(workload, framework)
    norm_bytes, cast_bytes, _ = eager_copies(workload)
    cast = Split(whole=a.hidden * cast_bytes)  # of an input that several products read
    parts = attentions * has_mixer(a) + (sparse or a.ffn > 0)
    norms = Split(whole=parts * a.hidden * norm_bytes)
    masks = parts * a.hidden * _MASK_BYTES
    mlp = _mlp(workload, a.ffn, product_bytes) + cast if a.ffn else Split()
    attention = _attention(workload, product_bytes) + (cast.times(2) if a.heads else Split())
    return LayerActivations(
        norms=norms,
        attention=attention.times(attentions),
        scores=_scores(workload).times(attentions) if a.heads else Split(),
        mlp=_experts(workload, product_bytes) if sparse else mlp,
        dropout=Split(whole=masks) if workload.software.dropout else Split(),
        adapters=_between_adapters(workload, sparse=sparse).times(attentions),
    )


def _between_adapters(workload: Workload, *, sparse: bool) -> Split:
    """Values of LoRA's rank for each of a layer's matrices (Hu et al. 2021, section 4.1)."""
    a, rank = workload.architecture, workload.lora_rank
    if rank is None:
        return Split()
    mlps = a.experts.per_token + a.experts.shared if sparse and a.experts else 1
    matrices = 4 + (3 if a.gated else 2) * mlps
    return Split(whole=float(matrices * rank * workload.precision.value_bytes))


def selective_activations(
    workload: Workload, framework: Framework, *, sparse: bool, crossed: bool
) -> LayerActivations:
    """Activations of a layer with selective recomputation.

    Megatron and DeepSpeed compute attention scores again (Korthikanti et al. 2022, section 5),
    Megatron with flash attention the modules of ``repeats_modules``.
    torchtitan keeps the input, attention's output and every second matrix product.
    """
    a = workload.architecture
    every = layer_activations(workload, framework, sparse=sparse, crossed=crossed)
    if framework is not Framework.FSDP:
        if (sparse or a.latent) and repeats_modules(workload.software):
            return _without_modules(workload, framework, every, sparse=sparse)
        return replace(every, scores=Split())
    size, attentions = workload.precision.value_bytes, 2 if crossed else 1
    if not a.heads or (a.state is not None and a.state.beside):
        return LayerActivations(norms=every.norms, attention=every.attention, mlp=every.mlp)
    queries, keys, values = _widths(a)
    # of q, k, v, out, gate, up, down the 1st, 3rd, 5th and 7th; of qkv, out, up, down two
    products = queries + values if a.gated else queries + keys + values
    attention = Split(split=(products + values) * size + a.heads * _SUM_BYTES)
    ffn = _active_ffn(workload) if sparse else a.ffn
    return LayerActivations(
        norms=Split(whole=a.hidden * size),
        attention=attention.times(attentions),
        mlp=Split(whole=a.hidden * size if a.gated else 0.0, split=ffn * size),
    )


def _without_modules(
    workload: Workload, framework: Framework, every: LayerActivations, *, sparse: bool
) -> LayerActivations:
    """Inputs of norms, latents, attention's output, and inputs of experts' activations."""
    a = workload.architecture
    size, product_bytes = workload.precision.value_bytes, _product_bytes(workload, framework)
    outputs = Split(whole=-a.hidden * product_bytes)
    attention, mlp = every.attention + outputs, every.mlp
    if a.latent is not None:
        rank = a.latent.key_value_rank + a.latent.rope_head + (a.latent.query_rank or 0)
        split = _out_width(a) * size + a.heads * _SUM_BYTES
        attention = Split(whole=rank * size, split=split)
    if sparse:
        mlp = mlp + outputs + Split(split=-_active_ffn(workload) * product_bytes)
    return replace(every, attention=attention, scores=Split(), mlp=mlp)


def kept_activations(
    workload: Workload,
    framework: Framework,
    kind: Recompute,
    *,
    sparse: bool = False,
    crossed: bool = False,
) -> LayerActivations:
    """Activations of a layer that is not recomputed in full."""
    wanted = selective_activations if kind is Recompute.SELECTIVE else layer_activations
    return wanted(workload, framework, sparse=sparse, crossed=crossed)


def backward_temporaries(workload: Workload, *, sparse: bool) -> Split:
    """Gradients alongside a layer's activations at its fullest moment."""
    a = workload.architecture
    size = workload.precision.value_bytes
    ffn = _active_ffn(workload) if sparse else a.ffn
    stored = not workload.software.flash_attention
    scores = 2 * a.heads * workload.sequence_length * size if stored else 0
    arrays = 1 if workload.software.overwrites_mlp else 3 if a.gated else 2
    wide = max(arrays * ffn * size, scores)
    return Split(whole=2 * a.hidden * size, split=wide)


def _attention(workload: Workload, product_bytes: float) -> Split:
    """The mean of all kinds of layers."""
    total = Split()
    for share, one in attention_kinds(workload.architecture):
        if one.state is not None:
            total = total + _state_of(one, one.state, workload, product_bytes).times(share)
        if attends(one):
            total = total + _attention_of(one, workload, product_bytes).times(share)
    return total


def _state_of(
    a: Architecture, state: StateMixer, workload: Workload, product_bytes: float
) -> Split:
    split = kept_values(state) * workload.precision.value_bytes
    return Split(whole=0.0 if attends(a) else a.hidden * product_bytes, split=split)


def _attention_of(a: Architecture, workload: Workload, product_bytes: float) -> Split:
    """The input of the projections; queries, keys, values; the output, which a product reads."""
    size = workload.precision.value_bytes
    queries, keys, values = _widths(a)
    sums = a.heads * _SUM_BYTES if workload.software.flash_attention else 0
    inner = (queries + keys + values + _out_width(a)) * size + sums
    if a.latent:
        inner += (a.latent.query_rank or 0) * 2 * size
        return Split(
            whole=a.hidden * product_bytes
            + (2 * a.latent.key_value_rank + a.latent.rope_head) * size,
            split=inner,
        )
    return Split(whole=a.hidden * product_bytes, split=inner)


def _widths(a: Architecture) -> tuple[int, int, int]:
    if a.latent:
        width = a.heads * (a.head + a.latent.rope_head)
        return width, width, a.heads * a.latent.value_head
    return a.heads * a.head, a.kv_heads * a.head, a.kv_heads * a.head


def _out_width(a: Architecture) -> int:
    return a.heads * (a.latent.value_head if a.latent else a.head)


def _scores(workload: Workload) -> Split:
    """Softmax, its dropout's mask and result: 5 a s^2 b with dropout in 16 bits."""
    a = workload.architecture
    if workload.software.flash_attention:
        return Split()
    each = workload.precision.value_bytes + (
        (_MASK_BYTES + workload.precision.value_bytes) if workload.software.dropout else 0
    )
    return Split(split=a.heads * workload.sequence_length * each)


def _mlp(workload: Workload, ffn: int, product_bytes: float) -> Split:
    """Input, the activation function's input (twice as large if gated), and its output.

    Without a fused kernel the gate's output is an input of the product with the other half.
    """
    a, size = workload.architecture, workload.precision.value_bytes
    halves = (2 + keeps_gate(workload.software)) if a.gated else 1
    inner = halves * ffn * size + ffn * product_bytes
    return Split(whole=a.hidden * product_bytes, split=inner)


def _experts(workload: Workload, product_bytes: float) -> Split:
    """Each token's copies to its experts, their MLPs and results, and the router.

    Results are kept for the gradients of the router, unless its weights scale what enters
    an expert's last matrix (Megatron-Core since 0.12).
    """
    a = workload.architecture
    assert a.experts is not None
    size, experts = workload.precision.value_bytes, a.experts
    copies, width = experts.per_token * workload.capacity_factor, experts.width or a.hidden
    results = 0 if repeats_modules(workload.software) else size
    one = _mlp(workload, experts.ffn, product_bytes)
    routed = Split(split=one.split).times(copies)
    moved = Split(
        whole=copies * width * (product_bytes + results) + experts.count * 2 * _SUM_BYTES
    )
    shared = one.times(experts.shared) if experts.shared else Split(whole=one.whole)
    return routed + moved + shared


def _active_ffn(workload: Workload) -> float:
    a = workload.architecture
    assert a.experts is not None
    return a.experts.ffn * (a.experts.per_token * workload.capacity_factor + a.experts.shared)


def _product_bytes(workload: Workload, framework: Framework) -> float:
    """Transformer Engine keeps the quantized inputs of matrix products, torchao does not."""
    precision = workload.precision
    if precision.is_quantized and framework is Framework.MEGATRON:
        return precision.product_bytes
    return precision.value_bytes


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ActivationBytes:
    """Bytes of one rank: kept for the backward pass, then temporary.

    Attributes:
        inputs_SC: inputs of layers that are recomputed in full.
        embedding_SC: tokens and the embedding's saved values.
        logits_SC: logits, the loss and their gradients, on the last stage.
        working_SC: the layer being computed (again), beyond the room left by ``logits_SC``.
    """

    norms_SC: Floats
    attention_SC: Floats
    scores_SC: Floats
    mlp_SC: Floats
    dropout_SC: Floats
    adapters_SC: Floats
    inputs_SC: Floats
    embedding_SC: Floats
    logits_SC: Floats
    working_SC: Floats

    @property
    def held_SC(self) -> Floats:
        """Sum of all kinds."""
        return broadcast_sum(getattr(self, one.name) for one in fields(self))


@dataclass(frozen=True, slots=True)
class _Run:
    """Equal layers of a training, and how many of them a stage has."""

    workload: Workload
    sparse: bool
    crossed: bool
    here_SC: Floats


def activation_bytes(
    workload: Workload,
    weights: ModelWeights,
    columns: LayoutColumns,
    stages: Stages,
) -> ActivationBytes:
    """Activations at the fullest moment of each stage."""
    a = workload.architecture
    tokens_C, whole_C, split_C = _cells(workload, columns)
    waiting_SC = stages.waiting_SC
    kind_C = columns.recompute_C
    runs = _runs(workload, weights, stages)
    again_SC = _recomputed_layers(columns, stages.count_SC)
    count_SC = np.maximum(1.0, stages.count_SC)
    if more := workload.software.layers_in_flight:
        waiting_SC = waiting_SC * (1.0 + more * (columns.pipeline_C > 1) / count_SC)
    share_SC = (1 - again_SC / count_SC) * waiting_SC
    if columns.are_activations_away_C.any():
        kept_SC = np.minimum(1.0, _UNITS_ON_DEVICE / np.maximum(1.0, count_SC * waiting_SC))
        kept_SC = np.where(columns.are_activations_away_C, kept_SC, 1.0)
        share_SC, again_SC = share_SC * kept_SC, again_SC * kept_SC

    held = [run.here_SC * share_SC for run in runs]

    def of_kind(kind: str) -> Floats:
        total = np.zeros(())
        for run, held_SC in zip(runs, held, strict=True):
            whole, split = _by_kind(run.workload, (run.sparse, run.crossed), kind)
            if whole.any() or split.any():
                each_C = whole[kind_C] * whole_C + split[kind_C] * split_C
                total = total + held_SC * each_C
        return total

    gathered: Floats | float = 0.0
    if workload.software.keeps_gathered:
        beyond_C = (tokens_C - whole_C) * (a.hidden * workload.precision.value_bytes)
        gathered = share_SC * stages.count_SC * beyond_C
    logits_SC = np.asarray(stages.is_last_SC * loss_bytes(columns, workload, tokens_C))
    working_C = working_bytes(workload, weights, columns, stages)
    front_C = _front_bytes(columns, workload) if a.front else 0.0
    masks = a.hidden * _MASK_BYTES if workload.software.dropout else 0
    return ActivationBytes(
        norms_SC=of_kind("norms"),
        attention_SC=of_kind("attention") + gathered,
        scores_SC=of_kind("scores"),
        mlp_SC=of_kind("mlp") + gathered,
        dropout_SC=of_kind("dropout"),
        adapters_SC=of_kind("adapters"),
        inputs_SC=again_SC * waiting_SC * whole_C * (a.hidden * eager_copies(workload)[2]),
        embedding_SC=stages.is_first_SC
        * waiting_SC
        * (masks * whole_C + 2 * _TOKEN_BYTES * tokens_C + front_C),
        logits_SC=logits_SC,
        working_SC=np.maximum(0.0, working_C - logits_SC),
    )


def _cells(workload: Workload, columns: LayoutColumns) -> tuple[Floats, Floats, Floats]:
    """Tokens of a rank: all, in its part of a sequence, and shared by its tensor ranks."""
    tokens_C = columns.micro_batch_C * workload.sequence_length / columns.context_C
    whole_C = tokens_C / np.where(columns.sequence_parallel_C, columns.tensor_C, 1)
    return tokens_C, whole_C, tokens_C / columns.tensor_C


def _runs(workload: Workload, weights: ModelWeights, stages: Stages) -> list[_Run]:
    a = workload.architecture
    crossed, first, runs = crosses(a), 0, []
    if a.kinds:
        for one in uniform_parts(a):
            here_SC = stages.count_SC * (one.layers / a.layers)
            own = replace(workload, model=one)
            runs.append(_Run(own, one.experts is not None, crossed, here_SC))
        return runs
    for number, sparse, crossed_here in (
        (weights.encoder_layers, False, False),
        (weights.dense_layers, False, crossed),
        (weights.repeated_layers, a.experts is not None, crossed),
    ):
        if number:
            here_SC = stages.layers_between(first, first + number)
            runs.append(_Run(workload, sparse, crossed_here, here_SC))
        first += number
    return runs


def _front_bytes(columns: LayoutColumns, workload: Workload) -> Floats:
    """Activations that a tower in front keeps of a micro-batch; context ranks repeat it."""
    tower, kind_C = front_workload(workload), columns.recompute_C
    images_C = columns.micro_batch_C * (workload.images * tower.sequence_length)
    size = tower.architecture.hidden * workload.precision.value_bytes
    total: Floats | float = 0.0
    for one in uniform_parts(tower.architecture):
        own = replace(tower, model=one)
        whole, split = _by_kind(own, (one.experts is not None, False), "total")
        each_C = whole[kind_C] + split[kind_C] / columns.tensor_C
        total = total + one.layers * np.where(kind_C == FULL, size, each_C)
    return np.asarray(total * images_C)


def _recomputed_layers(columns: LayoutColumns, count_SC: Floats) -> Floats:
    wanted_C = columns.recompute_layers_C
    covered_SC = np.where(wanted_C < 0, count_SC, np.minimum(wanted_C, count_SC))
    return np.asarray(covered_SC * (columns.recompute_C == FULL))


@lru_cache(maxsize=256)
def _by_kind(workload: Workload, make: tuple[bool, bool], kind: str) -> tuple[Floats, Floats]:
    """Bytes per token by recomputation.

    Args:
        workload: the training.
        make: whether the layer has experts, and whether it attends to an encoder.
        kind: an attribute of ``LayerActivations``.
    """
    sparse, crossed = make
    framework = workload.software.framework
    found: list[Split] = [
        getattr(kept_activations(workload, framework, one, sparse=sparse, crossed=crossed), kind)
        for one in Recompute
    ]
    factor = workload.activation_factor
    return factor * np.array([s.whole for s in found]), factor * np.array([s.split for s in found])


@lru_cache(maxsize=64)
def _again_by_kind(workload: Workload, make: tuple[bool, bool]) -> tuple[Floats, Floats]:
    """Bytes per token of a layer's recomputed values, and of its gradients; as ``_by_kind``."""
    sparse, crossed = make
    framework = workload.software.framework
    every = kept_activations(
        workload, framework, Recompute.NONE, sparse=sparse, crossed=crossed
    ).total.times(workload.activation_factor)
    whole, split = _by_kind(workload, make, "total")
    covers = np.array([kind is Recompute.FULL for kind in Recompute])
    gradients = backward_temporaries(workload, sparse=sparse)
    again_whole = np.where(covers, every.whole, np.maximum(0.0, every.whole - whole))
    again_split = np.where(covers, every.split, np.maximum(0.0, every.split - split))
    return again_whole + gradients.whole, again_split + gradients.split


def working_bytes(
    workload: Workload, weights: ModelWeights, columns: LayoutColumns, stages: Stages
) -> Floats:
    """Recomputed activations of the largest layer, its gradients, and its gathered input."""
    tokens_C, whole_C, split_C = _cells(workload, columns)
    kind_C = columns.recompute_C
    gathers_C = columns.sequence_parallel_C & (columns.tensor_C > 1)
    largest: Floats | float = 0.0
    for run in _runs(workload, weights, stages):
        whole, split = _again_by_kind(run.workload, (run.sparse, run.crossed))
        one_C = whole[kind_C] * whole_C + split[kind_C] * split_C
        largest = np.maximum(largest, one_C)
    hidden_bytes = workload.architecture.hidden * workload.precision.value_bytes
    return np.asarray(largest + gathers_C * tokens_C * hidden_bytes)
