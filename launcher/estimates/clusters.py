"""Clusters: the machines of a question, their prices, and checks of a training on them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autoconf_launch.autotuner.cost import (
    FormatGain,
    LayoutColumns,
    Machine,
    Proposal,
    computes_in,
    estimate,
    format_gains,
    measured_format_gains,
)
from autoconf_launch.core import (
    GIB,
    Architecture,
    ClusterSpec,
    ConfigError,
    FrozenPart,
    HardwareError,
    ModelSpec,
    Node,
    NodeKind,
    Precision,
    RankResult,
    States,
    Workload,
)
from autoconf_launch.tuning_spaces import (
    cluster_of_document,
    fabric,
    known_accelerator,
    machine,
    node_machine,
    parse_cluster,
    preset,
    preset_names,
    price,
    unrated_machine,
)

from ..asked import Goal
from ..config_file import read_config
from ..hosts import local_cluster
from ..machine import cpu_machine, is_cpu
from .requests import PlanRequest, TrainingRequest

_FILES = (".yaml", ".yml", ".json", ".hjson")
_MOST_DOUBLINGS = 10
_PASSES = 3.0
"""Operations of forward and backward over operations of the forward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPrice:
    """A price and its source."""

    usd_per_gpu_hour: float
    how: str


def choose_cluster(text: str) -> ClusterSpec:
    """Nodes of ``8xA100-SXM-80GB``, a mix of such, a file, a preset, or ``local``: this machine.

    Raises:
        HardwareError: this machine's GPUs cannot be planned for.
        ConfigError: another form, an unknown GPU, a file that cannot be read.
    """
    if local := re.fullmatch(r"(?:(\d{1,4})x)?local", text.strip().lower()):
        return local_cluster(int(local[1]) if local[1] else None)
    if difflib.get_close_matches(text.lower(), ["local"], cutoff=0.75):
        raise ConfigError(f"--cluster {text!r} is unknown; did you mean 'local'?")
    path = Path(text)
    if text in preset_names():
        return preset(text).cluster
    if path.suffix.lower() not in _FILES:
        return parse_cluster(text)
    document = read_config(path)
    try:
        return cluster_of_document(document)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def on_fabric(cluster: ClusterSpec, name: str | None) -> ClusterSpec:
    """The cluster with the network of a flag between its nodes; None leaves its own.

    Raises:
        ConfigError: the network is unknown.
    """
    if name is None:
        return cluster
    try:
        fabric(name)
    except ConfigError as error:
        raise ConfigError(f"--fabric: {error}") from error
    return ClusterSpec(nodes=tuple(replace(node, fabric=name) for node in cluster.nodes))


def limit_memory(asked: int | None, cluster: ClusterSpec) -> int:
    """Bytes that a rank may use: its GPU's memory, or less.

    Raises:
        ConfigError: the GPU has less memory than requested.
    """
    own = cluster.least_memory_bytes
    if asked is not None and asked > own:
        name = min(cluster.devices, key=lambda one: one.memory_bytes).name
        raise ConfigError(
            f"--memory-limit is {asked / GIB:.1f} GiB, but each {name} has {own / GIB:.1f} GiB; "
            "give less, or another --cluster."
        )
    return asked or own


def machine_of(cluster: ClusterSpec) -> Machine:
    """The machine that all nodes of a cluster are."""
    node = cluster.nodes[0]
    if is_cpu(cluster):
        return cpu_machine(node)
    if not has_rates(cluster):
        unrated = unrated_machine(node.devices[0].name, len(node.devices))
        return replace(unrated, host_memory_bytes=node.host_memory_bytes)
    return node_machine(node)


def one_node(node: Node) -> ClusterSpec:
    """A cluster of one node."""
    return ClusterSpec(nodes=(node,))


def has_rates(cluster: ClusterSpec) -> bool:
    """True if our tables or its file have the rates of all its GPUs; a local one may be new."""
    return is_cpu(cluster) or all(
        kind.node.gpu_rates is not None or known_accelerator(kind.gpu) for kind in cluster.kinds
    )


