"""The points of NVIDIA's grids and of our planner's that can run, each once.

NVIDIA's tool keeps points that need more GPUs than there are, leaves context parallelism out of
its second check of the batch, and writes some twice; here each kept point exists and runs once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from autoconf_launch.autotuner.cost import ALL_LAYERS
from autoconf_launch.autotuner.planner import PointQuestion, Points, Training, points
from autoconf_launch.autotuner.sizing import (
    BLOCK,
    Grid,
    GridQuestion,
    RecomputeChoices,
    reason,
    recompute_choices,
    run_order,
    search_rules,
)
from autoconf_launch.core import Architecture, Degrees, Layout, Offload, Recompute

_Mesh: TypeAlias = tuple[int, int, int, int]
"""Tensor, pipeline, context and expert ranks."""
_FLAGS = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "cp": "context_parallel",
    "ep": "expert_parallel",
    "micro-batch": "micro_batch",
    "recompute-layers": "recompute_layers",
}
"""Degrees that can be listed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NemoCandidate:
    """A run in NVIDIA's terms: its layout, and recomputation as in ``RecomputeChoices``."""

    layout: Layout
    virtual: int | None = None
    recompute_layers: int | None = None
    recompute_micro_batches: int | None = None
    recompute_layers_per_pipeline: int | None = None


def nemo_candidates(grid: Grid, model: GridQuestion) -> tuple[NemoCandidate, ...]:
    """Every valid point once, in NVIDIA's order.

    The order is by checkpointed layers, or by micro-batch if there are none, ascending; then by
    tensor, pipeline, context and expert ranks. :func:`limit_candidates` takes the first few.
    """
    found = dict.fromkeys(_points(grid, model))
    has_layers = any(one.recompute_layers is not None for one in found)
    if has_layers:
        return tuple(sorted(found, key=lambda one: one.recompute_layers or 0))
    return tuple(sorted(found, key=lambda one: one.layout.micro_batch))


def limit_candidates(candidates: Sequence[NemoCandidate], limit: int) -> tuple[NemoCandidate, ...]:
    """Candidates in turn of each micro-batch, the largest first, at most ``limit``; 0 takes all.

    NVIDIA's tool cuts the largest micro-batches first, which are usually the fastest.
    """
    if not 0 < limit < len(candidates):
        return tuple(candidates)
    sizes = sorted({one.layout.micro_batch for one in candidates}, reverse=True)
    by_size = [[one for one in candidates if one.layout.micro_batch == size] for size in sizes]
    turns = itertools.zip_longest(*by_size)
    chosen = [one for turn in turns for one in turn if one is not None]
    return tuple(chosen[:limit])


