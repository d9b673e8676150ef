"""Bytes of weights, gradients and optimizer state at rest, by each framework's rules.

A rule is bytes for each weight, in part on every data-parallel rank and in part shared by them.

Source:
    Rajbhandari et al. 2020, "ZeRO", section 3 (the state that each stage shards). Megatron-LM,
    docs/source/api-guide/dist_optimizer.md (4 + 16/d, 6 + 12/d, 8 + 8/d bytes; 20, 18, 16 without
    it). DeepSpeed, runtime/zero/stage_1_and_2.py (flat gradients of a share) and
    runtime/bf16_optimizer.py (fp32 gradients besides 16-bit ones). FSDP2: fp32 shards throughout
    (torch.distributed.fsdp.fully_shard).

Shapes: S = stages, C = candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.core import (
    Architecture,
    BlockSpec,
    Framework,
    FrozenPart,
    GradientSum,
    ModelSpec,
    Precision,
    States,
    Workload,
)

from ..layers import crosses, embedding_weights, largest_matrix, state_products, uniform_parts
from ..space import Bools, CandidateTable, Floats, Ints
from .layout_columns import LayoutColumns
from .layout_rules import Stages
from .weights import (
    LayerWeights,
    ModelWeights,
    StagePieces,
    layer_matrices,
    mean_layer,
    model_weights,
)

_MASTER = 4.0
_HALF = 2.0
_HOST_GRADIENT = 4.0
_STAGES = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalWeights:
    """Counts of the weights that one rank computes with, before ZeRO.

    Attributes:
        shared_SC: equal on all data-parallel ranks.
        experts_SC: equal only on ranks with the same experts; a plain 0 without experts.
        outside_SC: the shared weights of embedding and head.
        layer_C: weights of the largest layer, experts included.
    """

    shared_SC: Floats
    experts_SC: Floats
    outside_SC: Floats
    layer_C: Floats

    @property
    def all_SC(self) -> Floats:
        """Every weight of the rank."""
        return self.shared_SC + self.experts_SC


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankWeights:
    """All weights of a rank, those that are trained, and those that are stored in fewer bits."""

    local: LocalWeights
    trained: LocalWeights
    quantized: LocalWeights | None = None

    def bytes_each(self, workload: Workload) -> Floats | float:
        """Mean size of a weight as it is gathered for use."""
        size = workload.precision.value_bytes
        if self.quantized is None:
            return size
        share_SC = self.quantized.all_SC / self.local.all_SC
        return np.asarray(size + share_SC * (workload.frozen_matrix_bytes - size))


def rank_weights_of(
    weights: ModelWeights, workload: Workload, columns: LayoutColumns, stages: Stages
) -> RankWeights:
    """Count all three on each stage."""
    local = local_weights(weights, columns, stages)
    if workload.trains_all:
        return RankWeights(local=local, trained=local)
    trained = local_weights(trained_weights(workload), columns, stages)
    if workload.weight_format is None:
        return RankWeights(local=local, trained=trained)
    quantized = local_weights(layer_matrices(weights), columns, stages)
    return RankWeights(local=local, trained=trained, quantized=quantized)


def local_weights(weights: ModelWeights, columns: LayoutColumns, stages: Stages) -> LocalWeights:
    """Counts on each stage; a tied matrix is on the first and on the last one."""
    tensor_C = columns.tensor_C
    shared: Floats | float = 0.0
    experts: Floats | float = 0.0
    largest: Floats | float = 0.0
    first, groups = 0, _groups(weights)
    for number, layer in groups:
        here_SC = (
            stages.layers_between(first, first + number) if len(groups) > 1 else stages.count_SC
        )
        shared_C = (layer.attention + layer.mlp) / tensor_C + layer.whole
        experts_C: Floats | float = 0.0
        if layer.experts:
            experts_C = layer.experts / (tensor_C * columns.expert_C)
            experts = experts + here_SC * experts_C
        shared = shared + here_SC * shared_C
        largest, first = np.maximum(largest, shared_C + experts_C), first + number
    outside_SC = _outside(weights, columns, stages)
    return LocalWeights(
        shared_SC=shared + outside_SC,
        experts_SC=np.asarray(experts, np.float64),
        outside_SC=outside_SC,
        layer_C=np.asarray(largest, np.float64),
    )


def _groups(weights: ModelWeights) -> list[tuple[int, LayerWeights]]:
    """Runs of equal layers in order, empty ones skipped."""
    runs = [
        (weights.encoder_layers, weights.encoder),
        (weights.dense_layers, weights.dense),
        (weights.repeated_layers, weights.repeated),
    ]
    return [(number, layer) for number, layer in runs if number]


def _outside(weights: ModelWeights, columns: LayoutColumns, stages: Stages) -> Floats:
    again_C = weights.head + weights.tied_head * (columns.pipeline_C > 1)
    outside_SC = weights.embedding * stages.is_first_SC + again_C * stages.is_last_SC
    return np.asarray(outside_SC / columns.tensor_C)


def trained_weights(workload: Workload) -> ModelWeights:
    """Weights with gradients: all except frozen parts, or only the adapters of LoRA.

    Source:
        Hu et al. 2021, "LoRA", section 4.1: r (d + k) weights besides a d x k matrix.
    """
    a = workload.architecture
    weights = model_weights(a)
    if workload.lora_rank is not None:
        return _adapters(a, weights, workload.lora_rank)
    if not workload.frozen:
        return weights
    frozen = workload.frozen
    return replace(
        weights,
        embedding=0 if FrozenPart.EMBEDDING in frozen else weights.embedding,
        head=0 if FrozenPart.HEAD in frozen else weights.head,
        tied_head=0 if FrozenPart.EMBEDDING in frozen else weights.tied_head,
        encoder=_unfrozen(weights.encoder, frozen),
        dense=_unfrozen(weights.dense, frozen),
        repeated=_unfrozen(weights.repeated, frozen),
        spare=0,
    )


def trained_share(workload: Workload) -> float:
    """Share of the weights that have gradients (below 1 for LoRA)."""
    if workload.trains_all:
        return 1.0
    weights = model_weights(workload.architecture)
    return trained_weights(workload).total / weights.total


def _unfrozen(layer: LayerWeights, frozen: frozenset[FrozenPart]) -> LayerWeights:
    attention, mlp = FrozenPart.ATTENTION in frozen, FrozenPart.MLP in frozen
    return LayerWeights(
        attention=0 if attention else layer.attention,
        mlp=0 if mlp else layer.mlp,
        experts=0 if mlp else layer.experts,
        whole=0 if attention and mlp else layer.whole,
    )


def _adapters(a: Architecture, weights: ModelWeights, rank: int) -> ModelWeights:
    crossed = crosses(a)
    parts = [
        (one.layers, _adapter(one, rank, sparse=one.experts is not None, crossed=crossed))
        for one in uniform_parts(a)
    ]
    repeated, spare = mean_layer(parts, a.layers)
    return replace(
        weights.in_layers(),
        encoder=_adapter(a, rank, sparse=False, crossed=False),
        dense=_adapter(a, rank, sparse=False, crossed=crossed),
        repeated=repeated,
        spare=spare,
    )


def _adapter(a: Architecture, rank: int, *, sparse: bool, crossed: bool) -> LayerWeights:
    attention = 0
    if a.heads:
        queries, keys = a.heads * a.head, a.kv_heads * a.head
        attention = 2 * rank * (2 * a.hidden + queries + keys) * (2 if crossed else 1)
    elif a.state is not None:
        pairs = state_products(a.hidden, a.state)
        attention = rank * sum(round(n + k) for n, k in pairs)
    matrices = 3 if a.gated else 2
    experts = a.experts if sparse else None
    mlp = rank * (a.hidden + a.ffn) * matrices if a.ffn else 0
    routed = 0
    if experts is not None:
        mlp = rank * (a.hidden + experts.ffn) * matrices * experts.shared
        routed = rank * ((experts.width or a.hidden) + experts.ffn) * matrices * experts.count
    return LayerWeights(
        attention=a.streams * attention, mlp=a.streams * mlp, experts=routed, whole=0
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelState:
    """Bytes of one rank."""

    weights_SC: Floats
    gradients_SC: Floats
    optimizer_SC: Floats

    def with_copies(self, columns: LayoutColumns, copies: int) -> ModelState:
        """Weights and gradients of several stages; their copies share what ZeRO shards."""
        copies_C = np.where(columns.pipeline_C > 1, copies, 1)
        whole_C = np.where(columns.zero_stage_C > 0, 1, copies_C)
        return replace(
            self,
            weights_SC=self.weights_SC * copies_C,
            gradients_SC=self.gradients_SC * copies_C,
            optimizer_SC=self.optimizer_SC * whole_C,
        )

    def with_late_gradients(self, columns: LayoutColumns, freed_SC: Floats) -> ModelState:
        """Gradients of a single rank that fit into memory freed by the backward pass.

        torch makes the gradients of its only micro-batch while activations go; they are whole when
        only the last layer's activations are left. Checked by torchtune's published peaks
        (README.md), within 6 %.
        """
        ranks_C = columns.shards_C * columns.tensor_C * columns.pipeline_C
        is_first_C = (ranks_C == 1) & (columns.accumulation_C == 1)
        late_SC = np.maximum(0.0, self.gradients_SC - np.maximum(0.0, freed_SC))
        return replace(self, gradients_SC=np.where(is_first_C, late_SC, self.gradients_SC))

    def with_passing_gradients(self, passing_SC: Floats, freed_SC: Floats) -> ModelState:
        """Gradients of one backward pass besides their sum, in memory that it frees or beyond."""
        late_SC = np.maximum(0.0, passing_SC - np.maximum(0.0, freed_SC))
        return replace(self, gradients_SC=self.gradients_SC + late_SC)


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Bytes of a weight; ``update`` is there while weights change, when activations are not."""

    weight: float
    gradient: float
    state: float
    update: float

    @property
    def host(self) -> float:
        """Bytes on a host that updates it: its state, and its gradient in fp32."""
        return self.state + _HOST_GRADIENT


