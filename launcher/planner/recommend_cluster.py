"""The cluster that ``recommend`` counts on, and what was assumed of it. Not: its speed."""

from __future__ import annotations

from dataclasses import dataclass

from autoconf_launch.autotuner import ClusterSpec
from autoconf_launch.core import ConfigError
from autoconf_launch.tuning_spaces.clusters import equal_nodes
from autoconf_launch.tuning_spaces.machines import machine

from .cluster_choice import choose_cluster
from .recommend_flags import RecommendRequest

_NODE = 8
_SEEDS_GPUS = {80.0: "A100-SXM-80GB", 40.0: "A100-SXM-40GB"}
"""What NVIDIA's tools count on: DGX A100 with either memory."""
_SEEDS_MEMORY_GB = 80.0
_GB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenCluster:
    """Nodes, and what a planner can do with them.

    Attributes:
        spec: None where the planner cannot predict it; ``why_no_machines`` says why.
        text: its short name.
        gpu_memory_gb: of one GPU, by its datasheet.
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
        """All of them."""
        return self.nodes * self.gpus_per_node


def cluster_of(request: RecommendRequest) -> ChosenCluster:
    """``--cluster``, or nodes of the GPUs that NVIDIA's tools count on.

    Raises:
        ConfigError: nodes do not divide the GPUs, or two flags contradict each other.
    """
    return _given(request, request.cluster) if request.cluster else _assumed(request)


def _given(request: RecommendRequest, text: str) -> ChosenCluster:
    spec = choose_cluster(text)
    count = len(spec.devices)
    if request.gpus not in (None, count):
        raise ConfigError(
            f"--gpus is {request.gpus}, but --cluster {text} has {count}; leave --gpus out."
        )
    gpu = spec.nodes[0].devices[0].name
    datasheet = machine(gpu).accelerator.memory_bytes / _GB
    alike = spec.are_nodes_equal
    return ChosenCluster(
        nodes=len(spec.nodes) if alike else 1,
        gpus_per_node=len(spec.nodes[0].devices) if alike else count,
        gpu_memory_gb=request.gpu_memory_gb or datasheet,
        text=text,
        spec=spec if alike else None,
        why_no_machines="" if alike else "nodes that differ are not predicted here.",
    )


def _assumed(request: RecommendRequest) -> ChosenCluster:
    gpus = request.gpus
    assert gpus is not None
    each = _gpus_per_node(gpus, request.nodes)
    memory_gb = request.gpu_memory_gb or _SEEDS_MEMORY_GB
    gpu = _SEEDS_GPUS.get(memory_gb)
    if gpu is None:
        why = f"no --cluster says which GPU has {memory_gb:g} GB."
        return ChosenCluster(
            nodes=gpus // each,
            gpus_per_node=each,
            gpu_memory_gb=memory_gb,
            text="unknown GPUs",
            spec=None,
            why_no_machines=why,
        )
    text = f"{gpus // each}x{each}x{gpu}"
    return ChosenCluster(
        nodes=gpus // each,
        gpus_per_node=each,
        gpu_memory_gb=memory_gb,
        text=text,
        spec=equal_nodes(gpus // each, each, gpu),
        notes=(f"No --cluster was given: the planner counts on {text}, as NVIDIA's tools do.",),
    )


def _gpus_per_node(gpus: int, nodes: int | None) -> int:
    if nodes is None:
        return max(each for each in range(1, _NODE + 1) if gpus % each == 0)
    if gpus % nodes:
        valid = " ".join(str(n) for n in range(1, min(gpus, 4096) + 1) if gpus % n == 0)
        raise ConfigError(f"--num-nodes {nodes} does not divide {gpus} GPUs; valid: {valid}.")
    return gpus // nodes
