"""The answer of ``fit`` as a value, stage by stage if nodes differ."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

import numpy as np

from autoconf_launch.autotuner.cost import (
    ALL_LAYERS,
    FormatGain,
    LayoutColumns,
    MemoryParts,
    NodeLimits,
    Proposal,
    Remedy,
    TrainerChoice,
    Verdict,
    broken_rule,
    can_split_sequence,
    estimate,
    memory_bytes,
    parameters,
    remedies,
    verdict,
)
from autoconf_launch.autotuner.layers import (
    all_layers,
)
from autoconf_launch.autotuner.mixed import given_stages
from autoconf_launch.autotuner.planner import (
    PLAN_RULES,
    Limits,
    Question,
    StagePlan,
    StepBand,
    Training,
    plan,
    schedule_rules,
    tightest_stage,
    time_band,
)
from autoconf_launch.autotuner.space import PredictionTable
from autoconf_launch.core import (
    ClusterSpec,
    ConfigError,
    Degrees,
    Layout,
    Offload,
    Software,
    Workload,
    even_pipeline_split,
)
from autoconf_launch.tuning_spaces import known_accelerator

from ..machine import is_cpu
from .clusters import (
    check_workload,
    has_rates,
    larger_clusters,
    layout_format_gains,
    machine_of,
    one_node,
    proposal_step_s,
)
from .parts import machine_kinds
from .requests import FitRequest, TrainingRequest
from .trainers import (
    RowState,
    default_zero,
    has_sequence,
    layout_state,
    rules_of,
    trainer_of_layout,
)

_LEAST_BYTES = 0.5
"""No format stores a weight in less; if even these do not fit, no layout needs a look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFits:
    """Memory of each pipeline stage on its own GPUs.

    Attributes:
        memory: bytes of each part with the largest micro-batch.
        stages: the first one first.
        step_s: duration of a step, in seconds.
    """

    memory: MemoryParts
    stages: tuple[StagePlan, ...]
    step_s: float

    @property
    def tightest(self) -> StagePlan:
        """The stage with the smallest share of memory left."""
        return tightest_stage(self.stages)

    @property
    def verdict(self) -> Verdict:
        return verdict(self.tightest.peak_bytes, self.tightest.limit_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostMemory:
    """Host memory that a node needs and has; ``limit_bytes`` is None if unknown."""

    needed_bytes: float
    limit_bytes: float | None

    @property
    def is_short(self) -> bool:
        return self.limit_bytes is not None and self.needed_bytes > self.limit_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class FitAnswer:
    """The answer that all forms of the report show.

    Attributes:
        memory: parts of the memory, a row for each stage.
        limit_bytes: memory of a GPU; of the tightest stage if stages have their own GPUs.
        verdict: no, too, if ``host`` is short.
        step_s: duration of a step if memory had no limit, in seconds; None without a time model.
        state: the layout's runner.
        smallest: the first larger cluster of such nodes on which a layout without offload fits,
            if nothing like this layout fits.
        by_stages: each stage on its own GPUs, if nodes differ or the layout has a placement or
            a split.
        gains: formats in which products that run in fp32 would be faster.
        script: name of the script whose model is known by its pieces.
        bands: error bands of the step on GPUs that the cluster file describes.
    """

    cluster: ClusterSpec
    trainer: TrainerChoice
    asked: Proposal
    memory: MemoryParts
    limit_bytes: int
    verdict: Verdict
    step_s: float | None
    state: RowState
    remedies: tuple[Remedy, ...]
    host: HostMemory
    smallest: ClusterSpec | None = None
    by_stages: StageFits | None = None
    gains: tuple[FormatGain, ...] = ()
    script: str = ""
    bands: tuple[StepBand, ...] = ()


def fit_answer(request: FitRequest) -> FitAnswer:
    """Predict, and look for remedies.

    Raises:
        ConfigError: an impossible layout, or a precision that a GPU does not compute in.
    """
    training = request.training
    check_workload(training.workload, training.cluster)
    layers = request.recompute_layers
    _check_schedule(training.workload, _layout(request))
    training = trainer_of_layout(
        training, lambda one: _layout(replace(request, training=one)), layers
    )
    request = replace(request, training=training)
    workload, cluster, limit_bytes = training.workload, training.cluster, training.limit_bytes
    asked = Proposal(layout=_layout(request), workload=workload, recompute_layers=layers)
    columns = LayoutColumns.from_layouts([asked.layout], [asked.recompute_layers])
    if why := broken_rule(asked.layout, columns, workload.architecture, workload.sequence_length):
        raise ConfigError(f"{why}.")
    predicted, seconds = estimate(columns, workload, cluster), partial(proposal_step_s, cluster)
    host, stages = _host_memory(predicted, training), None
    if is_by_stages(request):
        stages = fit_stages(request, asked.layout)
        memory, answer = stages.memory, stages.verdict
        step_s: float | None = stages.step_s
        limit_bytes = int(stages.tightest.limit_bytes)
    else:
        memory, step_s = MemoryParts(named=predicted.stage_parts), seconds([asked])[0]
        answer = verdict(float(predicted.peak_bytes_C[0]), limit_bytes)
    answer = Verdict.NO if host.is_short else answer
    found: tuple[Remedy, ...] = ()
    looks_further = answer is Verdict.NO and stages is None  # plan ranks what fits stage by stage
    if looks_further:
        limits = NodeLimits(
            device_bytes=limit_bytes,
            gpus=min(len(node.devices) for node in cluster.nodes),
            host_bytes=cluster.least_host_memory_bytes,
        )
        rules, splits = rules_of(training), has_sequence(training)
        has = training.abilities
        found = remedies(asked, limits, seconds, rules, splits=splits, has=has)
    return FitAnswer(
        cluster=cluster,
        trainer=training.trainer,
        asked=asked,
        memory=memory,
        limit_bytes=limit_bytes,
        verdict=answer,
        step_s=step_s,
        state=layout_state(training, asked.layout, layers),
        remedies=found,
        host=host,
        smallest=smallest_cluster(training) if looks_further and not found else None,
        by_stages=stages,
        gains=layout_format_gains(training, asked) if stages is None else (),
        bands=_described_bands(cluster, asked) if step_s is not None else (),
    )


def _check_schedule(workload: Workload, layout: Layout) -> None:
    """Check that the pipeline's schedule can run a layout."""
    rules, columns = (
        schedule_rules(workload.software.schedule),
        LayoutColumns.from_layouts([layout]),
    )
    model, sequence = workload.architecture, workload.sequence_length
    schedule = workload.software.schedule.name
    if schedule != Software().schedule.name and layout.pipeline_parallel == 1:
        raise ConfigError(
            f"--schedule {schedule} orders the micro-batches of a pipeline, but --pp is 1; give "
            "--pp, or omit --schedule."
        )
    if why := broken_rule(layout, columns, model, sequence, rules):
        raise ConfigError(f"{why}.")


def _described_bands(cluster: ClusterSpec, asked: Proposal) -> tuple[StepBand, ...]:
    """Error bands of a step on each kind of GPU that only the cluster's file describes."""
    gpus = [
        machine_of(one_node(kind.node)).accelerator
        for kind in cluster.kinds
        if kind.node.gpu_rates is not None
    ]
    return tuple(
        time_band(asked.workload, asked.layout, gpu.name, assumed=gpu.assumed)
        for gpu in gpus
        if not known_accelerator(gpu.name)
    )


def _host_memory(predicted: PredictionTable, training: TrainingRequest) -> HostMemory:
    needed_C = predicted.host_bytes_C
    return HostMemory(
        needed_bytes=0.0 if needed_C is None else float(needed_C[0]),
        limit_bytes=training.cluster.least_host_memory_bytes,
    )


def _layout(request: FitRequest) -> Layout:
    """Layout whose data parallelism and accumulation follow from cluster and global batch."""
    training, layout = request.training, request.layout
    world = len(training.cluster.devices if layout.placement is None else layout.placement)
    tensor, pipeline, context, _ = layout.mesh
    others = tensor * pipeline * context
    if world % others:
        valid = " ".join(str(n) for n in range(1, min(world, 4096) + 1) if world % n == 0)
        raise ConfigError(
            f"tp={tensor} x pp={pipeline} x cp={context} = {others} does "
            f"not divide {world} GPUs; valid products: {valid}."
        )
    data = world // others
    if (samples := layout.micro_batch_split) and len(samples) != data:
        raise ConfigError(
            f"--micro-batch-split has {len(samples)} micro-batches, but there are {data} "
            "data-parallel ranks; give one for each."
        )
    once = data * layout.micro_batch
    if training.workload.global_batch % once:
        raise ConfigError(
            f"--global-batch {training.workload.global_batch} is not a multiple of micro-batch "
            f"{layout.micro_batch} x {data} data-parallel ranks = {once}; "
            f"valid: {once}, {2 * once}, {3 * once}, …"
        )
    can_split = can_split_sequence(layout, training.workload) and has_sequence(training)
    layout = replace(
        layout,
        data_parallel=data,
        accumulation=training.workload.global_batch // once,
        sequence_parallel=layout.sequence_parallel or (can_split and request.is_sequence_open),
    )
    if not request.is_zero_open:
        return layout
    return replace(layout, zero_stage=default_zero(training, layout))


def is_by_stages(request: FitRequest) -> bool:
    """True if nodes differ, or the layout has a placement or a split."""
    layout = request.layout
    given = (layout.placement, layout.pipeline_split, layout.micro_batch_split)
    return not request.training.cluster.are_nodes_equal or any(given)


def fit_stages(request: FitRequest, layout: Layout) -> StageFits:
    """Predict each stage on its own nodes.

    Args:
        request: the question.
        layout: its layout with data parallelism and accumulation.

    Raises:
        ConfigError: a placement or a split that is impossible.
    """
    training = request.training
    if is_cpu(training.cluster):
        raise ConfigError(
            "--placement and splits are for GPUs, but --cluster local is a CPU here."
        )
    kinds = machine_kinds(training, [None] * len(training.cluster.kinds))
    order = _order(training.cluster, layout)
    for number in dict.fromkeys(order):
        if kinds[number].gpus % layout.tensor_parallel:
            raise ConfigError(
                f"tp={layout.tensor_parallel} does not divide the {kinds[number].gpus} GPUs of a "
                f"{kinds[number].name}; tensor ranks of mixed nodes stay inside a node."
            )
    columns = LayoutColumns.from_layouts(
        [replace(layout, pipeline_split=None, micro_batch_split=None)],
        [request.recompute_layers],
    )
    split = layers_of_stages(training, layout, request.recompute_layers)
    found = given_stages(columns, training.workload, kinds, order, split, layout.micro_batch_split)
    most = max(layout.micro_batch_split or (layout.micro_batch,))
    largest = replace(columns, micro_batch_C=columns.micro_batch_C * 0 + most)
    numbers, given = np.arange(len(split))[:, None], np.array([split]).T
    return StageFits(
        memory=memory_bytes(largest, training.workload, numbers, given),
        stages=found.stages,
        step_s=found.step_s,
    )


def layers_of_stages(
    training: TrainingRequest, layout: Layout, recompute_layers: int = ALL_LAYERS
) -> tuple[int, ...]:
    """Layers of each stage: those given, else even ones.

    Raises:
        ConfigError: another number of stages, an empty one, or another number of layers.
    """
    layers, stages = all_layers(training.workload.architecture), layout.pipeline_parallel
    split = layout.pipeline_split
    if split is None:
        return even_pipeline_split(layers, stages)
    where = f"--pipeline-split {','.join(map(str, split))}"
    if len(split) != stages:
        raise ConfigError(
            f"{where} has {len(split)} stages, but --pp is {stages}; make them equal."
        )
    if layout.virtual_pipeline > 1:
        raise ConfigError(f"{where} is of whole stages, but --vpp is {layout.virtual_pipeline}.")
    if min(split) < 1:
        raise ConfigError(f"{where} leaves stage {split.index(0)} empty; give each a layer.")
    if sum(split) != layers:
        raise ConfigError(
            f"{where} adds up to {sum(split)}, but the model has {layers} layers; let it add up "
            f"to {layers}."
        )
    if recompute_layers > min(split):
        raise ConfigError(
            f"--recompute-layers {recompute_layers} is more than the {min(split)} layers of the "
            f"smallest stage of {where}."
        )
    return split


def _order(cluster: ClusterSpec, layout: Layout) -> tuple[int, ...]:
    """The kind of each node in the order of ranks.

    Raises:
        ConfigError: a slot is unknown, repeated or missing, or a node's ranks are apart.
    """
    if layout.placement is None:
        return cluster.node_kinds
    node_of_slot = [i for i, node in enumerate(cluster.nodes) for _ in node.devices]
    slots = layout.placement
    for slot in slots:
        if slot >= len(node_of_slot):
            raise ConfigError(
                f"--placement has slot {slot}, but the cluster's are 0 to {len(node_of_slot) - 1}."
            )
        if slots.count(slot) > 1:
            raise ConfigError(f"--placement has slot {slot} twice; each takes one rank.")
    nodes = [node for node, _ in groupby(node_of_slot[slot] for slot in slots)]
    for node in nodes:
        missing = [s for s, at in enumerate(node_of_slot) if at == node and s not in slots]
        if missing:
            raise ConfigError(
                f"--placement misses slot {missing[0]} of node {node}; use all GPUs of a node or "
                "none (gpus_used in a cluster file bounds them)."
            )
        if nodes.count(node) > 1:
            raise ConfigError(
                f"--placement has the ranks of node {node} apart; list the slots of each node "
                "one after the other."
            )
    return tuple(cluster.node_kinds[node] for node in nodes)


def smallest_cluster(training: TrainingRequest) -> ClusterSpec | None:
    """The first cluster on which a layout fits, by doubling the GPUs of a node, then the nodes."""
    is_known = training.cluster.are_nodes_equal and has_rates(training.cluster)
    if not is_known or is_cpu(training.cluster):
        return None
    weights = parameters(training.workload.architecture)
    for cluster in (training.cluster, *larger_clusters(training.cluster)):
        has_room = weights * _LEAST_BYTES <= len(cluster.devices) * training.limit_bytes
        if has_room and plan(_on_cluster(training, cluster)).best:
            return cluster
    return None


def _on_cluster(training: TrainingRequest, cluster: ClusterSpec) -> Question:
    return Question(
        training=Training(workload=training.workload, machine=machine_of(cluster)),
        world=len(cluster.devices),
        limits=Limits(memory_bytes=training.limit_bytes),
        degrees=Degrees(offload=(Offload.NONE,)),
        most=1,
        rules=(*PLAN_RULES, *rules_of(training)),
    )
