"""Sources of the seconds of kernels: an accelerator's roofline, or a profile of the model.

Exchanges of a step and schedules over micro-batches are in :mod:`.step`.
Shapes: U = distinct inner layouts, C = candidates, O = operations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

import numpy as np

from autoconf_launch.core import (
    MicroBatchTiming,
    ModelSpec,
    OperationCost,
    Optimizer,
    Recompute,
    States,
    Workload,
)

from ..layers import (
    all_layers,
    attends,
    attention_kinds,
    embedding_weights,
    expert_layers,
    expert_weights,
    layer_bodies,
    seen_keys,
    token_body,
)
from ..space import ABSENT, RECOMPUTE_LAYERS, CandidateTable, Floats
from .hardware import Machine, Network, Physics, peak_flops_per_s, ring_share
from .inner import InnerTimes, inner_times, joining_s, rank_share, weight_share
from .layer import Kernels
from .layout_columns import (
    FULL,
    RECOMPUTE_CODES,
    InnerLayouts,
    LayoutColumns,
    front_workload,
    stacks,
)
from .model_state import state_format, trained_share
from .software import UPDATE_PASSES, is_compiled
from .weights import Line, fit_line, parameters

_WORK = {Recompute.NONE: 1.0, Recompute.SELECTIVE: 1.05, Recompute.FULL: 4 / 3}
"""Work of forward and backward over that without recomputation: a full one repeats the forward
pass, a third of it (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost")."""
_WORK_OF_CODE = np.array([_WORK[kind] for kind in RECOMPUTE_CODES])
_WEIGHT_TRAFFIC = 4 / 7
"""Values that a micro-batch of any size moves for each weight, over the values of Adam's update:
it reads the weight twice, and reads and writes its gradient."""
_PRODUCTS_OF_LAYER = 15
_TRAFFIC_OF_ACTIVATIONS = 8.0
"""Products of a layer's forward and backward pass, and bytes that its other operations move over
those that it keeps: as traced of a GPT in bf16 by autocast (14 and 8.4)."""
_BACKWARD_AND_FORWARD = 3.0
_OPERATIONS_OF_LAYER = 130
"""Operations of a layer's forward and backward pass in a trace of transformers' Llama; the host's
time for a layer is spread over them."""
_UPDATE_BYTES = 10.0
"""Least traffic of one update of a weight: weight and gradient read and weight written in 16 bits,
and two 8-bit moments read and written."""
_UNFILLED = 0.5
"""Part of 1F1B's bubble that stays if backward passes are cut in two (Qi et al. 2023,
arXiv:2401.10241, the schedule with the memory of 1F1B leaves a third of it or more)."""
_GRADIENT_BYTES = 2
"""Least size of a gradient on its way between replicas."""


class KernelTimes(Protocol):
    """Seconds of one rank's kernels for one model in one precision."""

    @property
    def layers(self) -> int:
        """Equal pieces of the model that a micro-batch passes one after the other."""

    @property
    def micro_batch_s(self) -> float:
        """Host time of a micro-batch of any size."""

    @property
    def step_s(self) -> float:
        """Host time of an optimizer step of any size."""

    def inner_times(self, inner: InnerLayouts) -> InnerTimes:
        """Times of a micro-batch in a single layer, for each distinct inner layout."""

    def update_s(self, layouts: LayoutColumns) -> Floats:
        """The optimizer's step on all weights of a rank, before ZeRO shares them."""


_TRAFFIC_VALUE_BYTES = 4.0
"""Size of the weights that ``Physics.optimizer_bytes`` was fitted on."""
_HOST_STATE_BYTES = 28.0
"""Read and written for each weight by Adam on the host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline:
    """A known model on a known accelerator by formula."""

    workload: Workload
    machine: Machine

    @property
    def layers(self) -> int:
        return all_layers(self.workload.architecture)

    @property
    def micro_batch_s(self) -> float:
        compiled = is_compiled(self.workload.software)
        return self.machine.physics.micro_batch_s * (0.5 if compiled else 1.0)

    @property
    def step_s(self) -> float:
        return self.machine.physics.step_s

    def inner_times(self, inner: InnerLayouts) -> InnerTimes:
        return inner_times(self.workload, inner, self.machine)

    def update_s(self, layouts: LayoutColumns) -> Floats:
        """The optimizer reads and writes its states once, on the host if they are offloaded.

        Source of the bytes: Rajbhandari et al. 2020, "ZeRO", section 3.1.
        """
        machine, physics = self.machine, self.machine.physics
        weights = updated_weights(layouts, self.workload) * trained_share(self.workload)
        memory = machine.accelerator.memory_bytes_per_s * physics.memory_efficiency
        on_device = weights * update_traffic_bytes(self.workload, physics) / memory
        away_C = layouts.are_states_away_C
        if not away_C.any():
            return np.asarray(on_device)
        per_rank = physics.host_bytes_per_s / machine.gpus_per_node
        each_s = _HOST_STATE_BYTES / per_rank + 6.0 / physics.host_link_bytes_per_s
        return np.asarray(np.where(away_C, weights * each_s, on_device))


def update_traffic_bytes(workload: Workload, physics: Physics) -> float:
    """Bytes that an update moves for each weight by the training's code."""
    passes = UPDATE_PASSES if workload.software.plain_torch else 1.0
    size = 2.0 if state_format(workload) is States.BF16 else _TRAFFIC_VALUE_BYTES
    return passes * optimizer_traffic_bytes(workload.optimizer, physics, size)


def optimizer_traffic_bytes(
    optimizer: Optimizer, physics: Physics, size: float = _TRAFFIC_VALUE_BYTES
) -> float:
    """Bytes that an update moves for each weight, from Adam's, which were measured.

    It reads and writes each value of its state, and the weight; it reads the gradient. Values of
    16 or 32 bits have ``size`` bytes.
    """
    values = 2.0 * (size + optimizer.moment_bytes(size)) + size
    return physics.optimizer_bytes * values / (7.0 * _TRAFFIC_VALUE_BYTES)


def paged_bytes(layouts: LayoutColumns, workload: Workload) -> Floats:
    """A rank's paged optimizer values; the driver may leave some of them on the GPU."""
    has_half = state_format(workload) in (States.BF16, States.BF16_MOMENTS)
    each = workload.optimizer.moment_bytes(2.0 if has_half else 4.0) * trained_share(workload)
    return np.asarray(rank_weights(layouts, workload) * each / layouts.optimizer_shards_C)


def straggling(layouts: LayoutColumns, machine: Machine) -> Floats:
    """Part of a step in which nodes wait for the slowest of them (see ``Physics``)."""
    nodes = np.maximum(layouts.world_C / machine.gpus_per_node, 1.0)
    return np.asarray(machine.physics.straggling * np.log2(nodes))


def rank_weights(layouts: LayoutColumns, workload: Workload) -> Floats:
    """Weights of the fullest rank before data-parallel sharding."""
    model = workload.architecture
    body = sum(one / layouts.pipeline_C for one in layer_bodies(model))
    alone = 1 if model.tied_embeddings else 2
    ends = np.where(layouts.pipeline_C > 1, 1, alone) * embedding_weights(model)
    ends = ends + (0 if model.front is None else parameters(model.front))
    return np.asarray((body + ends) / layouts.tensor_C + routed_weights(layouts, workload))


def routed_weights(layouts: LayoutColumns, workload: Workload) -> Floats:
    """Weights of a rank's experts, which only ranks with the same experts share."""
    model = workload.architecture
    if model.experts is None:
        return np.zeros(())
    routed = expert_layers(model) * expert_weights(model, model.experts) / layouts.pipeline_C
    return np.asarray(routed / layouts.expert_C / layouts.tensor_C)


def updated_weights(layouts: LayoutColumns, workload: Workload) -> Floats:
    """Weights that a rank's optimizer updates, times the ranks that share dense weights.

    Fewer ranks share experts.
    """
    weights = rank_weights(layouts, workload)
    if workload.architecture.experts is None:
        return weights
    shards = np.where(layouts.zero_stage_C >= 1, layouts.expert_shards_C, 1)
    more = layouts.optimizer_shards_C / shards - 1.0
    return np.asarray(weights + routed_weights(layouts, workload) * more)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledLines:
    """A model whose micro-batches were timed whole; NaN if none was.

    A line through the timings gives the cost of each sample at the rate that large micro-batches
    reach, and the fixed cost of each micro-batch: the host's work, and the traffic of weights.
    Ranks that share these take their part, and join it over the ``network``.
    """

    spec: ModelSpec
    value_bytes: float = 4.0
    network: Network | None = None
    layers: int = 1
    micro_batch_s: float = 0.0
    step_s: float = 0.0

    def inner_times(self, inner: InnerLayouts) -> InnerTimes:
        points = [(t.micro_batch, t.forward_backward_s) for t in measured_timings(self.spec)]
        line = fit_line(points) if points else Line(math.nan, math.nan)
        samples_s_U = Line(0.0, line.each).at(inner.micro_U) * rank_share(self.spec, inner)
        exposed_s_U = np.zeros(len(inner.micro_U))
        if self.network is not None:
            exposed_s_U = joining_s(self.spec, inner, self.network, self.value_bytes)
        traffic_s = np.minimum(line.fixed, _WEIGHT_TRAFFIC * (self.spec.optimizer_step_s or 0.0))
        launch_s_U = line.fixed - traffic_s * (1.0 - weight_share(self.spec, inner))
        return replace(whole_model_times(inner, samples_s_U, launch_s_U), exposed_s_U=exposed_s_U)

    def update_s(self, layouts: LayoutColumns) -> Floats:
        return np.asarray(self.spec.optimizer_step_s or 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedOperations:
    """A model whose operations were listed, not run; NaN if there are none.

    Attributes:
        workload: the traced model, its optimizer and precision.
        operations: operations of forward and backward of ``micro_batch`` samples.
    """

    workload: Workload
    machine: Machine
    operations: tuple[OperationCost, ...]
    micro_batch: int
    layers: int = 1
    micro_batch_s: float = 0.0
    step_s: float = 0.0

    def inner_times(self, inner: InnerLayouts) -> InnerTimes:
        each_U = rank_share(profiled_model(self.workload), inner)
        shares = (inner.micro_U / self.micro_batch * each_U).tolist()
        kernels = self._kernels()
        seconds = [forward_backward_s(self.operations, kernels, share=x) for x in shares]
        return whole_model_times(inner, np.array(seconds), np.zeros(len(seconds)))

    def update_s(self, layouts: LayoutColumns) -> Floats:
        spec, traffic = profiled_model(self.workload), optimizer_traffic_bytes
        values = spec.trainable_parameters * spec.parameter_bytes_each / _TRAFFIC_VALUE_BYTES
        moved = values * traffic(self.workload.optimizer, self.machine.physics)
        return np.asarray(moved / self._kernels().bytes_per_s)

    def _kernels(self) -> Kernels:
        return Kernels(
            accelerator=self.machine.accelerator,
            physics=self.machine.physics,
            precision=self.workload.precision,
        )


def block_operations(spec: ModelSpec) -> tuple[OperationCost, ...]:
    """Operations of one sample's forward and backward pass, as the FLOPs of blocks imply them.

    Every block counts as a transformer's layer does, with products of equal size.
    """
    others = _OPERATIONS_OF_LAYER - _PRODUCTS_OF_LAYER
    flops = _BACKWARD_AND_FORWARD / _PRODUCTS_OF_LAYER
    traffic = _TRAFFIC_OF_ACTIVATIONS / others
    return tuple(
        cost
        for block in spec.blocks
        if block.flops or block.activation_bytes
        for cost in (
            OperationCost(
                flops=flops * block.flops, moved_bytes=0, count=_PRODUCTS_OF_LAYER * block.count
            ),
            OperationCost(
                flops=0.0,
                moved_bytes=int(traffic * block.activation_bytes),
                count=others * block.count,
            ),
        )
    )


def whole_model_times(inner: InnerLayouts, samples_s_U: Floats, launch_s_U: Floats) -> InnerTimes:
    """Times of a model that is one layer, without joins within it."""
    zero_U = np.zeros(len(inner.micro_U))
    again = _WORK_OF_CODE[inner.recompute_U] - 1.0
    return InnerTimes(
        ideal_s_U=samples_s_U,
        busy_s_U=samples_s_U,
        again_s_U=(samples_s_U + launch_s_U) * again,
        exposed_s_U=zero_U,
        launch_s_U=launch_s_U,
        first_s_U=zero_U,
        last_s_U=zero_U,
        ends_ideal_s_U=zero_U,
    )


def forward_backward_s(
    operations: Sequence[OperationCost], kernels: Kernels, *, share: float
) -> float:
    """Seconds of one micro-batch; host and device run side by side.

    Only the FLOPs of a matrix product are known here, so it counts as a product of equal sides, or
    for as long as its bytes need, whichever is longer.

    ``operations``: operations of forward and backward of the traced micro-batch.
    """
    if not operations:
        return float("nan")
    flops_O = np.array([one.flops for one in operations]) * share
    moved_O = np.array([float(one.moved_bytes) for one in operations]) * share
    count_O = np.array([float(one.count) for one in operations])
    side_O = np.cbrt(np.maximum(flops_O, 2.0) / 2.0)
    product_s_O = np.where(flops_O > 0, kernels.product_s(side_O, side_O, side_O), 0.0)
    device_s = float(count_O @ np.maximum(product_s_O, kernels.traffic_s(moved_O)))
    physics = kernels.physics
    each_s = (physics.layer_forward_s + physics.layer_backward_s) / _OPERATIONS_OF_LAYER
    host_s = float(count_O.sum()) * each_s
    power = physics.host_sharpness
    return float((device_s**power + host_s**power) ** (1.0 / power))


def frozen_passes_s(layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
    """Seconds of a step in which each rank runs frozen models on its micro-batches.

    Each rank keeps these models whole, so that ranks of one model copy share only tokens.
    """
    if (frozen := workload.frozen_passes) is None:
        return np.zeros(())
    kernels = Kernels(
        accelerator=machine.accelerator, physics=machine.physics, precision=workload.precision
    )
    tokens_C = layouts.micro_batch_C * (workload.sequence_length / layouts.context_C)
    share_U, which = np.unique(tokens_C / frozen.tokens, return_inverse=True)
    once_s_U = [forward_backward_s(frozen.operations, kernels, share=x) for x in share_U.tolist()]
    once_s_C: Floats = np.array(once_s_U)[which].reshape(tokens_C.shape)
    return once_s_C * layouts.accumulation_C


def least_step_s(layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
    """Seconds below which no step of these layouts can come.

    Every rank must do its share of the matrix products at the datasheet's rate and update its
    weights at the memory's, or send its share of the gradients at the full rate of links and
    cards, all of it perfectly overlapped (Williams et al. 2009, "Roofline"). Pipelines add what no
    schedule fills.
    """
    compute = _compute_s(layouts, workload, machine)
    update = _UPDATE_BYTES * updated_weights(layouts, workload) * trained_share(workload)
    update = update / layouts.optimizer_shards_C
    update_s = np.where(layouts.offload_C, 0.0, update / machine.accelerator.memory_bytes_per_s)
    return np.asarray(np.maximum(compute + update_s, _network_s(layouts, workload, machine)))


def forward_flops_per_token(workload: Workload) -> float:
    """Products of one token's forward pass; attention looks back over half the sequence.

    The products of a tower in front are shared out over the tokens.
    """
    model = workload.architecture
    scores = 0.0
    for share, one in attention_kinds(model):
        if attends(one):
            keys = seen_keys(one, workload.sequence_length)
            seen = keys / 2 if model.causal else keys
            seen += one.cross_tokens
            scores += 4.0 * share * all_layers(model) * seen * one.heads * one.head
    if model.front is not None:
        tower = front_workload(workload)
        images = workload.images * tower.sequence_length / workload.sequence_length
        scores += images * forward_flops_per_token(tower)
    return 2.0 * (token_body(model) + model.vocabulary * model.hidden) + scores


def _compute_s(layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
    """Products at the datasheet's rate; recomputation of only some layers is not counted."""
    rate = peak_flops_per_s(machine.accelerator, workload.precision)
    again = (layouts.recompute_C == FULL) & (layouts.recompute_layers_C < 0)
    passes = 2.0 + trained_share(workload) + again
    samples = layouts.micro_batch_C * layouts.accumulation_C
    inside = layouts.tensor_C * layouts.context_C * layouts.pipeline_C
    head = 2.0 * workload.architecture.vocabulary * workload.architecture.hidden
    body = sum(
        one.share * one.workload.sequence_length * (forward_flops_per_token(one.workload) - head)
        for one in stacks(workload)
    )
    logits = workload.logit_tokens * head
    flops = samples * (passes * body + (2.0 + trained_share(workload)) * logits) / inside
    count = np.maximum(layouts.accumulation_C, 1.0)
    bubble = (layouts.pipeline_C - 1) / (layouts.virtual_C * count)
    return np.asarray(flops / rate * (1.0 + _UNFILLED * bubble))


def _network_s(layouts: LayoutColumns, workload: Workload, machine: Machine) -> Floats:
    """Each replica's gradients leave a rank once and come back once, over link or cards."""
    routed = routed_weights(layouts, workload)
    weights = rank_weights(layouts, workload) - routed - embedding_weights(workload.architecture)
    sent = ring_share(layouts.shards_C) * np.maximum(weights, 0.0)
    sent = sent + ring_share(layouts.expert_shards_C) * routed
    moved = sent * trained_share(workload) * _GRADIENT_BYTES
    cards = machine.node_network_bytes_per_s / machine.gpus_per_node
    fastest = max(machine.link.bytes_per_s, cards)
    return np.asarray(2.0 * moved / fastest)


@cache
def _calmer() -> float:
    """Time that one launch in fifty stays below, over another launch minutes before."""
    from ..measurement import PRIOR, t_quantile  # a quarter of a second that plan does not pay

    return math.exp(-t_quantile(0.98, PRIOR.between_freedom) * math.sqrt(2.0) * PRIOR.between)


def least_profiled_step_s(table: CandidateTable, spec: ModelSpec) -> Floats:
    """Lower bound of a step from the profile: its samples only, no launch, no exchange.

    Ranks of one model copy share a sample perfectly.

    A sample costs no less than a larger micro-batch took at the fastest beyond a smaller one, less
    the slowdown without cause of a launch as far away in time. NaN if nothing was timed.
    """
    timings = sorted(measured_timings(spec), key=lambda timing: timing.micro_batch)
    if not timings:
        return np.full(len(table), np.nan)
    samples = table["accumulation"] * table["micro_batch"]
    some = table[RECOMPUTE_LAYERS] != ABSENT
    work = np.where(some, 1.0, _WORK_OF_CODE[table["recompute"]])
    ranks = table["tensor_parallel"] * table["pipeline_parallel"] * table["context_parallel"]
    return np.asarray(samples / ranks * work * _least_sample_s(timings) * _calmer())


def _least_sample_s(timings: Sequence[MicroBatchTiming]) -> float:
    """Least seconds of a sample; the timings are in the order of their micro-batches."""
    small, large = timings[0], timings[-1]
    fastest_s = large.fastest_s or large.forward_backward_s
    if small is large:
        return fastest_s / large.micro_batch
    beyond_s = fastest_s - small.forward_backward_s
    line = fit_line([(t.micro_batch, t.forward_backward_s) for t in timings])
    return max(0.0, min(line.each, beyond_s / (large.micro_batch - small.micro_batch)))


def profiled_model(workload: Workload) -> ModelSpec:
    """The model as a profile run or a trace has it.

    Raises:
        TypeError: it was not run.
    """
    if not isinstance(workload.model, ModelSpec):
        raise TypeError("this model was neither run nor traced")
    return workload.model


def measured_timings(spec: ModelSpec) -> tuple[MicroBatchTiming, ...]:
    """Timings that have seconds."""
    return tuple(timing for timing in spec.timings if timing.forward_backward_s)
