"""What a training and its cluster are, of names, files and flags."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autoconf_launch.autotuner.cost import (
    AUTO_TRAINER,
    Accelerator,
    FormatGain,
    LayoutColumns,
    LayoutRule,
    Machine,
    Proposal,
    TrainerChoice,
    computes_in,
    estimate,
    format_gains,
    measured_format_gains,
    parameters,
)
from autoconf_launch.autotuner.planner import (
    PLAN_RULES,
    Limits,
    Question,
    Training,
    choose_trainer,
    plan,
    trainer_rules,
)
from autoconf_launch.autotuner.sizing import runs_flash
from autoconf_launch.core import (
    GIB,
    Architecture,
    ClusterSpec,
    ConfigError,
    Degrees,
    HardwareError,
    ModelSpec,
    Node,
    Offload,
    Precision,
    RankResult,
    Workload,
)
from autoconf_launch.tuning_spaces import (
    CHECKED,
    TRAINERS,
    cluster_of_document,
    known_accelerator,
    machine,
    parse_cluster,
    preset,
    preset_names,
    price,
    trainer,
    unrated_machine,
)

from ..config_file import read_config
from ..hosts import local_cluster
from ..machine import cpu_machine, is_cpu
from .requests import TrainingRequest


def with_trainer(
    trainings: Sequence[TrainingRequest],
    name: str = AUTO_TRAINER,
    *,
    flash_attention: bool | None = None,
    runnable: bool = False,
) -> tuple[TrainingRequest, ...]:
    """One training on its clusters, with the habits of one trainer.

    Args:
        trainings: the same workload on each cluster in question.
        name: the trainer, or ``auto`` to choose one by what is asked.
        flash_attention: None: the trainer's habit.
        runnable: only layouts of our own runtime are ranked.

    Raises:
        ConfigError: no such trainer is known, or it lacks what is trained.
    """
    workload = trainings[0].workload
    if name != AUTO_TRAINER:
        choice = TrainerChoice(name=name, why="as given")
    elif runnable:
        choice = TrainerChoice(name="native", why="default for --runnable")
    else:
        gpus = [device.name for one in trainings for device in one.cluster.devices]
        choice = usual_trainer(workload, gpus)
    workload = trainer(choice.name).apply_to(workload)
    if (lacked := TRAINERS[choice.name].abilities.first_lack(workload)) and name != AUTO_TRAINER:
        raise ConfigError(f"--trainer {name} has no {lacked}; {_trainers_with(workload)}.")
    if flash_attention is not None:
        software = replace(workload.software, flash_attention=flash_attention)
        workload = replace(workload, software=software)
    return tuple(replace(one, workload=workload, trainer=choice) for one in trainings)


def with_choice(training: TrainingRequest, choice: TrainerChoice) -> TrainingRequest:
    """The training with the habits of a trainer; attention that was asked for stays."""
    before = training.workload.software.flash_attention
    is_asked = before is not trainer(training.trainer.name).software.flash_attention
    workload = trainer(choice.name).apply_to(training.workload)
    if is_asked:
        workload = replace(workload, software=replace(workload.software, flash_attention=before))
    return replace(training, workload=workload, trainer=choice)


def usual_trainer(workload: Workload, gpus: Sequence[str]) -> TrainerChoice:
    """The default trainer of a training, or another one if that lacks what is trained."""
    choice = choose_trainer(workload, gpus, CHECKED)
    if (lacked := TRAINERS[choice.name].abilities.first_lack(workload)) is None:
        return choice
    others = (name for name, one in TRAINERS.items() if one.abilities.first_lack(workload) is None)
    # what the table has no trainer for is priced as the default's
    name = next(iter(sorted(others, key=lambda name: name != _GENERAL)), None)
    return choice if name is None else TrainerChoice(name=name, why=f"default for {lacked}")


_GENERAL = "huggingface"
"""The trainer of what the usual one lacks, if it has it."""


def rules_of(training: TrainingRequest) -> tuple[LayoutRule, ...]:
    """Layouts that the trainer has."""
    return trainer_rules(TRAINERS[training.trainer.name].abilities)


BY_SCRIPT = "by the script"
"""Why a trainer is a script's."""


def _trainers_with(workload: Workload) -> str:
    names = [name for name, one in TRAINERS.items() if one.abilities.first_lack(workload) is None]
    return f"trainers with it: {', '.join(names)}" if names else "no trainer of ours has it"


