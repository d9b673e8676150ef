"""The candidates of a search, most promising first, and how many of them are run. Not: running.

``grid=nemo`` has NVIDIA's points in NVIDIA's order where a rule covers the model (nemo_rules);
everything else is our planner's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autoconf_launch.autotuner.cost.layout_memory import MEMORY_BAND
from autoconf_launch.autotuner.recommend.nemo_candidates import (
    NemoCandidate,
    SearchedModel,
    limited,
    minimum_nodes,
    nemo1_name,
    nemo_candidates,
)
from autoconf_launch.autotuner.recommend.nemo_grid import Grid
from autoconf_launch.autotuner.recommend.planner_grid import PlannerCandidate, PlannerGrid
from autoconf_launch.core import ConfigError, Layout, Recompute

from .nemo_rules import nemo_grid_of
from .planner_points import (
    OTHERWISE,
    SearchMachines,
    near,
    planner_points,
    recomputed_layers,
)
from .question import SearchQuestion

_MOST_REJECTED = 8
_GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchCandidate:
    """One run that could be made.

    Attributes:
        name: of its file and folder.
        point: in NVIDIA's terms.
        layout: in ours.
        step_s, peak_bytes: predicted; None where nothing was.
    """

    name: str
    point: NemoCandidate
    layout: Layout
    step_s: float | None = None
    peak_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A candidate that cannot be run here; ``why`` is the end of "not started: …"."""

    candidate: SearchCandidate
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateList:
    """What is to be run, in order.

    Attributes:
        nodes: of each run.
        found: candidates before ``limit_search_runs`` cut them.
        rejected: those of ``found`` that this machine cannot run.
        notes: sentences for the user.
    """

    candidates: tuple[SearchCandidate, ...]
    nodes: int
    found: int
    rejected: tuple[Rejected, ...] = ()
    notes: tuple[str, ...] = ()


def candidates_of(question: SearchQuestion, machines: SearchMachines) -> CandidateList:
    """The candidates on as many nodes as the settings say.

    Raises:
        ConfigError: no layout divides GPUs and batch, or none fits into memory.
    """
    train, grid = question.settings.train, nemo_grid_of(question)
    if isinstance(grid, Grid):
        return _of_nemo(question, grid)
    nodes = train.search_nodes or machines.fewest_nodes(question)
    found = planner_points(question, machines, nodes)
    if not found.candidates:
        raise ConfigError(machines.why_nothing(question, nodes))
    wanted = found.candidates[: train.limit_runs or None]
    candidates = tuple(planner_candidate(question, one, nodes) for one in wanted)
    return CandidateList(
        candidates=candidates,
        nodes=nodes,
        found=len(found.candidates),
        notes=(
            *machines.notes,
            *_order(found),
            *_in_band(candidates, machines.memory_bytes),
            *_in_vain(found),
        ),
    )


def searched_model(question: SearchQuestion, gpus: int) -> SearchedModel:
    """The model as NVIDIA's rules see it."""
    return SearchedModel(
        family=question.family,
        size_b=question.size_b,
        layers=question.model.layers,
        heads=question.model.heads,
        global_batch=question.model.global_batch,
        gpus=gpus,
        method=question.model.method,
        recompute_layers=question.settings.train.recompute_layers,
    )


def planner_candidate(
    question: SearchQuestion, found: PlannerCandidate, nodes: int
) -> SearchCandidate:
    """One of the planner's candidates with its name."""
    layout = found.layout
    one = NemoCandidate(
        tensor=layout.tensor_parallel,
        pipeline=layout.pipeline_parallel,
        context=layout.context_parallel,
        expert=layout.expert_parallel,
        micro_batch=layout.micro_batch,
        virtual=layout.virtual_pipeline if layout.virtual_pipeline > 1 else None,
        recompute_layers=recomputed_layers(found, question),
    )
    model = searched_model(question, layout.world_size)
    return SearchCandidate(
        name=nemo1_name(model, nodes, one),
        point=one,
        layout=layout,
        step_s=found.step_s,
        peak_bytes=found.peak_bytes,
    )


def layout_of(one: NemoCandidate, model: SearchedModel) -> Layout:
    """A point of NVIDIA's grid as a layout with its distributed optimizer."""
    data = model.gpus // (one.tensor * one.pipeline * one.context)
    return Layout(
        data_parallel=data,
        tensor_parallel=one.tensor,
        pipeline_parallel=one.pipeline,
        virtual_pipeline=one.virtual or 1,
        context_parallel=one.context,
        expert_parallel=one.expert,
        zero_stage=1 if data * one.context > 1 else 0,
        micro_batch=one.micro_batch,
        accumulation=model.global_batch // (data * one.micro_batch),
        recompute=Recompute.FULL if one.recompute_layers else Recompute.NONE,
        sequence_parallel=one.tensor > 1,
    )


def _of_nemo(question: SearchQuestion, grid: Grid) -> CandidateList:
    train = question.settings.train
    model = searched_model(question, question.gpus)
    nodes = train.search_nodes or minimum_nodes(grid, model, question.gpus_per_node)
    model = replace(model, gpus=nodes * question.gpus_per_node)
    points = nemo_candidates(grid, model)
    if not points:
        raise ConfigError(_nothing_divides(question, grid, nodes))
    return CandidateList(
        candidates=tuple(
            SearchCandidate(
                name=nemo1_name(model, nodes, one), point=one, layout=layout_of(one, model)
            )
            for one in limited(points, train.limit_runs)
        ),
        nodes=nodes,
        found=len(points),
    )


def _nothing_divides(question: SearchQuestion, grid: Grid, nodes: int) -> str:
    """Why no point is left, with numbers of nodes that leave some."""
    each = question.gpus_per_node
    valid = [
        str(count)
        for count in near(nodes)
        if nemo_candidates(grid, searched_model(question, count * each))
    ]
    helps = f"num_nodes={' or '.join(valid[:4])} would do" if valid else OTHERWISE
    return (
        f"No point of NVIDIA's grid for {question.name} divides {nodes} x {each} GPUs and a "
        f"global batch of {question.model.global_batch}; {helps}."
    )


def _order(found: PlannerGrid) -> tuple[str, ...]:
    """What the order of the planner's candidates means (``recommend.run_order``)."""
    said = (
        "The first candidate is the planner's best; the others follow by how likely they are the "
        "fastest (errors of like layouts are alike, so that s/step need not rise), those with "
        "tensor parallelism across nodes last."
    )
    return (said,) if len(found.candidates) > 1 else ()


def _in_band(candidates: tuple[SearchCandidate, ...], limit_bytes: float) -> tuple[str, ...]:
    """Say which may not fit: they are kept, since predictions of memory have an error."""
    peaks = [one.peak_bytes or 0.0 for one in candidates]
    above = [peak for peak in peaks if peak > limit_bytes]
    if not above:
        return ()
    return (
        f"{len(above)} of the candidates may not fit: up to {max(above) / _GIB:.1f} GiB are "
        f"predicted of {limit_bytes / _GIB:.1f} GiB that a process has of a GPU, within the error "
        f"of +-{MEMORY_BAND:.0%}.",
    )


def _in_vain(found: PlannerGrid) -> tuple[str, ...]:
    """Sizes that were asked for and that no candidate has."""
    shown = [one.why for one in found.rejected[:_MOST_REJECTED]]
    more = len(found.rejected) - len(shown)
    return (
        *shown,
        *((f"{more} more combinations that were asked for cannot run.",) if more else ()),
    )
