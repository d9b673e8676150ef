"""The candidates of a search, most promising first, and how many of them are run.

``grid=nemo`` has NVIDIA's points in NVIDIA's order if a rule covers the model;
everything else is our planner's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoconf_launch.autotuner.cost import MEMORY_BAND
from autoconf_launch.autotuner.sizing import Grid
from autoconf_launch.core import (
    GIB,
    Candidate,
    ClusterSpec,
    ConfigError,
    Failure,
    FailureKind,
    Layout,
)
from autoconf_launch.launcher.estimates import (
    ChosenPrice,
    choose_price,
    machine_of,
    usual_training,
)
from autoconf_launch.tuning_spaces import (
    accelerator_names,
    equal_nodes,
    known_accelerator,
    machine,
)

from ..candidate_grids import (
    NemoCandidate,
    PlannerCandidate,
    PlannerGrid,
    PlannerGridQuestion,
    limit_candidates,
    minimum_nodes,
    nemo1_name,
    nemo_candidates,
    planner_grid,
)
from ..report import NOT_STARTED
from .question import RECIPE, SearchQuestion, decoder_tokens, grid_question, nemo_grid_of

_SEEDS_GPUS = {80.0: "A100-SXM-80GB", 40.0: "A100-SXM-40GB"}
"""GPUs that NVIDIA's tools assume, by memory in GB."""
_SAME_MEMORY = 0.1
"""Memory by which a GPU is known: makers' GB and GiB differ by 7 %."""
_POWERS = tuple(1 << power for power in range(12))
_ORDER = (
    "The first candidate is the planner's best; the others follow by their chance to be the "
    "fastest (similar layouts have similar errors, so s/step need not rise), those with "
    "tensor parallelism across nodes last."
)
_OTHERWISE = "take other nodes, another global_batch_size, or other sizes to search"
_MOST_REJECTED = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchMachines:
    """Machines of the planner; ``notes`` name the assumptions."""

    gpu: str
    gpus_per_node: int
    memory_bytes: float
    usd_per_gpu_hour: float | None
    notes: tuple[str, ...]

    def cluster(self, nodes: int) -> ClusterSpec:
        return equal_nodes(nodes, self.gpus_per_node, self.gpu)

    @property
    def price(self) -> ChosenPrice | None:
        return choose_price(self.usd_per_gpu_hour, self.cluster(1))

    def fewest_nodes(self, question: SearchQuestion) -> int:
        """The smallest number of nodes on which some layout fits, as BigNLP's tool searches.

        A power of two, or the training's own number, which is also used if none is found.
        """
        for nodes in sorted({*_POWERS, question.nodes}):
            if planner_points(question, self, nodes).candidates:
                return nodes
        return question.nodes

    def why_nothing(self, question: SearchQuestion, nodes: int) -> str:
        counts = (n for n in near(nodes) if planner_points(question, self, n).candidates)
        valid = next(counts, None)
        helps = f"num_nodes={valid} would do" if valid else _OTHERWISE
        return (
            f"No layout of {question.name} with a global batch of "
            f"{question.global_batch} divides {nodes} x {self.gpus_per_node} "
            f"{self.gpu} and fits into them; {helps}."
        )


def near(nodes: int) -> tuple[int, ...]:
    """Numbers of nodes to offer instead: the neighbours and powers of two, the nearest first."""
    found = {*_POWERS, nodes - 1, nodes + 1} - {0, nodes}
    return tuple(sorted(found, key=lambda count: abs(count - nodes)))


def search_machines(question: SearchQuestion, gpus_per_node: int | None = None) -> SearchMachines:
    """GPUs by name, or those that have the memory that is given."""
    wanted, named = question.model.asked.gpu_memory_gb, question.scope.gpu
    gpu = (known_accelerator(named) or named) if named else _by_memory(wanted)
    datasheet = machine(gpu).accelerator.memory_bytes  # raises with the nearest name
    usable = equal_nodes(1, 1, gpu).least_memory_bytes
    note = f"The planner assumes {gpu}, by gpu_memory_gb"
    return SearchMachines(
        gpu=gpu,
        gpus_per_node=gpus_per_node or question.gpus_per_node,
        memory_bytes=usable * min(1.0, wanted * GIB / datasheet),
        usd_per_gpu_hour=question.scope.usd_per_gpu_hour,
        notes=() if named else (f"{note} ({wanted:g}); cluster.gpu names another.",),
    )


