"""Weights of a transformer: exact for memory, only matrices for products; pieces of a profile.

Shapes: B = blocks of a profiled model, S = stages, C = candidates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from autoconf_launch.core import (
    Architecture,
    BlockSpec,
    Experts,
    ModelSpec,
    Offload,
    Recompute,
    SplitPart,
    even_pipeline_split,
)

from ..layers import (
    attends,
    attention_weights,
    crosses,
    expert_layers,
    has_mixer,
    indexer_norms,
    perceptron_weights,
    router_weights,
    uniform_parts,
)
from ..space import LEFT_OUT, OFFLOAD_EXTRAS, Bools, CandidateTable, Floats, Ints
from .layout_columns import FULL, NONE, RECOMPUTE_CODES, LayoutColumns

_KEPT_BY_SELECTIVE = 20 / 34
"""Share of a block's activations that are its matrix products': Korthikanti et al. 2022,
"Reducing Activation Recomputation", section 4.1, 34 sbh in all and 20 sbh kept (16-bit)."""
NO_SPLIT = SplitPart()
"""A block that tensor ranks do not share out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """Weights of one layer. Whatever ``split`` over tensor-parallel ranks is not is whole there.

    Attributes:
        attention: its matrices and their biases, cross attention included.
        mlp: the dense MLP, or the experts that see every token.
        experts: all routed experts, split over expert-parallel ranks too.
        whole: norms, biases of outputs, routers: on every tensor-parallel rank.
    """

    attention: int
    mlp: int
    experts: int
    whole: int

    @property
    def total(self) -> int:
        """Sum of all parts."""
        return self.attention + self.mlp + self.experts + self.whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWeights:
    """Weights of a model by place: the layers in order are encoder, dense, then ``repeated``.

    Attributes:
        embedding: token and position tables and tables like them; first stage.
        head: the output matrix and last norm. A tied matrix is counted only in ``embedding``.
        encoder: one encoder layer, of ``encoder_layers``.
        dense: a leading layer without experts, of ``dense_layers``.
        repeated: another layer; for models with experts in every n-th layer, the mean.
    """

    embedding: int
    head: int
    tied_head: int
    encoder: LayerWeights
    encoder_layers: int
    dense: LayerWeights
    dense_layers: int
    repeated: LayerWeights
    repeated_layers: int
    spare: int = 0

    @property
    def total(self) -> int:
        return (
            self.embedding
            + self.head
            + self.encoder_layers * self.encoder.total
            + self.dense_layers * self.dense.total
            + self.repeated_layers * self.repeated.total
            + self.spare
        )

    def in_layers(self) -> ModelWeights:
        """Only the weights of the layers."""
        return replace(self, embedding=0, head=0, tied_head=0, spare=0)


def parameters(architecture: Architecture) -> int:
    """All weights, as the published implementation counts them."""
    return model_weights(architecture).total


def active_parameters(architecture: Architecture) -> int:
    """Weights that one token passes: of the routed experts only those chosen for it."""
    total, experts = parameters(architecture), architecture.experts
    if experts is None:
        return total
    idle = experts.count - experts.per_token
    return total - expert_layers(architecture) * idle * _expert(architecture, experts)


@lru_cache(maxsize=256)
def model_weights(architecture: Architecture) -> ModelWeights:
    """Weights by place."""
    a = architecture
    table = a.vocabulary * a.hidden
    sparse, plain = _layer(a, sparse=True), _layer(a, sparse=False)
    dense = a.experts.first_dense if a.experts and not a.kinds else 0
    repeated = a.layers - dense
    with_experts = expert_layers(a)
    parts = [(with_experts, sparse), (repeated - with_experts, plain)]
    if a.kinds:
        kinds = uniform_parts(a)
        parts = [(one.layers, _layer(one, sparse=one.experts is not None)) for one in kinds]
    mean, spare = mean_layer(parts, repeated) if a.experts or a.kinds else (plain, 0)
    front = parameters(a.front) if a.front else 0
    last_norms = (2 if a.encoder_layers else 1) * _norm(a) if a.causal else 0
    return ModelWeights(
        embedding=table + a.positions * a.hidden + a.other_parameters + front,
        head=(0 if a.tied_embeddings else table) + last_norms,
        tied_head=table if a.tied_embeddings else 0,
        encoder=_layer(a, sparse=False, crossed=False),
        encoder_layers=a.encoder_layers,
        dense=plain,
        dense_layers=dense,
        repeated=mean,
        repeated_layers=repeated,
        spare=spare,
    )


