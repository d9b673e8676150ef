"""The machines of ``recommend``: those named, or those that NVIDIA's tools count on."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from autoconf_launch.autotuner.cost import parameters
from autoconf_launch.autotuner.sizing import (
    ChosenModel,
    Family,
    ModelQuestion,
    family_named,
    nearest_predefined,
    parse_model_name,
)
from autoconf_launch.core import (
    GIB,
    Architecture,
    ClusterSpec,
    ConfigError,
    HardwareError,
    divisors,
)
from autoconf_launch.tuning_spaces import (
    equal_nodes,
    model_names,
    named_model,
    node_machine,
    predefined_searches,
    usual_of,
)

from ..asked import RecommendCommand, RecommendQuestion
from ..machine import is_cpu
from .clusters import choose_cluster, machine_of, nodes_like, require_rates, whole_node

_NODE = 8
_SEEDS_GPU = "A100-SXM-80GB"
_SEEDS_GPUS = {80.0: _SEEDS_GPU, 40.0: "A100-SXM-40GB"}
"""Machines that NVIDIA's tools assume: DGX A100 with either memory."""
_SEEDS_MEMORY_GB = 80.0
_SAME_SIZE, _NEAR_SIZE = 0.01, 0.04
"""Relative error allowed between a published model's count and a size, or the size in its name."""
_USUAL_VOCABULARY, _USUAL_SEQUENCE = 32_000, 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenCluster:
    """Nodes, and their description for the planner.

    Attributes:
        spec: None if the planner cannot predict it; ``why_no_machines`` has the reason.
        text: its short name.
        gpu_memory_gb: memory of a GPU, by its datasheet.
    """

    nodes: int
    gpus_per_node: int
    gpu_memory_gb: float
    text: str
    spec: ClusterSpec | None
    why_no_machines: str = ""
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """All GPUs of the cluster."""
        return self.nodes * self.gpus_per_node

    @property
    def memory_bytes(self) -> float:
        """Memory of a process on a GPU: its typical share of the given memory.

        0 if the planner cannot predict the cluster.
        """
        if self.spec is None:
            return 0.0
        return self.spec.least_memory_bytes * self.gpu_memory_gb / _datasheet_gb(self.spec)

    def with_gpus(self, gpus: int) -> ChosenCluster:
        assert self.spec is not None
        node = whole_node(self.spec.nodes[0])
        each = min(len(node.devices), gpus)
        spec = nodes_like(node, gpus // each, each)
        text = f"{gpus // each}x{each}x{node.devices[0].name}"
        return replace(self, nodes=gpus // each, gpus_per_node=each, spec=spec, text=text)


def cluster_of(request: RecommendQuestion) -> ChosenCluster:
    """``--cluster``, or nodes of the GPUs that NVIDIA's tools count on.

    Raises:
        ConfigError: nodes do not divide the GPUs, or two flags contradict each other.
    """
    return (
        _given_cluster(request, request.cluster) if request.cluster else _assumed_cluster(request)
    )


def _given_cluster(request: RecommendQuestion, text: str) -> ChosenCluster:
    spec = choose_cluster(text)
    if is_cpu(spec):
        raise HardwareError(
            f"--cluster {text}: this machine has no GPU, and sizes are recommended for GPUs; name "
            "some, such as --cluster 8xH100."
        )
    require_rates(spec)
    count = len(spec.devices)
    if request.gpus not in (None, count):
        raise ConfigError(
            f"--gpus is {request.gpus}, but --cluster {text} has {count}; omit --gpus."
        )
    alike = spec.are_nodes_equal
    return ChosenCluster(
        nodes=len(spec.nodes) if alike else 1,
        gpus_per_node=len(spec.nodes[0].devices) if alike else count,
        gpu_memory_gb=request.gpu_memory_gb or _datasheet_gb(spec),
        text=text,
        spec=spec if alike else None,
        why_no_machines="" if alike else "it cannot predict nodes that differ.",
    )


def _datasheet_gb(spec: ClusterSpec) -> float:
    return node_machine(spec.nodes[0]).accelerator.memory_bytes / GIB


def _assumed_cluster(request: RecommendQuestion) -> ChosenCluster:
    gpus = request.gpus
    assert gpus is not None
    each = _gpus_per_node(gpus, request.nodes)
    memory_gb = request.gpu_memory_gb or _SEEDS_MEMORY_GB
    gpu = _SEEDS_GPUS.get(memory_gb, _SEEDS_GPU)
    text = f"{gpus // each}x{each}x{gpu}"
    counted = f"the planner assumes {text}"
    notes = [f"No --cluster was given: {counted}, as NVIDIA's tools do."]
    if memory_gb not in _SEEDS_GPUS:
        notes = [
            f"No --cluster says which GPU has {memory_gb:g} GB: {counted} with that much memory."
        ]
    return ChosenCluster(
        nodes=gpus // each,
        gpus_per_node=each,
        gpu_memory_gb=memory_gb,
        text=text,
        spec=equal_nodes(gpus // each, each, gpu),
        notes=tuple(notes),
    )


def _gpus_per_node(gpus: int, nodes: int | None) -> int:
    if nodes is None:
        return max(each for each in divisors(gpus) if each <= _NODE)
    if gpus % nodes:
        valid = " ".join(str(n) for n in divisors(gpus) if n <= 4096)
        raise ConfigError(f"--num-nodes {nodes} does not divide {gpus} GPUs; valid: {valid}.")
    return gpus // nodes


def notes_on_rate(request: RecommendQuestion, cluster: ChosenCluster) -> Iterator[str]:
    """A rate that was given and that no GPU of the cluster has."""
    if request.tflops_per_gpu is None or cluster.spec is None:
        return
    gpu = machine_of(cluster.spec).accelerator
    peak = max(gpu.half_flops_per_s, gpu.fp8_flops_per_s or 0.0) / 1e12
    if request.tflops_per_gpu > peak:
        yield (
            f"--tflops-per-gpu is {request.tflops_per_gpu:g}, above the peak of {gpu.name} "
            f"({peak:g}): no training reaches the days of the formula."
        )


def with_model(request: RecommendCommand, model: Architecture) -> RecommendCommand:
    """The question with a model's family, size and vocabulary.

    Raises:
        ConfigError: its name has no family, or the question contradicts it.
    """
    if request.vocabulary not in (None, model.vocabulary):
        raise ConfigError(
            f"--vocab is {request.vocabulary}, but {model.name} has {model.vocabulary}; omit it."
        )
    if request.base_config is not None and model.latent is not None:
        raise ConfigError(
            f"--base-config cannot describe the latent attention of {model.name}; omit it."
        )
    family = request.family or _family_of(model.name)
    size_b = round(parameters(model) / 1e9, 4)
    return replace(request, family=family, model_size_b=size_b, vocabulary=model.vocabulary)


def model_of_size(family: Family, size_b: float, vocabulary: int | None) -> Architecture | None:
    """The published decoder of a family that has a size or its name; of several the nearest.

    Families of NeMo 1.0 have NVIDIA's own shapes, whose counts are right.
    """
    if family.has_nemo1_layout:
        return None
    pattern = re.compile(rf"{re.escape(family.name)}[0-9.]*(-[a-z]+)?-(\d+x)?[0-9.]+[bm]")
    found = []
    for name in filter(pattern.fullmatch, model_names()):
        model = named_model(name)
        model = replace(model, vocabulary=vocabulary or model.vocabulary)
        off = abs(parameters(model) / 1e9 / size_b - 1.0)
        is_named = math.isclose(parse_model_name(name).size_b or 0.0, size_b)
        if off <= (_NEAR_SIZE if is_named else _SAME_SIZE):
            found.append((-off, name, model))
    return max(found)[2] if found else None


def _family_of(name: str) -> str:
    """A family that rules know, else the first word of a name or an id."""
    if known := parse_model_name(name).family:
        return known
    word = re.match(r"[A-Za-z]+", name.rpartition("/")[2])
    if word is None or name.endswith(".json"):
        raise ConfigError(f"{name} does not say its family; give it with --family, such as gpt3.")
    return family_named(word[0]).name


def model_question(
    request: RecommendCommand, family: Family, memory_gb: float, named: Architecture | None
) -> ModelQuestion:
    """The size, its text and its batch, with a family's defaults.

    Args:
        request: the command.
        family: of the model.
        memory_gb: of a GPU.
        named: the model if it was given by its name.
    """
    usual = usual_of(family.predefined) or (_USUAL_VOCABULARY, _USUAL_SEQUENCE)
    size_b = request.model_size_b
    published = named or (size_b and model_of_size(family, size_b, request.vocabulary)) or None
    vocabulary = usual[0] if published is None else published.vocabulary
    return ModelQuestion(
        family=family,
        size_b=size_b or 1.0,
        vocabulary=request.vocabulary or vocabulary,
        sequence=request.sequence or usual[1],
        gpu_memory_gb=memory_gb,
        batch=request.global_batch,
        may_exceed=size_b is None,
        published=published,
        is_exact=True,
    )


def nearest_search(family: Family, model: ChosenModel) -> str | None:
    """The predefined search nearest to a model; NVIDIA names models of experts by one expert."""
    size_b = model.exact_count / 1e9
    if model.architecture.experts is not None:
        size_b = model.nemo_count_b or size_b
    vocabulary, sequence = model.architecture.vocabulary, model.asked.sequence
    return nearest_predefined(
        predefined_searches(), family.predefined, size_b, vocabulary, sequence
    )