def gpu_peak_flops_per_s(
    question: SearchQuestion, gpu: str | None = None, precision: str = ""
) -> float | None:
    """The most that one GPU of the search can do: the named one, or any with its memory.

    Args:
        question: of the search.
        gpu: device that ran, by the driver's name; None: the question's GPU.
        precision: of the runs; "" is the training's. With an ``8`` in it, FP8's peak.

    Returns:
        None if a GPU ran that is not in our tables, or a CPU.
    """
    named, wanted = question.scope.gpu, question.model.asked.gpu_memory_gb * GIB
    if gpu is not None and (named := known_accelerator(gpu)) is None:
        return None
    precision = precision or str(question.base.get(("trainer", "precision")))
    every = [machine(gpu).accelerator for gpu in ((named,) if named else accelerator_names())]
    alike = [gpu for gpu in every if abs(gpu.memory_bytes / wanted - 1) <= _SAME_MEMORY]
    is_fp8 = "8" in precision
    peaks = ((is_fp8 and gpu.fp8_flops_per_s) or gpu.half_flops_per_s for gpu in alike or every)
    return max(peaks)


def planner_points(question: SearchQuestion, machines: SearchMachines, nodes: int) -> PlannerGrid:
    """All valid layouts that fit, in the planner's order, and requested sizes without any."""
    cluster = machines.cluster(nodes)
    # NeMo 1.0's configuration of a T5 has no word for it (candidate_file)
    is_never = question.family.is_encoder_decoder and RECIPE not in question.base
    sequence_parallel = (False,) if is_never else (False, True)
    return planner_grid(
        PlannerGridQuestion(
            training=usual_training(
                question.model.architecture,
                question.sequence,
                machine_of(cluster),
                written=decoder_tokens(question.base, question.sequence),
            ),
            nodes=nodes,
            global_batch=question.global_batch,
            memory_bytes=machines.memory_bytes,
            degrees=replace(question.scope.degrees, sequence_parallel=sequence_parallel),
        )
    )


def _by_memory(wanted_gb: float) -> str:
    """The GPU that NVIDIA's tools assume for this memory, else the next larger one."""
    if wanted_gb in _SEEDS_GPUS:
        return _SEEDS_GPUS[wanted_gb]
    sizes = {gpu: machine(gpu).accelerator.memory_bytes / GIB for gpu in accelerator_names()}
    above = {gpu: size for gpu, size in sizes.items() if size >= wanted_gb - 0.5}
    if not above:
        return max(sizes, key=lambda gpu: sizes[gpu])
    return min(above, key=lambda gpu: above[gpu])


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCandidate:
    """A run that the search could make.

    Attributes:
        name: of its file and folder.
        point: in NVIDIA's terms.
        step_s, peak_bytes: predictions; None without any.
    """

    name: str
    point: NemoCandidate
    step_s: float | None = None
    peak_bytes: float | None = None

    @property
    def layout(self) -> Layout:
        return self.point.layout

    @property
    def candidate(self) -> Candidate:
        return Candidate(layout=self.layout)

    @property
    def space(self) -> str:
        return f"z{self.layout.zero_stage}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A candidate that cannot be run here; ``why`` is the end of "not started: …"."""

    candidate: SearchCandidate
    why: str

    @property
    def failure(self) -> Failure:
        """The reason as a run's failure."""
        detail = f"{NOT_STARTED}: {self.why}"
        return Failure(kind=FailureKind.BAD_CONFIG, detail=detail)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateList:
    """Candidates to run, in order.

    Attributes:
        nodes: of each run.
        found: candidates before ``limit_search_runs`` cut them.
        rejected: candidates that this machine cannot run.
        notes: sentences for the user.
    """

    candidates: tuple[SearchCandidate, ...]
    nodes: int
    found: int
    rejected: tuple[Rejected, ...] = ()
    notes: tuple[str, ...] = ()


