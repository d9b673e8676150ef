"""The machines of ``recommend``: those named, or those that NVIDIA's tools count on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autoconf_launch.core import GIB, ClusterSpec, ConfigError, HardwareError, divisors
from autoconf_launch.tuning_spaces import equal_nodes, machine

from ..asked import RecommendQuestion
from ..machine import is_cpu
from .training_choice import choose_cluster, machine_of, nodes_like, require_rates, whole_node

_NODE = 8
_SEEDS_GPU = "A100-SXM-80GB"
_SEEDS_GPUS = {80.0: _SEEDS_GPU, 40.0: "A100-SXM-40GB"}
"""What NVIDIA's tools count on: DGX A100 with either memory."""
_SEEDS_MEMORY_GB = 80.0


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
        """All GPUs of the cluster."""
        return self.nodes * self.gpus_per_node

    @property
    def memory_bytes(self) -> float:
        """What a process can have on one GPU: of the given memory the share that it usually has.

        0 where the planner cannot predict the cluster.
        """
        if self.spec is None:
            return 0.0
        return self.spec.least_memory_bytes * self.gpu_memory_gb / _datasheet_gb(self.spec)

    def with_gpus(self, gpus: int) -> ChosenCluster:
        """So many GPUs in nodes like these, of which there must be a prediction."""
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
    return machine(spec.nodes[0].devices[0].name).accelerator.memory_bytes / GIB


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