def minimum_nodes(grid: Grid, model: GridQuestion, gpus_per_node: int) -> int:
    """Nodes that the widest point of a grid needs, as the BigNLP HP tool searches.

    That has one data-parallel rank: ``model.gpus``, of a training, do not matter.
    """
    widest = max(map(math.prod, _meshes(grid, model)), default=1)
    return -(-widest // gpus_per_node)


def nemo1_name(model: GridQuestion, nodes: int, one: NemoCandidate) -> str:
    """Name of a run, as NeMo 1.0 writes it."""
    return (
        f"{_start(model, nodes, one)}_act_ckpt_{one.recompute_layers}"
        f"_num_mbs_act_{one.recompute_micro_batches}"
        f"_act_per_pipe_{one.recompute_layers_per_pipeline}"
    )


def nemo2_name(model: GridQuestion, nodes: int, one: NemoCandidate) -> str:
    """Name of a run, as NeMo 2.0 writes it."""
    return f"{_start(model, nodes, one)}_vp_{one.virtual}"


def minutes_limit(minutes: int) -> str:
    """Slurm's ``D-H:M:00`` of minutes: 1500 are a day and an hour (NVIDIA's tool has 25 hours)."""
    hours, rest = divmod(minutes, 60)
    return f"{hours // 24}-{hours % 24}:{rest}:00"


def _start(model: GridQuestion, nodes: int, one: NemoCandidate) -> str:
    tensor, pipeline, context, expert = one.layout.mesh
    return (
        f"{model.family.name}_{model.size_b:.10g}b_{nodes}nodes_tp_{tensor}_pp_{pipeline}"
        f"_cp_{context}_ep_{expert}_mbs_{one.layout.micro_batch}"
    )


def _points(grid: Grid, model: GridQuestion) -> Iterator[NemoCandidate]:
    for mesh in _meshes(grid, model):
        if model.gpus % math.prod(mesh):
            continue
        choices = _choices(grid, model, mesh[1])
        for micro in grid.degrees.micro_batch or ():
            layout = _layout(mesh, micro, model)
            if layout.global_batch == model.global_batch:
                layout = replace(layout, virtual_pipeline=choices.virtual or 1)
                yield from _with_recompute(layout, choices)


def _layout(mesh: _Mesh, micro: int, model: GridQuestion) -> Layout:
    """A layout with a distributed optimizer; a batch that does not divide is cut."""
    tensor, pipeline, context, expert = mesh
    data = model.gpus // (tensor * pipeline * context)
    return Layout(
        data_parallel=data,
        tensor_parallel=tensor,
        pipeline_parallel=pipeline,
        context_parallel=context,
        expert_parallel=expert,
        zero_stage=1 if data * context > 1 else 0,
        micro_batch=micro,
        accumulation=model.global_batch // (data * micro),
        sequence_parallel=tensor > 1,
    )


def _meshes(grid: Grid, model: GridQuestion) -> Iterator[_Mesh]:
    for tensor, pipeline, context, expert in itertools.product(*grid.degrees.mesh_axes):
        mesh = (tensor, pipeline, context, expert)
        if _is_mesh(mesh, model) and grid.degrees.allows_product(math.prod(mesh)):
            yield mesh


def _is_mesh(mesh: _Mesh, model: GridQuestion) -> bool:
    tensor, pipeline, context, expert = mesh
    stacks = 2 if model.family.is_encoder_decoder else 1
    return (
        1 in (context, expert)
        and model.heads % tensor == 0
        and stacks * model.layers % pipeline == 0
    )


def _choices(grid: Grid, model: GridQuestion, pipeline: int) -> RecomputeChoices:
    choices = recompute_choices(
        model.family, model.size_b, model.layers, pipeline=pipeline, method=model.method
    )
    listed = grid.degrees.recompute_layers
    if listed is None or model.method != BLOCK:
        return choices
    return replace(choices, layers=tuple(dict.fromkeys(listed)))


def _with_recompute(layout: Layout, choices: RecomputeChoices) -> Iterator[NemoCandidate]:
    dimensions = (choices.layers, choices.micro_batches, choices.layers_per_pipeline)
    for layers, micro_batches, per_pipeline in itertools.product(*dimensions):
        kind = Recompute.FULL if layers else Recompute.NONE
        yield NemoCandidate(
            layout=replace(layout, recompute=kind),
            virtual=choices.virtual,
            recompute_layers=layers,
            recompute_micro_batches=micro_batches,
            recompute_layers_per_pipeline=per_pipeline,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerGridQuestion:
    """The training to search for, and the nodes.

    Attributes:
        training: the model and the machine that the nodes are.
        memory_bytes: of each GPU.
        degrees: that a user listed, or that the framework of the runs has; the planner chooses
            those that are open. ZeRO is 0 or 1, a distributed optimizer. Each number of
            ``recompute_layers`` (``act_ckpt_layers``; 0 for none) is a separate run.
    """

    training: Training
    nodes: int
    global_batch: int
    memory_bytes: float
    degrees: Degrees = field(default_factory=Degrees)

    @property
    def gpus(self) -> int:
        return self.nodes * self.training.machine.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerCandidate:
    """A candidate of the planner.

    Attributes:
        recompute_layers: layers of each pipeline stage that are recomputed in full.
        step_s, peak_bytes: as predicted.
        chance_to_fit: between 0 and 1.
    """

    layout: Layout
    recompute_layers: int
    step_s: float
    peak_bytes: float
    chance_to_fit: float

    @property
    def degrees(self) -> tuple[int, int, int, int, int]:
        """Tensor, pipeline, context, expert, micro-batch."""
        return (*self.layout.mesh, self.layout.micro_batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmetValues:
    """Requested values that no candidate has.

    Attributes:
        values: flag and value of each.
        rule: the last rule that left none, ``gpus`` or ``global_batch`` for the equations.
        why: one sentence.
    """

    values: tuple[tuple[str, int], ...]
    rule: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerGrid:
    """Candidates, best first, and requested sizes without a valid candidate."""

    candidates: tuple[PlannerCandidate, ...]
    rejected: tuple[UnmetValues, ...]


def planner_grid(question: PlannerGridQuestion) -> PlannerGrid:
    """Every point of tensor, pipeline, context, expert and micro-batch that can run, once.

    All other knobs are at their best. The first is the planner's first (``layouts.points``); the
    others follow by how likely they are the fastest of all (``run_order``).
    """
    found = _in_run_order(points(_points_of(question)), question.training)
    listed = question.degrees.recompute_layers
    candidates = tuple(
        one
        for one in _planner_candidates(found, question.training.workload.architecture)
        if listed is None or one.recompute_layers in listed
    )
    return PlannerGrid(
        candidates=candidates,
        rejected=tuple(_unmet_values(candidates, question)),
    )


def _in_run_order(found: Points, training: Training) -> Points:
    if found.rows is None:
        return found
    order = run_order(found, training)
    return replace(
        found,
        rows=found.rows.take(order),
        step_s_P=found.step_s_P[order],
        peak_bytes_P=found.peak_bytes_P[order],
        chance_P=found.chance_P[order],
    )


def _points_of(question: PlannerGridQuestion) -> PointQuestion:
    listed = question.degrees
    degrees = replace(_by_kind(listed), zero_stage=(0, 1), offload=(Offload.NONE,))
    workload = replace(question.training.workload, global_batch=question.global_batch)
    return PointQuestion(
        training=replace(question.training, workload=workload),
        world=question.gpus,
        memory_bytes=question.memory_bytes,
        degrees=degrees,
        rules=search_rules(question.training.machine.gpus_per_node, degrees),
        are_recomputed_apart=listed.recompute_layers is not None,
    )


def _by_kind(listed: Degrees) -> Degrees:
    """Degrees that include full recomputation, the same as all layers of a stage."""
    layers = listed.recompute_layers
    if layers is None:
        return listed
    some = tuple(sorted({number for number in layers if number > 0}))
    none = (Recompute.NONE,) if 0 in layers else ()
    full = (Recompute.FULL,) if some else ()
    return replace(listed, recompute=(*none, *full), recompute_layers=some)


def _planner_candidates(found: Points, a: Architecture) -> Iterator[PlannerCandidate]:
    if found.rows is None:
        return
    numbers = (found.step_s_P, found.peak_bytes_P, found.chance_P)
    columns = (found.rows.recompute_layers_C.tolist(), *(one.tolist() for one in numbers))
    rows = zip(found.rows.layouts(), *columns, strict=True)
    for layout, layers, step_s, peak_bytes, chance in rows:
        whole = -(-(a.layers + a.encoder_layers) // layout.pipeline_parallel)
        some = whole if layers == ALL_LAYERS else layers
        yield PlannerCandidate(
            layout=layout,
            recompute_layers=some if layout.recompute is Recompute.FULL else 0,
            step_s=step_s,
            peak_bytes=peak_bytes,
            chance_to_fit=chance,
        )


def _unmet_values(
    candidates: tuple[PlannerCandidate, ...], question: PlannerGridQuestion
) -> Iterator[UnmetValues]:
    listed = {
        flag: values
        for flag, name in _FLAGS.items()
        if (values := getattr(question.degrees, name)) is not None
    }
    have = {tuple(_values(one)[flag] for flag in listed) for one in candidates}
    used = {}
    for place, (flag, values) in enumerate(listed.items()):
        present = {combination[place] for combination in have}
        used[flag] = [value for value in dict.fromkeys(values) if value in present]
        missing = (value for value in dict.fromkeys(values) if value not in present)
        yield from (_why_unmet({flag: value}, question) for value in missing)
    if len(listed) > 1:
        for combination in itertools.product(*used.values()):
            if combination not in have:
                yield _why_unmet(dict(zip(used, combination, strict=True)), question)


def _values(one: PlannerCandidate) -> dict[str, int]:
    return dict(zip(_FLAGS, (*one.degrees, one.recompute_layers), strict=True))


def _why_unmet(values: dict[str, int], question: PlannerGridQuestion) -> UnmetValues:
    """Request only these values, and find the rule that drops the last layout."""
    single: dict[str, Any] = {_FLAGS[flag]: (value,) for flag, value in values.items()}
    alone = replace(question, degrees=replace(question.degrees, **single))
    rule, why = reason(_points_of(alone), values)
    return UnmetValues(values=tuple(values.items()), rule=rule, why=why)