def candidates_of(question: SearchQuestion, machines: SearchMachines) -> CandidateList:
    """The candidates on as many nodes as its scope has.

    Raises:
        ConfigError: no layout divides GPUs and batch, or none fits into memory.
    """
    scope, grid = question.scope, nemo_grid_of(question)
    if isinstance(grid, Grid):
        return _of_nemo(question, grid)
    nodes = scope.search_nodes or machines.fewest_nodes(question)
    found = planner_points(question, machines, nodes)
    if not found.candidates:
        raise ConfigError(machines.why_nothing(question, nodes))
    more = len(found.rejected) - _MOST_REJECTED
    wanted = found.candidates[: scope.limit_runs or None]
    candidates = tuple(_planner_candidate(question, one, nodes) for one in wanted)
    return CandidateList(
        candidates=candidates,
        nodes=nodes,
        found=len(found.candidates),
        notes=(
            *machines.notes,
            *((_ORDER,) if len(found.candidates) > 1 else ()),
            *_in_band(candidates, machines.memory_bytes),
            *(one.why for one in found.rejected[:_MOST_REJECTED]),
            *((f"{more} more combinations that were asked for cannot run.",) if more > 0 else ()),
        ),
    )


def _planner_candidate(
    question: SearchQuestion, found: PlannerCandidate, nodes: int
) -> SearchCandidate:
    layout = found.layout
    one = NemoCandidate(
        layout=layout,
        virtual=layout.virtual_pipeline if layout.virtual_pipeline > 1 else None,
        recompute_layers=found.recompute_layers or None,
    )
    model = grid_question(question, layout.world_size)
    return SearchCandidate(
        name=nemo1_name(model, nodes, one),
        point=one,
        step_s=found.step_s,
        peak_bytes=found.peak_bytes,
    )


def _of_nemo(question: SearchQuestion, grid: Grid) -> CandidateList:
    scope, model = question.scope, grid_question(question)
    nodes = scope.search_nodes or minimum_nodes(grid, model, question.gpus_per_node)
    model = replace(model, gpus=nodes * question.gpus_per_node)
    points = nemo_candidates(grid, model)
    if not points:
        raise ConfigError(_nothing_divides(question, grid, nodes))
    return CandidateList(
        candidates=tuple(
            SearchCandidate(name=nemo1_name(model, nodes, one), point=one)
            for one in limit_candidates(points, scope.limit_runs)
        ),
        nodes=nodes,
        found=len(points),
    )


def _nothing_divides(question: SearchQuestion, grid: Grid, nodes: int) -> str:
    """The reason why no point is left, with numbers of nodes that leave some."""
    each = question.gpus_per_node
    valid = [
        str(count)
        for count in near(nodes)
        if nemo_candidates(grid, grid_question(question, count * each))
    ]
    helps = f"num_nodes={' or '.join(valid[:4])} would do" if valid else _OTHERWISE
    return (
        f"No point of NVIDIA's grid for {question.name} divides {nodes} x {each} GPUs and a "
        f"global batch of {question.global_batch}; {helps}."
    )


def _in_band(candidates: tuple[SearchCandidate, ...], limit_bytes: float) -> tuple[str, ...]:
    """Say which may not fit: they are kept, since predictions of memory have an error."""
    peaks = [one.peak_bytes or 0.0 for one in candidates]
    above = [peak for peak in peaks if peak > limit_bytes]
    if not above:
        return ()
    return (
        f"{len(above)} of the candidates may not fit: up to {max(above) / GIB:.1f} GiB are "
        f"predicted (±{100 * MEMORY_BAND:.0f} %), and a process has {limit_bytes / GIB:.1f} GiB "
        "of a GPU.",
    )