def require_rates(cluster: ClusterSpec) -> None:
    """Check that step times can be predicted.

    Raises:
        HardwareError: our tables lack a GPU of this machine.
    """
    if not has_rates(cluster):
        raise HardwareError(
            f"This machine's GPU, {cluster.devices[0].name}, is not in our table, so its step "
            "times are unknown; fit answers from its memory. To rank layouts, measure it with "
            "doctor --measure-gpu --save FILE, and give that file as --cluster."
        )


def require_equal_nodes(cluster: ClusterSpec, remedy: str = "ask for each kind by itself") -> None:
    """Refuse a mixed cluster for text generation, compared clusters or a script by pieces.

    ``remedy`` is what to do, as the end of the sentence.

    Raises:
        ConfigError: its nodes, links or prices differ.
    """
    if cluster.are_nodes_equal and len({device.name for device in cluster.devices}) == 1:
        return
    kinds = {f"{len(node.devices)}x{node.devices[0].name}" for node in cluster.nodes}
    unlike = "has nodes with different links or prices"
    if len(kinds) > 1:
        unlike = f"mixes {' and '.join(sorted(kinds))}"
    raise ConfigError(f"This needs equal nodes, but the cluster {unlike}; {remedy}.")


def check_precision(precision: Precision, cluster: ClusterSpec) -> None:
    """See that every GPU of a cluster computes in a precision.

    Raises:
        ConfigError: one does not; with the precisions that all have.
    """
    gpus = {kind.gpu: machine_of(one_node(kind.node)).accelerator for kind in cluster.kinds}
    known = [
        kind
        for kind in Precision
        if all(computes_in(one, kind) for one in gpus.values())
        and (kind is not Precision.TF32 or all(one.tf32_flops_per_s for one in gpus.values()))
    ]
    for gpu, accelerator in sorted(gpus.items(), key=lambda pair: pair[0]):
        if not computes_in(accelerator, precision):
            every = " for all GPUs of the cluster" if len(gpus) > 1 else ""
            raise ConfigError(
                f"{gpu} does not compute in {precision.value}; valid{every}: "
                f"{' '.join(kind.value for kind in known)}."
            )


def nodes_like(node: Node, nodes: int, gpus: int) -> ClusterSpec:
    """Equal nodes with ``gpus`` of a node's GPUs each, and their share of everything else."""

    def part(value: float | None) -> float | None:
        return None if value is None else value * gpus / len(node.devices)

    alike = replace(
        node,
        devices=tuple(replace(node.devices[0], slot=slot) for slot in range(gpus)),
        network_bytes_per_s=part(node.network_bytes_per_s),
        host_memory_bytes=part(node.host_memory_bytes),
        usd_per_hour=part(node.usd_per_hour),
    )
    return ClusterSpec(nodes=tuple(replace(alike, host=f"node{i}") for i in range(nodes)))


def whole_node(node: Node) -> Node:
    """The node, or a default node around a single GPU."""
    if len(node.devices) > 1:
        return node
    name = node.devices[0].name
    if not known_accelerator(name):
        return node
    return nodes_like(node, 1, machine(name).gpus_per_node).nodes[0]


def larger_clusters(cluster: ClusterSpec) -> Iterator[ClusterSpec]:
    """Doubled GPUs, again and again: a single node up to its default size, then more nodes."""
    node, nodes, gpus = cluster.nodes[0], len(cluster.nodes), len(cluster.nodes[0].devices)
    known = known_accelerator(node.devices[0].name)
    usual = machine(known).gpus_per_node if known else gpus
    if known is None and node.network_bytes_per_s is None:
        return  # its file does not say how such nodes are joined
    for _ in range(_MOST_DOUBLINGS):
        if nodes == 1 and 2 * gpus <= usual:
            gpus *= 2
        else:
            nodes *= 2
        yield nodes_like(node, nodes, gpus)


