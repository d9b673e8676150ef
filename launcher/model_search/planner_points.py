"""What the planner is asked for a search: which machines, which model. Not: its ranking."""

from __future__ import annotations

from dataclasses import dataclass

from autoconf_launch.autotuner.recommend.planner_grid import (
    PlannerCandidate,
    PlannerGrid,
    PlannerGridQuestion,
    planner_grid,
)
from autoconf_launch.core import ClusterSpec, ConfigError, Recompute
from autoconf_launch.tuning_spaces.clusters import equal_nodes
from autoconf_launch.tuning_spaces.machines import accelerator_names, known_accelerator, machine

from ..planner.price_choice import ChosenPrice, choose_price
from ..planner.recommend_training import usual_training
from ..planner.training_choice import machine_of
from .described import RECIPE, decoder_tokens
from .question import SearchQuestion
from .settings import SearchSettings

_GB = 2**30
_SEEDS_GPUS = {80.0: "A100-SXM-80GB", 40.0: "A100-SXM-40GB"}
"""What NVIDIA's tools count on."""
_SAME_MEMORY = 0.1
"""Memory by which a GPU is known: makers' GB and GiB differ by 7 %."""
_POWERS = tuple(1 << power for power in range(12))
OTHERWISE = "take other nodes, another global_batch_size, or other sizes to search"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchMachines:
    """What the planner counts on; ``notes`` say what was assumed."""

    gpu: str
    gpus_per_node: int
    memory_bytes: float
    usd_per_gpu_hour: float | None
    notes: tuple[str, ...]

    def cluster(self, nodes: int) -> ClusterSpec:
        """So many nodes of it."""
        return equal_nodes(nodes, self.gpus_per_node, self.gpu)

    @property
    def price(self) -> ChosenPrice | None:
        """Price of an hour of one GPU."""
        return choose_price(self.usd_per_gpu_hour, self.cluster(1))

    def fewest_nodes(self, question: SearchQuestion) -> int:
        """The smallest number of nodes on which some layout fits, as BigNLP's tool searches.

        A power of two, or that of the training; the latter where none is found.
        """
        for nodes in sorted({*_POWERS, question.nodes}):
            if planner_points(question, self, nodes).candidates:
                return nodes
        return question.nodes

    def why_nothing(self, question: SearchQuestion, nodes: int) -> str:
        """Why no layout is left, and how many nodes would do."""
        counts = (n for n in near(nodes) if planner_points(question, self, n).candidates)
        valid = next(counts, None)
        helps = f"num_nodes={valid} would do" if valid else OTHERWISE
        return (
            f"No layout of {question.name} with a global batch of "
            f"{question.model.global_batch} divides {nodes} x {self.gpus_per_node} "
            f"{self.gpu} and fits into them; {helps}."
        )


def near(nodes: int) -> tuple[int, ...]:
    """Numbers of nodes to offer instead: the neighbours and powers of two, the nearest first."""
    found = {*_POWERS, nodes - 1, nodes + 1} - {0, nodes}
    return tuple(sorted(found, key=lambda count: abs(count - nodes)))


def search_machines(settings: SearchSettings, gpus_per_node: int) -> SearchMachines:
    """GPUs by name, or those that have the memory which the settings give.

    Raises:
        ConfigError: the GPU is unknown.
    """
    wanted = settings.train.gpu_memory_gb
    named = settings.cluster.gpu
    gpu = _known(named) if named else _by_memory(wanted)
    usable = equal_nodes(1, 1, gpu).least_memory_bytes
    datasheet = machine(gpu).accelerator.memory_bytes
    return SearchMachines(
        gpu=gpu,
        gpus_per_node=gpus_per_node,
        memory_bytes=usable * min(1.0, wanted * _GB / datasheet),
        usd_per_gpu_hour=settings.cluster.usd_per_gpu_hour,
        notes=() if named else (_assumed(gpu, wanted),),
    )


def peak_flops_per_s(settings: SearchSettings, precision: str) -> float:
    """The most that one GPU of the search can do: the named one, or any with its memory.

    Args:
        settings: of the search.
        precision: of the training; with ``fp8`` in it the peak is that of FP8.
    """
    named, wanted = settings.cluster.gpu, settings.train.gpu_memory_gb * _GB
    every = [machine(gpu).accelerator for gpu in ((named,) if named else accelerator_names())]
    alike = [gpu for gpu in every if abs(gpu.memory_bytes / wanted - 1) <= _SAME_MEMORY]
    is_fp8 = "fp8" in precision
    peaks = ((is_fp8 and gpu.fp8_flops_per_s) or gpu.half_flops_per_s for gpu in alike or every)
    return max(peaks)


def planner_points(question: SearchQuestion, machines: SearchMachines, nodes: int) -> PlannerGrid:
    """All valid ones that fit, in the planner's order, and sizes that were asked for in vain."""
    cluster, train = machines.cluster(nodes), question.settings.train
    return planner_grid(
        PlannerGridQuestion(
            training=usual_training(
                question.architecture,
                train.sequence,
                machine_of(cluster),
                written=decoder_tokens(question.base, train.sequence),
            ),
            nodes=nodes,
            global_batch=question.model.global_batch,
            memory_bytes=machines.memory_bytes,
            lists=train.grid,
            recompute_layers=train.recompute_layers,
            sequence_parallel=_sequence_parallel(question),
        )
    )


def _sequence_parallel(question: SearchQuestion) -> tuple[bool, ...]:
    """NeMo 1.0's configuration of a T5 has no word for it (``candidate_file``)."""
    lacks_it = question.family.is_encoder_decoder and RECIPE not in question.base
    return (False,) if lacks_it else (False, True)


def recomputed_layers(one: PlannerCandidate, question: SearchQuestion) -> int | None:
    """Fully recomputed layers of each pipeline stage; None where none are."""
    if one.layout.recompute is not Recompute.FULL:
        return None
    if one.recompute_layers >= 0:
        return one.recompute_layers
    model = question.architecture
    return -(-(model.layers + model.encoder_layers) // one.layout.pipeline_parallel)


def _known(name: str) -> str:
    found = known_accelerator(name)
    if found is None:
        machine(name)  # raises with the nearest name
        raise ConfigError(f"cluster.gpu {name!r} is unknown.")
    return found


def _by_memory(wanted_gb: float) -> str:
    """The seeds' GPU of this memory, else the one whose memory is nearest above it."""
    if wanted_gb in _SEEDS_GPUS:
        return _SEEDS_GPUS[wanted_gb]
    sizes = {gpu: machine(gpu).accelerator.memory_bytes / _GB for gpu in accelerator_names()}
    above = {gpu: size for gpu, size in sizes.items() if size >= wanted_gb - 0.5}
    if not above:
        return max(sizes, key=lambda gpu: sizes[gpu])
    return min(above, key=lambda gpu: above[gpu])


def _assumed(gpu: str, wanted_gb: float) -> str:
    rule = "" if wanted_gb in _SEEDS_GPUS else f"No rule covers {wanted_gb:g} GB; "
    return (
        f"{rule}{'the' if rule else 'The'} planner counts on {gpu}, since cluster.gpu names no "
        "other."
    )
