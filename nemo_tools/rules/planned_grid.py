"""Our planner's space for a training search: every layout that can run, most promising first.

Built on the planner's own enumeration (``layouts``). Not: NVIDIA's grids (nemo_grid), nor files.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from autoconf_launch.autotuner.cost import ALL_LAYERS
from autoconf_launch.autotuner.planner import (
    PointQuestion,
    Points,
    Training,
    points,
)
from autoconf_launch.autotuner.sizing import (
    are_ends_counted,
    reason,
    run_order,
    search_rules,
)
from autoconf_launch.core import Architecture, Degrees, Layout, Offload, Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerGridQuestion:
    """The training to search for, and the nodes.

    Attributes:
        training: the model and the machine that the nodes are.
        memory_bytes: of each GPU.
        degrees: that a user listed, or that the framework of the runs has; the planner chooses
            those that are open. ZeRO is 0 or 1, a distributed optimizer. Each number of
            ``recompute_layers`` (``act_ckpt_layers``; 0 for none) is a run of its own.
    """

    training: Training
    nodes: int
    global_batch: int
    memory_bytes: float
    degrees: Degrees = field(default_factory=Degrees)

    @property
    def gpus(self) -> int:
        """GPUs of all nodes."""
        return self.nodes * self.training.machine.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerCandidate:
    """A candidate of the planner.

    Attributes:
        recompute_layers: layers of each pipeline stage that are recomputed in full.
        are_ends_counted: the stages are even with embedding and head as a layer each.
        step_s, peak_bytes: as predicted.
        chance_to_fit: between 0 and 1.
    """

    layout: Layout
    recompute_layers: int
    are_ends_counted: bool
    step_s: float
    peak_bytes: float
    chance_to_fit: float

    @property
    def degrees(self) -> tuple[int, int, int, int, int]:
        """Tensor, pipeline, context, expert, micro-batch."""
        return (*self.layout.mesh, self.layout.micro_batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnmetValues:
    """Values that were asked for and that no candidate has.

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
    """Runs in the order in which they promise most, and what was asked for in vain.

    ``dropped`` counts layouts by the rule that they broke first, ``memory`` last.
    """

    candidates: tuple[PlannerCandidate, ...]
    rejected: tuple[UnmetValues, ...]
    considered: int
    dropped: tuple[tuple[str, int], ...]


def planner_grid(question: PlannerGridQuestion) -> PlannerGrid:
    """Every point of tensor, pipeline, context, expert and micro-batch that can run, once.

    All other knobs are at their best. The first is the planner's first (``layouts.points``); the
    others follow by how likely they are the fastest of all (``run_order``).
    """
    found = _in_run_order(points(_points_of(question)), question.training)
    listed = question.degrees.recompute_layers
    candidates = tuple(
        one
        for one in _candidates(found, question.training.workload.architecture)
        if listed is None or one.recompute_layers in listed
    )
    return PlannerGrid(
        candidates=candidates,
        rejected=tuple(_unmet_values(candidates, question)),
        considered=found.considered,
        dropped=found.dropped,
    )


def _in_run_order(found: Points, training: Training) -> Points:
    """Points in the order in which they are run."""
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
    """Degrees with full recomputation, too, which is what all layers of a stage are."""
    layers = listed.recompute_layers
    if layers is None:
        return listed
    some = tuple(sorted({number for number in layers if number > 0}))
    none = (Recompute.NONE,) if 0 in layers else ()
    full = (Recompute.FULL,) if some else ()
    return replace(listed, recompute=(*none, *full), recompute_layers=some)


def _candidates(found: Points, a: Architecture) -> Iterator[PlannerCandidate]:
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
            are_ends_counted=are_ends_counted(layout, a),
            step_s=step_s,
            peak_bytes=peak_bytes,
            chance_to_fit=chance,
        )


def _unmet_values(
    candidates: tuple[PlannerCandidate, ...], question: PlannerGridQuestion
) -> Iterator[UnmetValues]:
    """Listed values that no candidate has, then combinations of the others."""
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
        yield from (_why({flag: value}, question) for value in missing)
    if len(listed) > 1:
        for combination in itertools.product(*used.values()):
            if combination not in have:
                yield _why(dict(zip(used, combination, strict=True)), question)


_FLAGS = {
    "tp": "tensor_parallel",
    "pp": "pipeline_parallel",
    "cp": "context_parallel",
    "ep": "expert_parallel",
    "micro-batch": "micro_batch",
    "recompute-layers": "recompute_layers",
}
"""Degrees that can be listed."""


def _values(one: PlannerCandidate) -> dict[str, int]:
    """Value of each flag that can be listed."""
    return dict(zip(_FLAGS, (*one.degrees, one.recompute_layers), strict=True))


def _why(values: dict[str, int], question: PlannerGridQuestion) -> UnmetValues:
    """Ask for these values alone, and see what drops the last layout."""
    single: dict[str, Any] = {_FLAGS[flag]: (value,) for flag, value in values.items()}
    alone = replace(question, degrees=replace(question.degrees, **single))
    rule, why = reason(_points_of(alone), values)
    return UnmetValues(values=tuple(values.items()), rule=rule, why=why)