def limit_memory(asked: int | None, cluster: ClusterSpec) -> int:
    """Bytes that a rank may use: those of its GPU, or fewer.

    Raises:
        ConfigError: the GPU has less than was asked for.
    """
    own = cluster.least_memory_bytes
    if asked is not None and asked > own:
        name = min(cluster.devices, key=lambda one: one.memory_bytes).name
        raise ConfigError(
            f"--memory-limit is {asked / GIB:.1f} GiB, but each {name} has {own / GIB:.1f} GiB; "
            "give less, or another --cluster."
        )
    return asked or own


def check_precision(precision: Precision, cluster: ClusterSpec) -> None:
    """See that every GPU of a cluster computes in a precision.

    Raises:
        ConfigError: one does not; with what all of them compute in.
    """
    gpus = {kind.gpu: machine_of(one_node(kind.node)).accelerator for kind in cluster.kinds}
    known = [
        kind
        for kind in Precision
        if all(computes_in(one, kind) for one in gpus.values())
        and (kind is not Precision.TF32 or all(map(_has_tf32, gpus.values())))
    ]
    for gpu, accelerator in sorted(gpus.items(), key=lambda pair: pair[0]):
        if not computes_in(accelerator, precision):
            every = " for all GPUs of the cluster" if len(gpus) > 1 else ""
            raise ConfigError(
                f"{gpu} does not compute in {precision.value}; valid{every}: "
                f"{' '.join(kind.value for kind in known)}."
            )


def _has_tf32(accelerator: Accelerator) -> bool:
    return accelerator.tf32_flops_per_s is not None


def has_rates(cluster: ClusterSpec) -> bool:
    """Whether our tables know how fast all its GPUs are; those of this machine may be missing."""
    names = {device.name for device in cluster.devices}
    return is_cpu(cluster) or all(known_accelerator(name) for name in names)


def require_rates(cluster: ClusterSpec) -> None:
    """Check that step times can be predicted.

    Raises:
        HardwareError: our tables lack a GPU of this machine.
    """
    if not has_rates(cluster):
        raise HardwareError(
            f"This machine's GPU, {cluster.devices[0].name}, is not in our table, so its step "
            "times are unknown; fit answers from its memory. To rank layouts, describe it as the "
            "nearest GPU with its own memory_gib in a file (plan --cluster-template)."
        )


def check_weights(workload: Workload) -> None:
    """See that quantized weights are frozen ones.

    Raises:
        ConfigError: all weights are trained.
    """
    if workload.weight_format is not None and not workload.trains_adapters:
        raise ConfigError(
            f"--weights {workload.weight_format.value} stores frozen weights, but here they are "
            "trained; give --lora-rank, such as 16, or omit --weights."
        )


def check_positions(workload: Workload) -> None:
    """See that a model with learned positions has one for each token.

    Raises:
        ConfigError: a sample is longer.
    """
    model, tokens = workload.model, workload.sequence_length
    if isinstance(model, Architecture) and 0 < model.positions < tokens:
        raise ConfigError(
            f"{model.name} has {model.positions:,} learned positions, so a sequence of "
            f"{tokens:,} tokens fails in its embedding; give --seq {model.positions} or less, or "
            f"--positions {tokens} for a model with a longer table."
        )


def nodes_like(node: Node, nodes: int, gpus: int) -> ClusterSpec:
    """Equal nodes with so many of a node's GPUs each, and their share of all else that it has."""

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
    """A node; a GPU alone is one of a usual node."""
    if len(node.devices) > 1:
        return node
    return nodes_like(node, 1, machine(node.devices[0].name).gpus_per_node).nodes[0]


_MOST_DOUBLINGS = 10


def larger_clusters(cluster: ClusterSpec) -> Iterator[ClusterSpec]:
    """Twice the GPUs again and again: of the only node up to the usual number, then more nodes."""
    node, nodes, gpus = cluster.nodes[0], len(cluster.nodes), len(cluster.nodes[0].devices)
    usual = machine(node.devices[0].name).gpus_per_node
    for _ in range(_MOST_DOUBLINGS):
        if nodes == 1 and 2 * gpus <= usual:
            gpus *= 2
        else:
            nodes *= 2
        yield nodes_like(node, nodes, gpus)


_LEAST_BYTES = 0.5
"""No format stores a weight in less; where even these have no room, no layout needs a look."""


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


