"""Memory of one rank by formula, part by part. Not here: the limit (a rule of the planner).

``memory_bytes`` is for transformers by their published shapes on any layout, stage by stage;
``memory_parts`` for our own runtime and whatever model it profiled: stored weights are fp32;
stages 0 and 1 are DDP, whose buckets hold the gradients and which computes in 16 bits by autocast;
stages 2 and 3 are FSDP2, which gathers weights in the precision of the run and scatters gradients
with each micro-batch.
Shapes: S = stages, C = candidates.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from autoconf_launch.core import (
    CONTEXT_BYTES,
    Framework,
    Grade,
    ModelSpec,
    Precision,
    Recompute,
    Software,
    States,
    Workload,
)

from ..layers import (
    largest_matrix,
)
from ..space import Bools, CandidateTable, Floats, Ints
from .activations import (
    ActivationBytes,
    activation_bytes,
    working_bytes,
)
from .kernel_times import profiled_model
from .layout_columns import LayoutColumns, broadcast_sum
from .layout_rules import Stages, in_flight, stages_of_peak
from .model_state import (
    LocalWeights,
    ProfiledRank,
    RankWeights,
    gradient_bytes,
    is_plain,
    model_state,
    rank_weights_of,
    resting_bytes,
    state_format,
    update_bytes,
)
from .weights import (
    Line,
    activation_line,
    covered_rows,
    fsdp_gathered_bytes,
    held_activations,
    model_weights,
)

GRADES = frozenset({Grade.ARCHITECTURE, Grade.TRACED, Grade.MEASURED})
"""Descriptions of a model that these formulas can read."""

_LOGIT_BYTES = 4  # the gradient of the loss by its logits is fp32 in every precision
_REDUCED_BYTES = 4
_STORED_BYTES = 4.0
_UNITS_IN_FLIGHT = 2  # the one in use and the next, which is prefetched
NCCL_BYTES = 1.0 * 2**30
"""NCCL's own buffers: a few communicators with two of 4 MiB (NCCL_BUFFSIZE) for each of 24 to 32
channels; one figure, since their number depends on the framework."""
FRAGMENTATION = 0.04
"""Share of temporary memory that torch reserves over what is allocated."""
REUSED = 0.5
"""Share of freed memory that later tensors of other sizes reuse: recomputed activations in the
loss's memory, or an update's temporaries in the activations' memory. The rest stays reserved
(torch's caching allocator splits segments, and does not join two of them)."""
COMPILED_FRAGMENTATION = 0.01
"""The same share if a compiler plans the reuse of buffers."""
_LIVE_VALUES = 1e9
"""DeepSpeed's ``stage3_max_live_parameters`` by default."""
_BUCKET_VALUES = 5e8
"""DeepSpeed's ``reduce_bucket_size`` by default."""
_BF16_GATHER_VALUES = 5e9
"""``allgather_bucket_size`` of its BF16_Optimizer by default."""
MEMORY_BAND = 0.10
"""Relative error to expect; nine of ten published peaks, of few models, are within 7.3 %."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryParts:
    """Bytes of one rank at the fullest moment of a step; the parts add up to the peak.

    For a known shape: the parts of ``ModelState``, ``ActivationBytes`` and ``Overheads``. For a
    profile ``activations`` are one part, and ``copies`` are gradients of earlier micro-batches,
    which DDP copies into its buckets only with the last one (all of them outside of buckets).

    Attributes:
        named: name and bytes of each part, in order. Parts of known shapes have an axis of
            pipeline stages before the candidates, or broadcast to it.
    """

    named: tuple[tuple[str, Floats], ...]

    def __getitem__(self, name: str) -> Floats:
        return dict(self.named)[name]

    @property
    def total(self) -> Floats:
        """Sum of all parts, on each stage if there are stages."""
        return broadcast_sum(sizes for _, sizes in self.named)

    @property
    def peak_C(self) -> Floats:
        """Memory of the fullest rank."""
        total = self.total
        return np.asarray(total.max(axis=0) if total.ndim > 1 else total, np.float64)

    def full(self) -> tuple[tuple[str, Floats], ...]:
        """Each part in the shape of the total."""
        shape = self.total.shape
        return tuple((name, np.broadcast_to(sizes, shape)) for name, sizes in self.named)


@dataclass(frozen=True, slots=True, eq=False)
class RankMemory:
    """The fullest stage: permanent memory, and memory used at different times.

    Attributes:
        again: values that a block recomputes in its backward pass.
        loss: logits and the loss's other values.
        temporary: temporary values of the update of all weights.
    """

    parts: MemoryParts
    again: Floats
    loss: Floats
    temporary: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """``loss`` is beyond the gradient of the logits."""

    kept: Floats
    again: Floats
    loss: Floats


def memory_parts(
    table: CandidateTable, workload: Workload, *, foreach: bool = False
) -> MemoryParts:
    """All parts for each row, of its fullest stage; NaN if no formula covers row or model.

    If ``foreach``, the optimizer updates all weights of the profiled model at once, as torch does
    on GPUs.
    """
    return rank_memory(table, workload, foreach=foreach).parts


def rank_memory(table: CandidateTable, workload: Workload, *, foreach: bool) -> RankMemory:
    """The parts for each row, and what is there at other times."""
    spec = profiled_model(workload)
    rank = ProfiledRank.of(spec, table)
    each = spec.parameter_bytes_each
    weights, trained = spec.parameters * each, spec.trainable_parameters * each
    states = workload.optimizer.states * trained
    software = Software(framework=Framework.FSDP, states=States.FP32)
    ours = replace(workload, software=software, states=None, gradients=None)
    scale = each / _STORED_BYTES

    def part_bytes(part: str, counts: LocalWeights) -> Floats:
        return scale * resting_bytes(part, counts, rank.at_rest, ours)

    known = np.where(covered_rows(table, spec) & (spec.grade in GRADES), 0.0, np.nan)
    logit_line = _logit_line(spec)
    micro_C = rank.columns.micro_batch_C
    logits = logit_line.at(micro_C) / rank.columns.context_C * rank.pieces.is_last_SC
    line = activation_line(
        spec, rest_bytes=weights + states, gradient_bytes=trained, logits=logit_line
    )
    held = _activations(table, workload, line, rank)
    loss = held.loss + logits
    activations = held.kept + np.maximum(held.again, loss) - logits
    gathered = _gathered_bytes(table, workload, rank, autocast_bytes=line.fixed)
    temporary = part_bytes("update", rank.trained) if foreach else np.zeros(len(table))
    update = np.maximum(0.0, temporary - activations - gathered - logits)
    found = (
        ("weights", part_bytes("weight", rank.local)),
        ("gradients", part_bytes("gradient", rank.trained)),
        ("copies", _copies(table, rank, each)),
        ("optimizer", part_bytes("state", rank.trained)),
        ("gathered", gathered),
        ("activations", activations),
        ("logits", logits),
        ("update", update),
    )
    parts = [(name, known + sizes) for name, sizes in found]
    return _of_fullest_stage(parts, (held.again, loss, temporary))


def _of_fullest_stage(parts: list[tuple[str, Floats]], beside: tuple[Floats, ...]) -> RankMemory:
    total = broadcast_sum(sizes for _, sizes in parts)
    fullest = np.nan_to_num(total).argmax(axis=0)[None]

    def at_fullest(sizes: Floats) -> Floats:
        whole = np.broadcast_to(sizes, total.shape)
        return np.asarray(np.take_along_axis(whole, fullest, axis=0)[0])

    again, loss, temporary = map(at_fullest, beside)
    named = tuple((name, at_fullest(sizes)) for name, sizes in parts)
    return RankMemory(MemoryParts(named=named), again, loss, temporary)


def _copies(table: CandidateTable, rank: ProfiledRank, value_bytes: float) -> Floats:
    """Whole gradients of earlier micro-batches besides gradients at rest.

    DDP copies them into its buckets, FSDP below stage 2 and under a pipeline shards them only with
    the last one.
    """
    stage_C, columns = table["zero_stage"], rank.columns
    is_ddp = is_plain(columns) & (stage_C < 2) & (columns.shards_C > 1)
    outside = table.numbers("gradient_as_bucket_view", 1.0) == 0.0
    several = table["accumulation"] > 1
    piped = (columns.pipeline_C > 1) & (columns.shards_C > 1) & (stage_C >= 2)
    held = (is_ddp & (several | outside)) | ((rank.is_late_C | piped) & several)
    return np.where(held, rank.trained.all_SC * value_bytes, 0.0)


def _activations(
    table: CandidateTable, workload: Workload, line: Line, rank: ProfiledRank
) -> _Held:
    """Bytes of the whole model's trace, shared as its pieces are.

    Bytes beyond the pieces are the loss's: recomputation does not reduce them.
    """
    spec, size = profiled_model(workload), workload.precision.value_bytes
    gpipe_C = _is_extra(table, "pipeline_schedule", "gpipe")
    waiting_SC = in_flight(rank.pieces.stage_SC, rank.columns)
    waiting_SC = np.where(gpipe_C, table["accumulation"], np.maximum(waiting_SC, 0.0))
    kept, again = held_activations(spec, rank.pieces, rank.columns, waiting_SC, size)
    fixed = 0.0 if size < spec.parameter_bytes_each else line.fixed
    grown_C = Line(fixed, line.each).at(rank.columns.micro_batch_C)
    pieces_C = (spec.activation_bytes_per_sample or 0.0) * rank.columns.micro_batch_C
    pieces_C = np.where(pieces_C > 0, np.minimum(pieces_C, grown_C), grown_C)
    beyond = (grown_C - pieces_C) / rank.columns.context_C * rank.pieces.is_last_SC
    repeats_C = ~table.is_value("recompute", Recompute.NONE)
    return _Held(
        kept=np.asarray(np.where(repeats_C, pieces_C, grown_C) * kept, np.float64),
        again=np.asarray(pieces_C * again, np.float64),
        loss=np.asarray(np.where(repeats_C, beyond, 0.0), np.float64),
    )


def _is_extra(table: CandidateTable, name: str, value: object) -> Bools:
    column = dict(table.columns).get(name)
    code = None if column is None else column.code_of(value)
    return np.asarray(table[name] == code if code is not None else np.zeros(len(table)), np.bool_)


def _gathered_bytes(
    table: CandidateTable, workload: Workload, rank: ProfiledRank, *, autocast_bytes: float
) -> Floats:
    """Weights in use beyond weights at rest, and gradients on their way to shards.

    DDP under autocast keeps 16-bit copies of the weights. FSDP gathers all of them up to stage 2,
    in stage 3 weights outside of blocks and two units of blocks; a unit's whole gradients and the
    fp32 buffer in which they are reduced come on top.
    """
    spec, size = profiled_model(workload), workload.precision.value_bytes
    whole, outside = rank.local.all_SC, rank.local.outside_SC
    copied = autocast_bytes / spec.parameters if spec.parameters and autocast_bytes else size
    casts = 0.0 if size >= spec.parameter_bytes_each else whole * copied
    unit = rank.local.layer_C * table.numbers("blocks_per_unit", 1.0)
    in_flight = np.maximum(_UNITS_IN_FLIGHT, 1 + table.numbers("forward_prefetch", 0.0))
    stage_C = np.where(rank.is_late_C, 2, rank.columns.zero_stage_C)
    return fsdp_gathered_bytes(
        replace(rank.columns, zero_stage_C=stage_C, pipeline_C=np.ones_like(stage_C)),
        whole=whole,
        units=outside + in_flight * unit,
        casts_bytes=casts,
        reduced_bytes=np.maximum(unit, outside) * (size + _REDUCED_BYTES),
        value_bytes=size,
    )


def _logit_line(spec: ModelSpec) -> Line:
    return Line(0.0, (spec.vocabulary_size or 0) * (spec.sequence_length or 0) * _LOGIT_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Overheads:
    """Bytes of one rank.

    Attributes:
        gathered_SC: weights in use beyond those at rest, and gradients before they are shared.
        communication_SC: buckets, pipeline buffers and NCCL's own.
        context_SC: of the device's driver and libraries.
        fragmentation_SC: memory that the allocator cannot use.
        update_SC: temporaries of the optimizer beyond the room that activations leave to them.
    """

    gathered_SC: Floats
    communication_SC: Floats
    context_SC: Floats
    fragmentation_SC: Floats
    update_SC: Floats


def overheads(
    counts: RankWeights,
    activations: ActivationBytes,
    columns: LayoutColumns,
    workload: Workload,
    stages: Stages,
) -> Overheads:
    """All overheads; quantized weights are unpacked one matrix at a time."""
    framework = workload.software.framework
    gathered_SC, bucket_SC = _sharding_buffers(counts, columns, workload)
    lost = COMPILED_FRAGMENTATION if workload.software.compiled else FRAGMENTATION
    if counts.quantized is not None:
        found = (gathered_SC, bucket_SC)
        gathered_SC = gathered_SC + _unpacked_bytes(counts, columns, workload, found, lost)
    is_deepspeed = framework is Framework.DEEPSPEED
    kept_SC = stages.waiting_SC * (framework is not Framework.MEGATRON) + is_deepspeed
    pipeline_SC = pipeline_buffer_bytes(columns, workload, kept_SC)
    ranks_C = columns.data_C * columns.context_C * columns.tensor_C * columns.pipeline_C
    coming_SC = activations.held_SC + gathered_SC
    update_SC = update_bytes(counts.trained, columns, workload)
    if update_SC.any():
        update_SC = np.maximum(0.0, update_SC - coming_SC)
    return Overheads(
        gathered_SC=gathered_SC,
        communication_SC=pipeline_SC + bucket_SC + np.where(ranks_C > 1, NCCL_BYTES, 0.0),
        context_SC=np.full_like(gathered_SC, CONTEXT_BYTES),
        fragmentation_SC=np.asarray(lost * coming_SC),
        update_SC=update_SC,
    )


def _unpacked_bytes(
    counts: RankWeights,
    columns: LayoutColumns,
    workload: Workload,
    found: tuple[Floats, Floats],
    lost: float,
) -> Floats:
    """Bytes of one quantized matrix in 16 bits, but no more than the format saves a rank.

    ``found``: gathered bytes and buckets of the quantized weights; ``lost``: fragmentation.
    """
    plain, wide = replace(counts, quantized=None), replace(workload, weight_format=None)

    def need_bytes(one: RankWeights, work: Workload, buffers: tuple[Floats, Floats]) -> Floats:
        resting_SC = model_state(one, columns, work).weights_SC
        return np.asarray(resting_SC + (1.0 + lost) * buffers[0] + buffers[1])

    before_SC = need_bytes(plain, wide, _sharding_buffers(plain, columns, wide))
    saved_SC = np.maximum(0.0, before_SC - need_bytes(counts, workload, found)) / (1.0 + lost)
    size, matrix = workload.precision.value_bytes, largest_matrix(workload.architecture)
    return np.asarray(np.minimum(matrix / columns.tensor_C * size, saved_SC))


def _sharding_buffers(
    counts: RankWeights, columns: LayoutColumns, workload: Workload
) -> tuple[Floats, Floats]:
    """Whole weights and gradients in use, and buckets, at each candidate's ZeRO stage.

    If the buffers of a stage would take more than it saves, a rank needs as much as at the stage
    before: units and buckets are then as large as the whole model, which is not sharded at all.
    """
    gathered: list[Floats] = []
    buckets: list[Floats] = []
    least: Floats | float = np.inf
    for stage in range(int(columns.zero_stage_C.max(initial=0)) + 1):
        one_stage = replace(columns, zero_stage_C=np.full((1,) * columns.data_C.ndim, stage))
        state = model_state(counts, one_stage, workload)
        resting_SC = state.weights_SC + state.gradients_SC + state.optimizer_SC
        gathered_SC = _bytes_in_use(counts, one_stage, workload)
        bucket_SC = bucket_bytes(counts.trained, one_stage, workload)
        in_use_SC = (1.0 + FRAGMENTATION) * gathered_SC
        needed_SC = resting_SC + bucket_SC + in_use_SC
        least = np.minimum(least, needed_SC)
        excess_SC = needed_SC - least
        gathered.append(np.maximum(0.0, in_use_SC - excess_SC) / (1.0 + FRAGMENTATION))
        buckets.append(bucket_SC - np.maximum(0.0, excess_SC - in_use_SC))
    if len(gathered) == 1:
        return gathered[0], buckets[0]
    return np.choose(columns.zero_stage_C, gathered), np.choose(columns.zero_stage_C, buckets)


def _bytes_in_use(counts: RankWeights, columns: LayoutColumns, workload: Workload) -> Floats:
    """Weights cast or gathered for use, and gradients before they are shared.

    FSDP gathers two layers and all outside of layers, and reduces a layer's gradients in fp32;
    with a pipeline gradients wait in fp32 for the last micro-batch. Autocast copies trained
    weights. Megatron-FSDP has the same units (megatron/core/distributed/fsdp), with weights whole
    up to stage 2. DeepSpeed gathers up to ``stage3_max_live_parameters``.
    """
    local, trained = counts.local, counts.trained
    size, gathered = workload.precision.value_bytes, counts.bytes_each(workload)
    framework, stage_C = workload.software.framework, columns.zero_stage_C
    if framework is Framework.DEEPSPEED:
        return np.asarray(np.minimum(_LIVE_VALUES, local.all_SC) * gathered * (stage_C == 3))
    units_SC = local.outside_SC + _UNITS_IN_FLIGHT * local.layer_C
    unit_SC = np.maximum(trained.layer_C, trained.outside_SC / 2)
    if framework is Framework.MEGATRON:
        weights_SC = np.minimum(units_SC, local.all_SC) * gathered * (stage_C == 3)
        reduced_SC = unit_SC * gradient_bytes(workload) * (stage_C >= 2)
        return np.asarray(weights_SC + reduced_SC)
    is_cast = size == 2 and state_format(workload) is States.FP32 and not workload.trains_adapters
    reduced_SC = unit_SC * (size + _REDUCED_BYTES)
    return fsdp_gathered_bytes(
        columns,
        whole=np.where(stage_C == 3, local.all_SC, trained.all_SC),
        units=units_SC,
        casts_bytes=trained.all_SC * (size if is_cast else 0),
        reduced_bytes=np.where(
            columns.pipeline_C > 1, trained.all_SC * _REDUCED_BYTES, reduced_SC
        ),
        value_bytes=gathered,
    )


def bucket_bytes(trained: LocalWeights, columns: LayoutColumns, workload: Workload) -> Floats:
    """DeepSpeed's buckets, or DDP's if passing gradients are copied into buckets; else 0.

    DeepSpeed: buckets of gradients in the format of their sum and, if an optimizer is sharded, of
    new weights, which torch's ``all_gather`` of a list copies once more.
    """
    if passing := workload.software.passing_gradient_bytes:
        return np.asarray(passing * trained.all_SC * (columns.shards_C > 1))
    if workload.software.framework is not Framework.DEEPSPEED:
        return np.zeros(())
    is_fp16 = workload.precision is Precision.FP16
    reduced_SC = np.minimum(_BUCKET_VALUES, trained.all_SC) * (2.0 if is_fp16 else 4.0)
    limit = _BUCKET_VALUES if is_fp16 else _BF16_GATHER_VALUES
    gathered_SC = np.minimum(limit, trained.all_SC) * workload.precision.value_bytes
    return np.asarray(reduced_SC + gathered_SC * np.isin(columns.zero_stage_C, (1, 2)))


def pipeline_buffer_bytes(columns: LayoutColumns, workload: Workload, kept_SC: Floats) -> Floats:
    """Hidden states being sent and received, one each way, and those kept after sending."""
    tokens_C = columns.micro_batch_C * workload.sequence_length / columns.context_C
    tokens_C = tokens_C / np.where(columns.sequence_parallel_C, columns.tensor_C, 1)
    hidden_bytes = workload.architecture.hidden * workload.precision.value_bytes
    one_C = (columns.pipeline_C > 1) * tokens_C * hidden_bytes
    return np.asarray(one_C * (2 + kept_SC))


def memory_bytes(
    columns: LayoutColumns,
    workload: Workload,
    stages: Ints | None = None,
    given_SC: Ints | None = None,
) -> MemoryParts:
    """All parts for each candidate.

    Args:
        columns: the layouts; shapes that broadcast.
        workload: the training.
        stages: stages of the pipeline as rows, broadcast against the candidates; None takes those
            few of which one is the fullest.
        given_SC: layers of each of ``stages``, which are then all of them; None: they are even.
    """
    columns, weights = columns.in_sequences(workload), model_weights(workload.architecture)
    leading = weights.encoder_layers + weights.dense_layers
    layers = leading + weights.repeated_layers
    if stages is None:
        stages = stages_of_peak(columns, leading, layers)
    schedule = workload.software.schedule
    looked_at = Stages.of(stages, columns, layers, given_SC, schedule)
    counts = rank_weights_of(weights, workload, columns, looked_at)
    activations = activation_bytes(workload, weights, columns, looked_at)
    state = model_state(counts, columns, workload)
    if schedule.copies > 1:
        state = state.with_copies(columns, schedule.copies)
    coming_SC, software = activations.held_SC, workload.software
    if software.framework is Framework.FSDP and not workload.updates_in_backward:
        last_SC = working_bytes(workload, weights, columns, looked_at)
        last_SC = np.maximum(last_SC, update_bytes(counts.trained, columns, workload))
        state = state.with_late_gradients(columns, coming_SC - last_SC)
    if passing := software.passing_gradient_bytes:
        freed_SC = coming_SC / np.maximum(1.0, looked_at.waiting_SC)
        passing_SC = passing * counts.trained.all_SC * (columns.shards_C == 1)
        state = state.with_passing_gradients(passing_SC, freed_SC)
    groups = (state, activations, overheads(counts, activations, columns, workload, looked_at))
    named = [
        (part.name.removesuffix("_SC"), getattr(group, part.name))
        for group in groups
        for part in fields(group)
    ]
    beside = [
        (name, np.full_like(counts.local.outside_SC, size)) for name, size in workload.beside
    ]
    return MemoryParts(named=(*named, *beside))


def peak_bytes(columns: LayoutColumns, workload: Workload) -> Floats:
    """Bytes that the fullest rank of each candidate needs."""
    return memory_bytes(columns, workload).peak_C