def _layer(a: Architecture, *, sparse: bool, crossed: bool = True) -> LayerWeights:
    attentions = 2 if crosses(a) and crossed else 1
    experts = a.experts if sparse else None
    shared = experts.shared * _mlp(a, experts.ffn) if experts else _mlp(a, a.ffn)
    routed = experts.count * _expert(a, experts) if experts else 0
    router = router_weights(a, experts) if experts else 0
    parts = attentions * has_mixer(a) + (experts is not None or a.ffn > 0)
    biases = parts * a.hidden if a.biases and not experts else 0
    return LayerWeights(
        attention=a.streams * attentions * _attention(a),
        mlp=a.streams * shared,
        experts=routed,
        whole=a.streams * (parts * _norm(a) + biases) + router + a.other_layer_parameters,
    )


def _attention(a: Architecture) -> int:
    """Projections and the biases that are split with them; norms on both latents."""
    matrices = attention_weights(a)
    if not attends(a):
        return matrices
    if a.indexer is not None:
        matrices += indexer_norms(a.indexer)
    if (latent := a.latent) is not None:
        return matrices + (latent.query_rank or 0) + latent.key_value_rank
    return matrices + ((a.heads + 2 * a.kv_heads) * a.head if a.biases else 0)


def _mlp(a: Architecture, ffn: int) -> int:
    """Matrices, and the biases that are split with them."""
    return perceptron_weights(a, ffn) + ((2 if a.gated else 1) * ffn if a.biases else 0)


def _expert(a: Architecture, experts: Experts) -> int:
    return _mlp(replace(a, hidden=experts.width or a.hidden), experts.ffn)


def _norm(a: Architecture) -> int:
    """LayerNorm has a weight and a bias, RMSNorm only a weight."""
    return (2 if a.biases else 1) * a.hidden


def mean_layer(parts: Sequence[tuple[int, LayerWeights]], layers: int) -> tuple[LayerWeights, int]:
    """The mean of some layers of each kind, and the total loss by rounding it."""

    def mean(name: str) -> int:
        return sum(int(getattr(one, name)) * count for count, one in parts) // layers

    names = ("attention", "mlp", "experts", "whole")
    every = LayerWeights(**{name: mean(name) for name in names})
    exact = sum(one.total * count for count, one in parts)
    return every, exact - layers * every.total


def layer_matrices(weights: ModelWeights) -> ModelWeights:
    """The matrices of the layers: no embedding, head or norm."""
    encoder, dense, repeated = (
        replace(layer, whole=0) for layer in (weights.encoder, weights.dense, weights.repeated)
    )
    return replace(weights.in_layers(), encoder=encoder, dense=dense, repeated=repeated)


