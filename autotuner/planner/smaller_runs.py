"""Runs of a training that cost less than it, and what each of them takes.

A run has fewer nodes, replicas, pipeline stages, layers or micro-batches than the training, and a
few steps. All else that a step's time depends on stays as it is. Which of them pay: run_choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.core import Architecture, Layout, Offload, divisors

from ..cost import LayoutColumns, estimate, rows_obeying
from .own_runs import cut_model
from .search import Training

RUN_STEPS = 20
"""Steps of a run, the first few of which warm up."""
_PARTS = (1, 2, 4)
"""Layers of a stage, and micro-batches, are divided by one of these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallerRun:
    """A run that could be made.

    Attributes:
        layers: that are left of the model; of an encoder-decoder the decoder's, which are all.
        nodes: paid for whole.
        step_s: predicted.
        seconds: of the whole run, its start included.
    """

    layout: Layout
    layers: int
    nodes: int
    step_s: float
    seconds: float


def smaller_runs(
    training: Training, layouts: Sequence[Layout], memory_bytes: float, start_s: float
) -> tuple[SmallerRun, ...]:
    """Every run of these layouts that fits, fewest node-seconds first.

    Args:
        training: owner of the layouts.
        layouts: the chosen one and its rivals.
        memory_bytes: memory of a rank.
        start_s: time from the start of a run to its first step.
    """
    model, each = training.workload.architecture, training.machine.gpus_per_node
    by_layers: dict[int, dict[Layout, None]] = {}
    for layout in layouts:
        for smaller, layers in _smaller_layouts(layout, model):
            if smaller.world_size <= each or smaller.world_size % each == 0:
                by_layers.setdefault(layers, {})[smaller] = None
    found = [
        run
        for layers, same in by_layers.items()
        for run in _fitting_runs(training, layers, list(same), memory_bytes, start_s)
    ]
    return tuple(sorted(found, key=lambda run: (run.nodes * run.seconds, run.layout.world_size)))


def _smaller_layouts(layout: Layout, model: Architecture) -> Iterator[tuple[Layout, int]]:
    """Layouts with the layers that each has; the layout itself is among them."""
    plain = replace(
        layout, offload=Offload.NONE, placement=None, pipeline_split=None, micro_batch_split=None
    )
    cuts = not model.encoder_layers
    for stages in divisors(layout.pipeline_parallel) if cuts else (layout.pipeline_parallel,):
        virtual = layout.virtual_pipeline if stages > 1 else 1
        whole = model.layers * stages // layout.pipeline_parallel if cuts else model.layers
        for layers in _parts(whole, stages * virtual) if cuts else (whole,):
            for data in divisors(layout.data_parallel):
                is_alone = data * layout.context_parallel == 1
                if is_alone and layout.zero_stage == 3:
                    continue
                for count in _parts(layout.accumulation, stages if virtual > 1 else 1):
                    yield (
                        replace(
                            plain,
                            data_parallel=data,
                            pipeline_parallel=stages,
                            virtual_pipeline=virtual,
                            zero_stage=0 if is_alone else layout.zero_stage,
                            accumulation=count,
                        ),
                        layers,
                    )


def _parts(whole: int, unit: int) -> Iterator[int]:
    """The whole, and shares of it that are multiples of a unit."""
    yield whole
    yield from (whole // part for part in _PARTS[1:] if whole % (part * unit) == 0)


def _fitting_runs(
    training: Training, layers: int, layouts: list[Layout], memory_bytes: float, start_s: float
) -> Iterator[SmallerRun]:
    workload, machine = training.workload, training.machine
    model = cut_model(workload.architecture, layers)
    columns = LayoutColumns.from_layouts(layouts)
    costs = estimate(columns, replace(workload, model=model), machine)
    step_s_C = costs.step_s_C
    if training.runs is not None:
        step_s_C = step_s_C * training.runs.factors(columns, workload, machine)
    fits_C = costs.peak_bytes_C <= memory_bytes
    kept_C = fits_C & rows_obeying(columns, model, workload.sequence_length)
    for row in np.flatnonzero(kept_C).tolist():
        step_s = float(step_s_C[row])
        yield SmallerRun(
            layout=layouts[row],
            layers=layers,
            nodes=-(-layouts[row].world_size // machine.gpus_per_node),
            step_s=step_s,
            seconds=start_s + RUN_STEPS * step_s,
        )
