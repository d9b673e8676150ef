"""Seconds of one optimizer step for each candidate, part by part. Not: memory, nor what is valid.

Shapes: C = candidates (or axes that broadcast), U = distinct inner layouts. A micro-batch of one
layer is worked out once for each distinct inner layout; candidates gather from there, so that
millions of them are cheap.
Ranks are ordered tensor, context, data, pipeline, as Megatron-LM places them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from ...table import Floats, Ints
from .columns import NONE, LayoutColumns, distinct
from .communication import send_s
from .hardware import Machine
from .inner import inner_times
from .kernels import Kernels
from .physics import DEFAULT_PHYSICS, Physics
from .pipeline import LayerSeconds, schedule_s, stage_times
from .sharding import exchange_s, fetch_s, update_s
from .weights import all_layers
from .workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepParts:
    """Seconds that add up to one step.

    ``ideal_s_C`` is the model's operations at the datasheet's rate; the others are what is lost,
    in the order in which it is lost.
    """

    ideal_s_C: Floats
    kernels_s_C: Floats
    recompute_s_C: Floats
    launch_s_C: Floats
    bubble_s_C: Floats
    communication_s_C: Floats
    update_s_C: Floats

    @property
    def step_s_C(self) -> Floats:
        """Sum of all parts."""
        total: Floats | float = 0.0
        for part in fields(self):
            total = total + getattr(self, part.name)
        return np.asarray(total, np.float64)


def step_parts(
    layouts: LayoutColumns,
    workload: Workload,
    machine: Machine,
    physics: Physics = DEFAULT_PHYSICS,
) -> StepParts:
    """All parts for each candidate.

    Where only some layers of a stage recompute, the step lies between those where none and all do.
    """
    if not (partial := layouts.recomputed_C >= 0).any():
        return _parts(layouts, workload, machine, physics)
    share = np.where(
        partial,
        recomputed_share(
            layouts.recomputed_C, layouts.pipeline_C, all_layers(workload.architecture)
        ),
        1.0,
    )
    whole = _parts(layouts, workload, machine, physics)
    without = replace(layouts, recompute_C=np.where(partial, NONE, layouts.recompute_C))
    none = _parts(without, workload, machine, physics)
    names = [part.name for part in fields(StepParts)]
    return StepParts(**{x: between(share, getattr(whole, x), getattr(none, x)) for x in names})


def between(share: Floats, whole_s: Floats, none_s: Floats) -> Floats:
    """Seconds where a share of the layers recomputes, from those where all and none do."""
    return np.asarray(share * whole_s + (1.0 - share) * none_s)


def recomputed_share(recomputed_C: Ints, pipeline_C: Ints, layers: int) -> Floats:
    """Part of the layers of a stage that full recomputation of so many of them covers."""
    stage = np.maximum(layers / pipeline_C, 1.0)
    return np.asarray(np.clip(recomputed_C / stage, 0.0, 1.0))


def _parts(
    layouts: LayoutColumns, workload: Workload, machine: Machine, physics: Physics
) -> StepParts:
    kernels = Kernels(
        accelerator=machine.accelerator,
        physics=physics,
        precision=workload.precision,
        engine=workload.engine,
    )
    inner, which = distinct(layouts)
    layer = inner_times(workload, inner, machine, kernels)
    layers = all_layers(workload.architecture)
    pace = layers / layouts.pipeline_C * layouts.accumulation_C
    first, last = layer.first_s_U[which], layer.last_s_U[which]
    host = physics.micro_batch_s * (0.5 if workload.compiled else 1.0)
    stages = stage_times(
        layouts,
        layers,
        layer=LayerSeconds(mean_s_C=layer.layer_s_U[which], slowest_s_C=layer.slowest_s_U[which]),
        first_s_C=first,
        last_s_C=last,
        send_s_C=_send_s(layouts, workload, machine, physics),
    )
    running, sends = schedule_s(
        layouts, stages, exposed_share=1.0 - physics.point_to_point_overlap
    )
    even = (layers * layer.layer_s_U[which] + first + last) / layouts.pipeline_C
    busy = pace * layer.busy_s_U[which] + (
        layouts.accumulation_C / layouts.pipeline_C * (first + last)
    )
    ideal = (
        pace * layer.ideal_s_U[which]
        + layouts.accumulation_C / layouts.pipeline_C * layer.ends_ideal_s_U[which]
    )
    exposed = pace * layer.exposed_s_U[which] + sends
    exchange = exchange_s(layouts, workload, machine, physics, backward_s_C=0.6 * even)
    return StepParts(
        ideal_s_C=ideal,
        kernels_s_C=busy - ideal,
        recompute_s_C=pace * layer.again_s_U[which],
        launch_s_C=pace * layer.launch_s_U[which] + host * layouts.accumulation_C,
        bubble_s_C=running - sends - even * layouts.accumulation_C,
        communication_s_C=exposed + exchange + fetch_s(layouts, workload, physics),
        update_s_C=update_s(layouts, workload, machine, physics),
    )


def _send_s(
    layouts: LayoutColumns, workload: Workload, machine: Machine, physics: Physics
) -> Floats:
    """Activations of one micro-batch go to the next stage, cut over tensor-parallel ranks.

    Source: Narayanan et al. 2021, section 4.1, scatter and gather.
    """
    tokens = layouts.micro_C * workload.seq / (layouts.context_C * layouts.tensor_C)
    sent = tokens * workload.architecture.hidden * workload.weight_bytes_each
    stride = layouts.tensor_C * layouts.context_C * layouts.data_C
    return send_s(machine, physics, stride=stride, buffer_bytes=np.asarray(sent, np.float64))


def concatenated(parts: Sequence[StepParts]) -> StepParts:
    """Rows of several calls, one after the other."""
    names = [part.name for part in fields(StepParts)]
    empty = [np.zeros(0)]
    return StepParts(
        **{name: np.concatenate([getattr(one, name) for one in parts] or empty) for name in names}
    )