def machine_of(cluster: ClusterSpec) -> Machine:
    """The machine that all nodes of a cluster are."""
    node = cluster.nodes[0]
    if is_cpu(cluster):
        return cpu_machine(node)
    if not has_rates(cluster):
        unrated = unrated_machine(node.devices[0].name, len(node.devices))
        return replace(unrated, host_memory_bytes=node.host_memory_bytes)
    usual = machine(
        node.devices[0].name,
        gpus_per_node=len(node.devices),
        network_bytes_per_s=node.network_bytes_per_s,
    )
    if node.host_memory_bytes is not None:
        usual = replace(usual, host_memory_bytes=node.host_memory_bytes)
    if node.link_bytes_per_s is None:
        return usual
    return replace(usual, link=replace(usual.link, bytes_per_s=node.link_bytes_per_s))


def layout_format_gains(training: TrainingRequest, asked: Proposal) -> tuple[FormatGain, ...]:
    """What formats that its trainer has would gain in the same layout."""
    cluster, has = training.cluster, TRAINERS[training.trainer.name].abilities

    def step_s(precision: Precision) -> float | None:
        workload = replace(asked.workload, precision=precision)
        return proposal_step_s(cluster, [replace(asked, workload=workload)])[0]

    gains = format_gains(asked.workload.precision, machine_of(cluster).accelerator, step_s)
    return tuple(one for one in gains if one.precision in has.precisions)


def profiled_format_gains(
    cluster: ClusterSpec,
    precision: Precision,
    profile: RankResult | None,
    spec: ModelSpec | None,
) -> tuple[FormatGain, ...]:
    """What other formats would gain over the one in which a profile run trained.

    Empty if its operations were not counted or timed, nodes differ, or our tables lack the GPU.

    Args:
        cluster: on which it ran.
        precision: of the run if ``profile`` does not say it.
        profile: of rank 0 of an external script, whose last step counts.
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


_PASSES = 3.0
"""Operations of forward and backward over those of the forward pass."""


USUAL_TRAINER = TrainerChoice(name="megatron", why="checked against NVIDIA's published trainings")
"""The trainer of :func:`usual_training`, against which the published speeds are held."""
_WRITTEN = 128
"""``seq_length_dec`` of NeMo 1.0's T5 and mT5, of which all its sizes read 512."""


def usual_training(
    architecture: Architecture,
    sequence: int,
    nodes: Machine,
    precision: Precision = Precision.BF16,
    *,
    written: int | None = None,
) -> Training:
    """Adam and the habits of Megatron-LM, on which NeMo stands.

    Args:
        architecture: the model.
        sequence: tokens of a sample.
        nodes: equal machines.
        precision: of the matrix products.
        written: tokens of a decoder behind an encoder; None: NeMo's. Others have none.
    """
    if not architecture.encoder_layers:
        written = None
    elif written is None:
        written = min(sequence, _WRITTEN)
    asked = Workload(
        model=architecture,
        sequence_length=sequence,
        decoder_sequence_length=written,
        precision=precision,
    )
    usual = TRAINERS[USUAL_TRAINER.name].apply_to(asked)
    software = replace(usual.software, flash_attention=runs_flash(architecture))
    return Training(workload=replace(usual, software=software), machine=nodes)


_FILES = (".yaml", ".yml", ".json", ".hjson")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPrice:
    """A price and where it is from."""

    usd_per_gpu_hour: float
    how: str


def choose_price(given: float | None, cluster: ClusterSpec) -> ChosenPrice | None:
    """The flag's price, else the cluster file's, else the newest published; None if there is none.

    It is of a GPU that trains: where a node is used in part, those pay for the whole of it.

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
    """Seconds for each proposal of one workload; None for clusters whose nodes differ."""
    if not proposals or not cluster.are_nodes_equal:
        return (None,) * len(proposals)
    nodes = machine_of(cluster)
    columns = LayoutColumns.from_layouts(
        [one.layout for one in proposals], [one.recompute_layers for one in proposals]
    )
    found = estimate(columns, proposals[0].workload, nodes)
    return tuple(float(s) if np.isfinite(s) else None for s in found.step_s_C)


def one_node(node: Node) -> ClusterSpec:
    """A cluster of one node."""
    return ClusterSpec(nodes=(node,))


def require_equal_nodes(cluster: ClusterSpec) -> None:
    """Refuse a mixed cluster where clusters are compared, or a script is planned by pieces.

    Raises:
        ConfigError: its nodes, links or prices differ.
    """
    if cluster.are_nodes_equal and len({device.name for device in cluster.devices}) == 1:
        return
    kinds = {f"{len(node.devices)}x{node.devices[0].name}" for node in cluster.nodes}
    raise ConfigError(
        f"This needs equal nodes, but the cluster mixes {', '.join(sorted(kinds))} or their links "
        "and prices; plan it alone, with --model and without a script, or each kind by itself."
    )