def repeated_names(spec: ModelSpec) -> frozenset[str]:
    """Lists of blocks that are wrapped, recomputed and cut piece by piece."""
    return frozenset(block.name for block in spec.blocks if block.count > 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StagePieces:
    """Number of pieces of each block of a profiled model on each pipeline stage.

    Attributes:
        blocks: the model's.
        repeated: names of blocks that are lists of equal pieces.
        count_BSC: pieces; 0 on stages that a candidate lacks.
        is_last_SC: the stage that has the head and makes the loss.
        stage_SC: numbers of stages.
    """

    blocks: tuple[BlockSpec, ...]
    repeated: frozenset[str]
    count_BSC: Floats
    is_last_SC: Bools
    stage_SC: Ints

    @staticmethod
    def of(spec: ModelSpec, table: CandidateTable) -> StagePieces:
        """Cut the model as each row asks."""
        splits: tuple[object, ...] = dict(table.columns)["pipeline_split"].categories or ()
        names = ("pipeline_parallel", "virtual_pipeline", "pipeline_split")
        keys = np.stack([table[name] for name in names])
        cuts, which = np.unique(keys, axis=1, return_inverse=True)
        stages = int(cuts[0].max(initial=1))
        count_BSU = np.zeros((len(spec.blocks), stages, cuts.shape[1]))
        for number, (pipeline, virtual, split) in enumerate(cuts.T.tolist()):
            given = splits[split]
            chunks = given if isinstance(given, tuple) else None
            for b, stage in _places(spec, pipeline, virtual, chunks):
                count_BSU[b, stage, number] += 1.0
        stage_SC = np.arange(stages)[:, None] + np.zeros(len(table), np.int64)
        return StagePieces(
            blocks=spec.blocks,
            repeated=repeated_names(spec),
            count_BSC=count_BSU[:, :, which.ravel()],
            is_last_SC=stage_SC == table["pipeline_parallel"] - 1,
            stage_SC=stage_SC,
        )

    def total(self, value: Callable[[BlockSpec], Floats | float]) -> Floats:
        """Sum of a value of each piece, on each stage."""
        total = np.zeros(self.count_BSC.shape[1:])
        for block, count_SC in zip(self.blocks, self.count_BSC, strict=True):
            total = total + count_SC * value(block)
        return total

    def split_total(self, value: Callable[[SplitPart], float]) -> Floats:
        """Sum of a value over the parts that tensor ranks share out, on each stage."""
        return self.total(lambda block: value(block.split or NO_SPLIT))

    def repeated_total(self, value: Callable[[BlockSpec], Floats | float]) -> Floats:
        """Sum of a value over the repeated blocks, on each stage."""
        return self.total(lambda block: value(block) if block.name in self.repeated else 0.0)


def _places(
    spec: ModelSpec, pipeline: int, virtual: int, split: tuple[int, ...] | None
) -> Iterator[tuple[int, int]]:
    """Number of the block and stage of each piece; nothing if stages outnumber the pieces.

    Modules that run before the first repeated piece are on the first stage, later modules on the
    last.
    """
    repeated = repeated_names(spec)
    total = sum(block.count for block in spec.blocks if block.name in repeated)
    chunks = pipeline * virtual
    if chunks > 1 and total < chunks:
        return
    sizes = split if split and sum(split) == total else even_pipeline_split(total, chunks)
    stages = [i % pipeline for i, size in enumerate(sizes) for _ in range(size)]
    seen = 0
    for b, block in enumerate(spec.blocks):
        for _ in range(block.count):
            if block.name in repeated:
                yield b, stages[seen]
                seen += 1
            else:
                yield b, pipeline - 1 if seen else 0


def piece_seconds(spec: ModelSpec) -> tuple[Callable[[BlockSpec], float], ...]:
    """Weight of a piece in the time of the whole model, and the weight of its split part.

    Seconds if forward passes were timed, else operations, else weights.
    """
    if any(block.forward_s for block in spec.blocks):
        return lambda b: b.forward_s, lambda b: (b.split or NO_SPLIT).forward_s
    if any(block.flops for block in spec.blocks):
        return lambda b: b.flops, lambda b: (b.split or NO_SPLIT).flops
    return lambda b: b.parameters, lambda b: (b.split or NO_SPLIT).parameters


def covered_rows(table: CandidateTable, spec: ModelSpec) -> Bools:
    """Rows that a profile can be laid out for; the model must have what their degrees share."""
    repeated = repeated_names(spec)
    pieces = sum(block.count for block in spec.blocks if block.name in repeated)
    needs = {
        "tensor_parallel": any(block.split for block in spec.blocks),
        "context_parallel": bool(spec.sequence_length and spec.hidden_size),
        "expert_parallel": any(block.expert_parameters for block in spec.blocks),
    }
    rows = table.is_value("offload", Offload.NONE) & table.is_value("placement", None)
    for extra in filter(dict(table.columns).__contains__, OFFLOAD_EXTRAS):
        rows = rows & (table.is_value(extra, LEFT_OUT) | table.is_value(extra, "none"))
    for knob, has in needs.items():
        rows = rows & (has | (table[knob] == 1))
    chunks = table["pipeline_parallel"] * table["virtual_pipeline"]
    return np.asarray(rows & ((chunks == 1) | (chunks <= pieces)), np.bool_)


def held_activations(
    spec: ModelSpec,
    pieces: StagePieces,
    columns: LayoutColumns,
    waiting_SC: Floats,
    compute_bytes: int,
) -> tuple[Floats, Floats]:
    """Activations of each stage's ranks over the whole model's without recomputation.

    First kept activations, then the recomputed activations of one block at a time; NaN if blocks
    do not say.
    """
    layers = pieces.repeated_total(lambda block: 1.0)
    covered_SC = np.where(columns.recompute_layers_C < 0, layers, columns.recompute_layers_C)
    covered_SC = np.minimum(covered_SC, layers) / np.maximum(layers, 1.0)
    is_full_C = columns.recompute_C == FULL
    inputs_C = 1.0 / columns.context_C
    inputs_C = inputs_C / np.where(columns.sequence_parallel_C, columns.tensor_C, 1)
    kept_SC, again_SC = np.zeros(layers.shape), np.zeros(layers.shape)
    for block, count_SC in zip(pieces.blocks, pieces.count_BSC, strict=True):
        repeated = block.name in pieces.repeated
        whole_C = _rank_bytes(block, columns, is_repeated=repeated)
        kept_C = np.full(len(columns), float(block.activation_bytes))
        if repeated:
            kept_C = _kept_by_kind(block, compute_bytes)[columns.recompute_C]
        kept_C = kept_C * np.where(
            is_full_C & repeated, inputs_C, whole_C / max(1, block.activation_bytes)
        )
        each_SC = np.where(covered_SC < 1.0, covered_SC * (kept_C - whole_C) + whole_C, kept_C)
        kept_SC = kept_SC + count_SC * each_SC
        repeats = (count_SC > 0) & (covered_SC > 0)
        again_SC = np.maximum(again_SC, np.where(repeats, whole_C - kept_C, 0.0))
    total = spec.activation_bytes_per_sample
    plain_SC = np.where((columns.recompute_C == NONE) & (columns.pipeline_C == 1), 1.0, np.nan)
    if not total:
        return plain_SC + 0.0 * waiting_SC, 0.0 * again_SC
    keys_SC = layers * _gathered_keys(spec, columns, compute_bytes)
    return np.asarray((kept_SC + keys_SC) * waiting_SC / total), np.asarray(again_SC / total)


def _rank_bytes(block: BlockSpec, columns: LayoutColumns, *, is_repeated: bool) -> Floats:
    """Bytes that a piece keeps of a rank's share of a sample."""
    split = block.split.activation_bytes if block.split else 0
    shared_C = np.where(columns.sequence_parallel_C & is_repeated, block.activation_bytes, split)
    less_C = shared_C * (1.0 - 1.0 / columns.tensor_C)
    return np.asarray((block.activation_bytes - less_C) / columns.context_C)


def _kept_by_kind(block: BlockSpec, compute_bytes: int) -> Floats:
    kinds = (kind for kind in RECOMPUTE_CODES if kind is not Recompute.NONE)
    again = [_kept_bytes(block, kind, compute_bytes) for kind in kinds]
    return np.array([block.activation_bytes, *again], np.float64)


def _gathered_keys(spec: ModelSpec, columns: LayoutColumns, compute_bytes: int) -> Floats:
    """Keys and values of a block that context ranks have of each other."""
    width = (spec.kv_heads or 0) * (spec.head_size or 0) or spec.hidden_size or 0
    keys = 2.0 * width * (spec.sequence_length or 0) * compute_bytes
    return np.asarray(keys / columns.tensor_C * (1.0 - 1.0 / columns.context_C))


def _kept_bytes(block: BlockSpec, kind: Recompute, compute_bytes: int) -> float:
    """Bytes that a repeated block keeps; embedding and head keep all."""
    if not block.activation_bytes:
        return block.activation_bytes
    if kind is Recompute.FULL:
        return block.input_bytes or np.nan
    if block.gemm_shapes is None:
        return _KEPT_BY_SELECTIVE * block.activation_bytes
    outputs = sum(shape.m * shape.n * shape.count for shape in block.gemm_shapes)
    return min(block.activation_bytes, block.input_bytes + outputs * compute_bytes)


def fsdp_gathered_bytes(
    columns: LayoutColumns,
    *,
    whole: Floats | float,
    units: Floats | float,
    casts_bytes: Floats | float,
    reduced_bytes: Floats,
    value_bytes: Floats | float,
) -> Floats:
    """Weights in use beyond weights at rest, and gradients before they are scattered.

    Stages 0 and 1 are DDP under autocast, which keeps 16-bit copies. Stage 2 keeps gathered
    weights, and stage 3 does too with a pipeline (torchtitan: a gather for each micro-batch would
    cost more); otherwise only some units are gathered at once.
    """
    is_whole_C = (columns.zero_stage_C == 2) | (columns.pipeline_C > 1)
    gathered = np.where(is_whole_C, whole, np.minimum(units, whole)) * value_bytes
    return np.asarray(np.where(columns.zero_stage_C < 2, casts_bytes, gathered + reduced_bytes))


@dataclass(frozen=True, slots=True)
class Line:
    """``fixed + each * x``, neither of them negative."""

    fixed: float
    each: float

    def at(self, x_C: Ints | Floats) -> Floats:
        """Values at several places."""
        return np.asarray(self.fixed + self.each * x_C, np.float64)


def fit_line(points: Sequence[tuple[int, float]]) -> Line:
    """Least squares with both parts kept at zero or above.

    A single place gives a line through the origin.
    """
    x, y = np.array(points, dtype=np.float64).T
    through_origin = Line(0.0, float(x @ y / (x @ x)))
    if len(set(x)) < 2:
        return through_origin
    from_mean = x - x.mean()
    each = float(from_mean @ y / (from_mean @ from_mean))
    fixed = float(y.mean() - each * x.mean())
    if each < 0:
        return Line(float(y.mean()), 0.0)
    return Line(fixed, each) if fixed >= 0 else through_origin


_NOTHING = Line(0.0, 0.0)
SECOND_MICRO_BATCH = "accumulation"
"""The traced phase of a micro-batch whose gradients are added to earlier gradients."""


def activation_line(
    spec: ModelSpec, *, rest_bytes: float, gradient_bytes: float, logits: Line
) -> Line:
    """Bytes at the fullest moment without recomputation, over the samples of a micro-batch.

    Traced peaks are preferred to measured bytes, these to the sum over blocks; NaN if none is
    known. The fixed part does not depend on samples, such as weights that autocast has cast.

    Args:
        spec: the model.
        rest_bytes: weights and optimizer state of the unsharded model, which traced peaks
            include.
        gradient_bytes: its gradients, which the phases after "forward" include too.
        logits: bytes that are counted separately but are in the peaks of these phases.
    """
    if spec.traced_peaks:
        lines = [
            _beyond(_phase(spec, phase), rest_bytes)
            if phase == "forward"
            else _beyond(_phase(spec, phase), rest_bytes + gradient_bytes, logits)
            for phase in _full_phases(spec)
        ]
        return Line(max(line.fixed for line in lines), max(line.each for line in lines))
    measured = [(t.micro_batch, float(t.activation_bytes)) for t in spec.timings]
    if any(seen for _, seen in measured):
        return fit_line(measured)
    return Line(0.0, spec.activation_bytes_per_sample or np.nan)


def _full_phases(spec: ModelSpec) -> list[str]:
    """Phases with all gradients: a second micro-batch if one was traced."""
    phases = dict.fromkeys(peak.phase for peak in spec.traced_peaks)
    return [SECOND_MICRO_BATCH] if SECOND_MICRO_BATCH in phases else [*phases]


def _phase(spec: ModelSpec, phase: str) -> Line:
    return fit_line(
        [(p.micro_batch, float(p.peak_bytes)) for p in spec.traced_peaks if p.phase == phase]
    )


def _beyond(line: Line, fixed: float, apart: Line = _NOTHING) -> Line:
    return Line(max(0.0, line.fixed - fixed), max(0.0, line.each - apart.each))