def choose_price(given: float | None, cluster: ClusterSpec) -> ChosenPrice | None:
    """The flag's price, else the cluster file's, else the newest published; None if there is none.

    The price is per GPU that trains; the GPUs in use pay for a whole node.

    Args:
        given: of one GPU and hour, by a flag.
        cluster: nodes of equal GPUs.
    """
    if given is not None:
        return ChosenPrice(usd_per_gpu_hour=given, how="as given")
    node = cluster.nodes[0]
    if node.usd_per_hour is not None:
        each = node.usd_per_hour / len(node.devices)
        return ChosenPrice(usd_per_gpu_hour=each, how="by the cluster file")
    gpu = node.devices[0].name
    known = price(known_accelerator(gpu) or gpu)
    if known is None:
        return None
    return ChosenPrice(
        usd_per_gpu_hour=known.usd_per_gpu_hour * node.rented_slots / len(node.devices),
        how=f"{known.cloud} {known.instance}, {known.region}, {known.as_of}; {known.source}",
    )


def proposal_step_s(
    cluster: ClusterSpec, proposals: Sequence[Proposal]
) -> tuple[float | None, ...]:
    """Seconds for each proposal; None for clusters whose nodes differ."""
    if not proposals or not cluster.are_nodes_equal:
        return (None,) * len(proposals)
    nodes, seconds = machine_of(cluster), np.full(len(proposals), np.nan)
    for workload in {one.workload for one in proposals}:
        rows = [i for i, one in enumerate(proposals) if one.workload == workload]
        columns = LayoutColumns.from_layouts(
            [proposals[i].layout for i in rows], [proposals[i].recompute_layers for i in rows]
        )
        seconds[rows] = estimate(columns, workload, nodes).step_s_C
    return tuple(float(s) if np.isfinite(s) else None for s in seconds)


def layout_format_gains(training: TrainingRequest, asked: Proposal) -> tuple[FormatGain, ...]:
    """Gains of the trainer's other formats in the same layout."""
    cluster = training.cluster

    def step_s(precision: Precision) -> float | None:
        workload = replace(asked.workload, precision=precision)
        return proposal_step_s(cluster, [replace(asked, workload=workload)])[0]

    gains = format_gains(asked.workload.precision, machine_of(cluster).accelerator, step_s)
    return tuple(one for one in gains if one.precision in training.abilities.precisions)


def profiled_format_gains(
    cluster: ClusterSpec,
    precision: Precision,
    profile: RankResult | None,
    spec: ModelSpec | None,
) -> tuple[FormatGain, ...]:
    """Gains of other formats over the format of a profile run.

    Empty if its operations were not counted or timed, nodes differ, or our tables lack the GPU.

    Args:
        cluster: machines of the run.
        precision: format of the run if ``profile`` lacks it.
        profile: result of rank 0 of an external script, whose last step counts.
        spec: the model, whose largest timed micro-batch counts otherwise.
    """
    if is_cpu(cluster) or not cluster.are_nodes_equal or not has_rates(cluster):
        return ()
    flops, step_s = 0.0, 0.0
    if profile is not None and profile.steps and profile.flops_per_step:
        flops, step_s = profile.flops_per_step, profile.steps[-1].wall_s
    elif spec is not None and spec.timings:
        timing = max(spec.timings, key=lambda one: one.micro_batch)
        flops = _PASSES * spec.forward_flops_per_sample * timing.micro_batch
        step_s = timing.forward_backward_s or 0.0
    if not (flops and step_s):
        return ()
    if profile is not None and profile.applied is not None:
        precision = profile.applied.precision
    return measured_format_gains(precision, machine_of(cluster), flops=flops, step_s=step_s)


def equal_machines(request: PlanRequest) -> tuple[Machine, tuple[ChosenPrice | None, ...]]:
    """The machine that all nodes of a question are, and the price of its GPU.

    Raises:
        ConfigError: nodes differ, the training cannot run on them, or a price is missing.
    """
    training = request.training
    require_equal_nodes(
        training.cluster, "plan this cluster without others, or each kind by itself"
    )
    check_training(training)
    return machine_of(training.cluster), chosen_prices(request)


