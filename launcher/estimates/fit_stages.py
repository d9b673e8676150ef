"""``fit`` stage by stage: on nodes that differ, or with layers, samples and slots as given."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from autoconf_launch.autotuner.cost import (
    ALL_LAYERS,
    LayoutColumns,
    MemoryParts,
    Verdict,
    all_layers,
    memory_bytes,
    verdict,
)
from autoconf_launch.autotuner.mixed import GivenStages, StagePlan, given_stages
from autoconf_launch.core import ClusterSpec, ConfigError, Layout, even_pipeline_split

from ..machine import is_cpu
from .fit_flags import FitRequest
from .mixed import machine_kinds
from .training_request import TrainingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFits:
    """What each pipeline stage needs, of its own GPUs.

    Attributes:
        memory: part by part, of the largest micro-batch.
        stages: the first one first.
        nodes: names of the kinds of node that each lies on.
        step_s: seconds of a step.
    """

    memory: MemoryParts
    stages: tuple[StagePlan, ...]
    nodes: tuple[str, ...]
    step_s: float

    @property
    def tightest(self) -> StagePlan:
        """The stage with the smallest share of memory left."""
        return max(self.stages, key=lambda stage: stage.peak_bytes / stage.limit_bytes)

    @property
    def verdict(self) -> Verdict:
        """Whether all stages fit."""
        return verdict(self.tightest.peak_bytes, self.tightest.limit_bytes)


def is_by_stages(request: FitRequest) -> bool:
    """Whether nodes differ, or the layout says what lies where."""
    layout = request.layout
    given = (layout.placement, layout.pipeline_split, layout.micro_batch_split)
    return not request.training.cluster.are_nodes_equal or any(given)


def fit_stages(request: FitRequest, layout: Layout) -> StageFits:
    """Predict each stage on its own nodes.

    Args:
        request: what was asked.
        layout: the same with its data parallelism and accumulation.

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
    found: GivenStages = given_stages(
        columns, training.workload, kinds, order, split, layout.micro_batch_split
    )
    largest = replace(columns, micro_batch_C=columns.micro_batch_C * 0 + _most(layout))
    numbers, given = np.arange(len(split))[:, None], np.array([split]).T
    return StageFits(
        memory=memory_bytes(largest, training.workload, numbers, given),
        stages=found.stages,
        nodes=tuple(" + ".join(kinds[k].name for k in stage.kinds) for stage in found.stages),
        step_s=found.step_s,
    )


def _most(layout: Layout) -> int:
    return max(layout.micro_batch_split or (layout.micro_batch,))


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
        ConfigError: a slot that is not there, stands twice or is missing, or a node's ranks apart.
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