@dataclass(frozen=True, slots=True)
class _Rule:
    """A part of memory: bytes ``whole`` on every data-parallel rank, or ``shared`` by them."""

    whole: float
    shared: float


def model_state(counts: RankWeights, columns: LayoutColumns, workload: Workload) -> ModelState:
    """Bytes at rest; frozen weights are kept in the precision of the run, or quantized."""
    trained, stage_C = counts.trained, columns.zero_stage_C
    on_device = ~columns.are_states_away_C & (not workload.optimizer.is_paged)
    weights_away = columns.are_weights_away_C & (stage_C == 3)
    weights = weights_at_rest(counts, columns, workload)
    gradients = resting_bytes("gradient", trained, columns, workload)
    if workload.updates_in_backward:
        largest = _largest_tensor(trained, columns, workload) * gradient_bytes(workload)
        gradients = np.minimum(gradients, largest)
    return ModelState(
        weights_SC=np.where(weights_away, 0.0, weights),
        gradients_SC=np.where(weights_away, 0.0, gradients),
        optimizer_SC=resting_bytes("state", trained, columns, workload) * on_device,
    )


def _largest_tensor(trained: LocalWeights, columns: LayoutColumns, workload: Workload) -> Floats:
    """Weights of the largest tensor with gradients on each stage."""
    a, tensor_C = workload.architecture, columns.tensor_C
    outside_SC = np.minimum(trained.outside_SC, embedding_weights(a) / tensor_C)
    return np.maximum(outside_SC, np.minimum(trained.layer_C, largest_matrix(a) / tensor_C))