def check_training(training: TrainingRequest) -> None:
    """Check that every GPU of a cluster can train, at rates that our tables have.

    Raises:
        HardwareError: a rate is missing.
        ConfigError: a GPU lacks the precision, or the weights or the positions do not fit.
    """
    require_rates(training.cluster)
    check_workload(training.workload, training.cluster)


def check_workload(workload: Workload, cluster: ClusterSpec) -> None:
    """Check precision, formats, what is trained, and learned positions.

    Raises:
        ConfigError: a combination is impossible.
    """
    check_precision(workload.precision, cluster)
    precision, states = workload.precision, workload.states
    if precision.value_bytes == 4 and states not in (None, States.FP32):
        raise ConfigError(
            f"--states {states.value} is for 16-bit training, but --precision is "
            f"{precision.value}; give --precision bf16, or omit --states."
        )
    if workload.frozen >= set(FrozenPart) and workload.lora_rank is None:
        raise ConfigError("--freeze names all parts, so nothing is trained; name fewer.")
    is_dense = isinstance(workload.model, Architecture) and workload.architecture.experts is None
    if workload.dispatcher is not None and is_dense:
        raise ConfigError(
            f"--dispatcher {workload.dispatcher.value} sends tokens to experts, but "
            f"{workload.architecture.name} has none; omit it."
        )
    if workload.weight_format is not None and not workload.trains_adapters:
        raise ConfigError(
            f"--weights {workload.weight_format.value} stores frozen weights, but here they are "
            "trained; give --lora-rank, such as 16, or omit --weights."
        )
    model, tokens = workload.model, workload.sequence_length
    if isinstance(model, Architecture) and model.encoder_layers:
        tokens = workload.decoder_sequence_length or tokens
    if isinstance(model, Architecture) and 0 < model.positions < tokens:
        raise ConfigError(
            f"{model.name} has {model.positions:,} learned positions, so a sequence of "
            f"{tokens:,} tokens fails in its embedding; give --seq {model.positions} or less, or "
            f"--positions {tokens} for a model with a longer table."
        )


def with_gpus(request: PlanRequest, node: Node, gpus: int, per_node: int) -> PlanRequest:
    """A question on a number of GPUs in nodes like this one."""
    cluster = nodes_like(node, max(1, gpus // per_node), min(per_node, gpus))
    return replace(request, training=replace(request.training, cluster=cluster, cluster_text=""))


def chosen_prices(request: PlanRequest) -> tuple[ChosenPrice | None, ...]:
    """Prices of a GPU of each kind of node; None for an unknown price.

    Raises:
        ConfigError: an unknown price is needed, or a single price is given for GPUs that differ.
    """
    return tuple(_price(request, kind) for kind in request.training.cluster.kinds)


def _price(request: PlanRequest, kind: NodeKind) -> ChosenPrice | None:
    is_alone = request.training.cluster.are_nodes_equal
    own_price = request.budget.usd_per_gpu_hour
    if own_price is not None and not is_alone:
        raise ConfigError(
            "--usd-per-gpu-hour is one price, but this cluster mixes GPUs; give --price "
            f"{kind.gpu}=USD for each of them."
        )
    given = dict(request.prices).get(kind.gpu)
    if given is not None:
        given = given * kind.node.rented_slots / len(kind.node.devices)
    found = choose_price(own_price if given is None else given, one_node(kind.node))
    needs = (
        "--pareto" * request.pareto,
        request.budget.price_need(),
        "--objective cost" * (request.objective == Goal.COST),
    )
    if found is None and any(needs):
        flag = "--usd-per-gpu-hour USD" if is_alone else f"--price {kind.gpu}=USD"
        raise ConfigError(
            f"No price of {kind.gpu} is known, but {next(filter(None, needs))} needs one; give "
            f"it with {flag} (an hour of one GPU)."
        )
    return found
