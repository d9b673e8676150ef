"""What a cluster achieves on a model by our cost model: the fastest layout that fits.

A small set of layouts, enough for days and costs. Not: the whole space of layouts (layouts/).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.core import Architecture, Layout, Recompute

from ..cost.layout_memory import MEMORY_BAND, peak_bytes
from ..cost.layout_rules import obeying
from ..cost.memory_layouts import MemoryLayouts
from ..cost.model.columns import LayoutColumns
from ..cost.model.hardware import Machine
from ..cost.model.step import step_parts
from ..cost.model.workload import Workload
from ..cost.trainers import TRAINERS
from ..cost.training_setup import TrainingSetup
from .model_size import FLOPS_PER_PARAMETER_AND_TOKEN

TIME_BAND = 0.12
"""Relative error of a step to expect: the mean over published tables is 2 to 12 % (see
benchmarks/results/planner_accuracy.md)."""
_LONG = 8192
_DEGREES = (1, 2, 4, 8)
_MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64)
_MOST_STAGES = 64
_BATCH_BAND = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Equal nodes, and what one GPU can hold."""

    nodes: int
    machine: Machine
    memory_bytes: int

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.nodes * self.machine.gpus_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """What one step is of."""

    architecture: Architecture
    sequence: int
    global_batch: int
    flash: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Achieved:
    """The fastest layout found.

    Attributes:
        tflops_per_gpu: as NVIDIA's formula counts: 8 operations for each active parameter and
            token.
        model_tflops_per_gpu: operations of the model alone, attention included.
        is_batch_changed: the layout's global batch is not the one asked for.
    """

    layout: Layout
    step_s: float
    tokens_per_s: float
    peak_bytes: float
    tflops_per_gpu: float
    model_tflops_per_gpu: float
    is_batch_changed: bool


def achieved(training: Training, machines: Machines, active_parameters: int) -> Achieved | None:
    """The layout that reads most tokens in a second; None where none fits for sure.

    Args:
        training: model, sequence and batch; where no layout has this batch, one within a tenth.
        machines: what it runs on.
        active_parameters: for the formula's way to count operations.
    """
    layouts = _layouts(training, machines)
    columns = MemoryLayouts.from_layouts(layouts)
    if not layouts:
        return None
    usual = TRAINERS["megatron"].applied(TrainingSetup(sequence=training.sequence))
    setup = replace(usual, flash_attention=training.flash)
    kept = obeying(columns, training.architecture, training.sequence)
    peaks = peak_bytes(columns, training.architecture, setup)
    kept &= peaks * (1 + MEMORY_BAND) <= machines.memory_bytes
    workload = Workload(
        architecture=training.architecture, seq=training.sequence, flash=training.flash
    )
    parts = step_parts(LayoutColumns.from_layouts(columns), workload, machines.machine)
    step_s_C = parts.step_s_C
    tokens_C = np.array([layout.global_batch * training.sequence for layout in layouts])
    speed_C = np.where(kept & np.isfinite(step_s_C), tokens_C / step_s_C, 0.0)
    best = int(speed_C.argmax())
    if not speed_C[best]:
        return None
    tokens_per_s = float(speed_C[best])
    per_token = FLOPS_PER_PARAMETER_AND_TOKEN * active_parameters
    busy = float(parts.ideal_s_C[best] / step_s_C[best])
    return Achieved(
        layout=layouts[best],
        step_s=float(step_s_C[best]),
        tokens_per_s=tokens_per_s,
        peak_bytes=float(peaks[best]),
        tflops_per_gpu=per_token * tokens_per_s / machines.gpus / 1e12,
        model_tflops_per_gpu=busy * machines.machine.accelerator.half_flops_per_s / 1e12,
        is_batch_changed=layouts[best].global_batch != training.global_batch,
    )


def _layouts(training: Training, machines: Machines) -> list[Layout]:
    """Those with exactly the batch; where there are none, those near it."""
    found = list(_all_layouts(training, machines))
    exact = [layout for layout in found if layout.global_batch == training.global_batch]
    return exact or found


def _all_layouts(training: Training, machines: Machines) -> Iterator[Layout]:
    for tensor, pipeline, context, expert in _meshes(training, machines):
        data = machines.gpus // (tensor * pipeline * context)
        for micro, recompute in itertools.product(_MICRO_BATCHES, Recompute):
            times = max(1, round(training.global_batch / (data * micro)))
            if abs(times * data * micro / training.global_batch - 1) > _BATCH_BAND:
                continue
            yield Layout(
                data_parallel=data,
                tensor_parallel=tensor,
                pipeline_parallel=pipeline,
                context_parallel=context,
                expert_parallel=expert,
                zero_stage=1,
                micro_batch=micro,
                accumulation=times,
                recompute=recompute,
                sequence_parallel=tensor > 1,
            )


def _meshes(training: Training, machines: Machines) -> Iterator[tuple[int, int, int, int]]:
    a, gpus = training.architecture, machines.gpus
    layers = a.layers + a.encoder_layers
    stages = [n for n in range(1, min(layers, _MOST_STAGES) + 1) if layers % n == 0]
    contexts = _DEGREES if training.sequence >= _LONG else (1,)
    experts = _DEGREES if a.experts else (1,)
    tensors = [n for n in _DEGREES if machines.machine.gpus_per_node % n == 0]
    for mesh in itertools.product(tensors, stages, contexts, experts):
        tensor, pipeline, context, expert = mesh
        ranks, rest = divmod(gpus, tensor * pipeline * context)
        if not rest and ranks * context % expert == 0:
            yield mesh