def weights_at_rest(counts: RankWeights, columns: LayoutColumns, workload: Workload) -> Floats:
    """Weights at rest, wherever they are kept."""
    weights = resting_bytes("weight", counts.trained, columns, workload)
    if counts.trained is counts.local:
        return weights
    ranks_C = np.where(columns.zero_stage_C == 3, columns.shards_C, 1)
    return np.asarray(weights + _frozen_bytes(counts, workload) / ranks_C)


def _frozen_bytes(counts: RankWeights, workload: Workload) -> Floats:
    """Weights that are not trained; adapters come on top of all weights."""
    frozen_SC = counts.local.all_SC
    if not workload.trains_adapters:
        frozen_SC = np.maximum(0, frozen_SC - counts.trained.all_SC)
    return np.asarray(frozen_SC * counts.bytes_each(workload))


def update_bytes(trained: LocalWeights, columns: LayoutColumns, workload: Workload) -> Floats:
    """Temporaries of the optimizer's update, on each stage."""
    on_device = ~columns.are_states_away_C
    return np.asarray(resting_bytes("update", trained, columns, workload) * on_device)


def resting_bytes(
    part: str, counts: LocalWeights, columns: LayoutColumns, workload: Workload
) -> Floats:
    """Bytes of one part on each rank, by what its framework shards at which ZeRO stage.

    ``part``: a field of ``_Bytes``.
    """
    rules = [_rule(part, stage, workload) for stage in range(_STAGES)]
    whole = np.array([rule.whole for rule in rules])[columns.zero_stage_C]
    shared = np.array([rule.shared for rule in rules])[columns.zero_stage_C]
    ranks_C = columns.shards_C
    held_SC = counts.shared_SC * (whole + shared / ranks_C)
    if counts.experts_SC.any():
        expert_ranks_C = np.maximum(1, ranks_C // columns.expert_C)
        held_SC = held_SC + counts.experts_SC * (whole + shared / expert_ranks_C)
    return np.asarray(held_SC)


def _rule(part: str, stage: int, workload: Workload) -> _Rule:
    framework = workload.software.framework
    each = _bytes(workload)
    size: float = gradient_bytes(workload) if part == "gradient" else getattr(each, part)
    is_fsdp = framework is Framework.FSDP
    shared_from = {"weight": 2 if is_fsdp else 3, "gradient": 2}.get(part, 1)
    return _Rule(0.0, size) if stage >= shared_from else _Rule(size, 0.0)


def gradient_bytes(workload: Workload) -> float:
    """Size of a gradient that waits for the update.

    DeepSpeed adds 16-bit gradients, which it keeps, to fp32 sums.
    """
    software, each = workload.software, _bytes(workload)
    if workload.gradients is not None:
        is_besides = software.framework is Framework.DEEPSPEED and each.weight == _HALF
        is_besides = is_besides and workload.gradients is GradientSum.FP32
        return workload.gradients.bytes_each + _HALF * is_besides
    is_asked = (
        workload.states in (States.BF16, States.FP32) and workload.precision.value_bytes == 2
    )
    return each.gradient if is_asked or not software.gradient_bytes else software.gradient_bytes


def state_format(workload: Workload) -> States:
    """Formats of a training's states: as requested, else the trainer's, else the framework's."""
    if workload.precision.value_bytes == 4:
        return States.FP32
    software = workload.software
    usual = States.FP32 if software.framework is Framework.FSDP else States.BF16_MASTER
    return workload.states or software.states or usual


def _bytes(workload: Workload) -> _Bytes:
    """Bytes by the formats; the update of a 16-bit copy needs no gradients in its own format."""
    form, optimizer = state_format(workload), workload.optimizer
    has_master = form in (States.BF16_MASTER, States.BF16_MOMENTS)
    weight = _MASTER if form is States.FP32 else _HALF
    moments = optimizer.moment_bytes(_HALF if form in (States.BF16, States.BF16_MOMENTS) else 4.0)
    state = _MASTER * has_master + moments
    framework = workload.software.framework
    if framework is Framework.FSDP:
        return _torch_bytes(workload, _Bytes(weight, weight, state, weight))
    if not has_master:
        return _Bytes(weight, weight, state, 0.0)
    is_fp16 = workload.precision is Precision.FP16
    if framework is Framework.DEEPSPEED:
        # gradients of the share in fp16, flat twice and once in fp32; too large for blocks that
        # activations have left
        flat = _HALF + _HALF + _MASTER
        return _Bytes(_HALF, _HALF, flat + state, 0.0) if is_fp16 else _Bytes(2.0, 6.0, state, 0.0)
    if is_fp16:  # fp32 gradients are made for the update
        return _Bytes(_HALF, _HALF, state, _MASTER)
    quantized = workload.precision.is_quantized
    cached = _HALF if quantized and not workload.software.transformer_engine else 0.0
    return _Bytes(_HALF + cached, _MASTER, state, 0.0)


def _torch_bytes(workload: Workload, each: _Bytes) -> _Bytes:
    """Torch's Adam makes one more value for each weight while it updates all at once.

    Adapters are in 16 bits and updated in place, as the authors of QLoRA train them
    (github.com/artidoro/qlora, qlora.py with ``--bf16`` and paged 32-bit AdamW).
    """
    optimizer = workload.optimizer
    if workload.trains_adapters and workload.states is None:
        size = float(workload.precision.value_bytes)
        return _Bytes(size, size, optimizer.moment_bytes(4.0), 0.0)
    in_place = workload.software.fused_update or workload.updates_in_backward
    makes_values = optimizer.states > 1 and not (in_place or workload.trains_adapters)
    return each if makes_values else replace(each, update=0.0)


def is_plain(columns: LayoutColumns) -> Bools:
    """Rows whose ranks hold equal parts of the model: DDP trains them below ZeRO 2, else FSDP2."""
    degrees = columns.tensor_C * columns.pipeline_C * columns.expert_C
    return np.asarray(degrees == 1, np.bool_)


def sharding_ranks(table: CandidateTable, columns: LayoutColumns) -> Ints:
    """Ranks that weights are sharded over; hybrid sharding copies them over the others."""
    given = table.numbers("shard_ranks", 0.0).astype(np.int64)
    return np.where(given > 1, given, columns.shards_C)  # true: all of them


def stage_weights(pieces: StagePieces, columns: LayoutColumns, *, trained: bool) -> LocalWeights:
    """Weights of a profiled model that each stage's ranks compute with, or those with gradients.

    A weight that the first stage shares with the last is on both.
    """

    def share(block: BlockSpec) -> float:
        kept = 1.0 - block.frozen_parameters / block.parameters if block.parameters else 1.0
        return kept if trained else 1.0

    def of_rank(block: BlockSpec) -> Floats:
        split = block.split.parameters if block.split else 0
        count = block.parameters - block.frozen_parameters if trained else block.parameters
        return np.asarray(count - share(block) * split * (1.0 - 1.0 / columns.tensor_C))

    apart_C = columns.expert_C > 1
    routed_SC = pieces.total(lambda block: share(block) * block.expert_parameters) * apart_C
    tied_SC = pieces.total(lambda block: share(block) * block.tied_parameters)
    alone_SC = pieces.total(lambda b: 0.0 if b.name in pieces.repeated else of_rank(b))
    layers = [of_rank(block) for block in pieces.blocks if block.name in pieces.repeated]
    return LocalWeights(
        shared_SC=pieces.total(of_rank) - routed_SC + tied_SC * (columns.pipeline_C > 1),
        experts_SC=routed_SC / columns.expert_C,
        outside_SC=alone_SC + tied_SC * (columns.pipeline_C > 1),
        layer_C=np.max([np.zeros(len(columns)), *layers], axis=0),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProfiledRank:
    """A rank's part of a profiled model, on each stage.

    Attributes:
        at_rest: the layouts by their sharding between steps.
        is_late_C: FSDP trains rows below ZeRO 2, which reduce with the last micro-batch.
    """

    columns: LayoutColumns
    at_rest: LayoutColumns
    pieces: StagePieces
    local: LocalWeights
    trained: LocalWeights
    is_late_C: Bools

    @staticmethod
    def of(spec: ModelSpec, table: CandidateTable) -> ProfiledRank:
        """Parts of each row's ranks."""
        columns, pieces = LayoutColumns.from_table(table), StagePieces.of(spec, table)
        stage_C = columns.zero_stage_C
        is_late_C = ~is_plain(columns) & (stage_C < 2) & (columns.shards_C > 1)
        shards_C = sharding_ranks(table, columns)
        rest = replace(
            columns,
            zero_stage_C=np.where(is_late_C & (stage_C == 1), 2, stage_C),
            data_C=shards_C,
            context_C=np.ones_like(shards_C),
        )
        return ProfiledRank(
            columns=columns,
            at_rest=rest,
            pieces=pieces,
            local=stage_weights(pieces, columns, trained=False),
            trained=stage_weights(pieces, columns, trained=True),
            is_late_C=np.asarray(is_late_C, np.bool_),
        )
