"""Memory and time of layouts of a script whose model is known by its pieces alone.

Data parallelism, ZeRO and recomputation, as our runtime does them. Not: which of them are asked
for (fitting, planning).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from autoconf_launch.autotuner.cost.compute import StepSeconds, step_seconds
from autoconf_launch.autotuner.cost.eager import forward_backward_s, update_s
from autoconf_launch.autotuner.cost.exchange import Network
from autoconf_launch.autotuner.cost.facts import TrainingFacts
from autoconf_launch.autotuner.cost.fitting import Verdict, verdict
from autoconf_launch.autotuner.cost.line import fit
from autoconf_launch.autotuner.cost.memory import MemoryParts, memory_parts
from autoconf_launch.autotuner.cost.memory_overheads import (
    CONTEXT_BYTES,
    FRAGMENTATION,
    NCCL_BYTES,
)
from autoconf_launch.autotuner.cost.model.kernels import Kernels
from autoconf_launch.autotuner.cost.model.physics import DEFAULT_PHYSICS
from autoconf_launch.autotuner.table import CandidateTable, Floats
from autoconf_launch.core import (
    Candidate,
    ClusterSpec,
    Layout,
    MicroBatchTiming,
    ModelSpec,
    Precision,
    Recompute,
)

from ..planner.training_choice import machine_of
from .script import TracedScript


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRow:
    """One layout.

    Attributes:
        memory: name and bytes of each part; they add up to the peak.
        step_s: None where no GPU's time is known.
        step: name and seconds of each part of the step.
    """

    layout: Layout
    memory: tuple[tuple[str, float], ...]
    verdict: Verdict
    step_s: float | None
    step: tuple[tuple[str, float], ...]

    @property
    def peak_bytes(self) -> float:
        """Sum of all parts."""
        return sum(size for _, size in self.memory)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What stands beside a layout."""

    script: TracedScript
    cluster: ClusterSpec
    precision: Precision
    states: int
    limit_bytes: int


def traced_rows(asked: Asked, layouts: Sequence[Layout]) -> tuple[TracedRow, ...]:
    """Each layout's memory and time, in order."""
    if not layouts:
        return ()
    table = _table(layouts)
    spec, facts = _with_states(asked), _facts(asked)
    named = _parts(asked, table)
    steps = [_step(asked, spec, facts, table.take([i])) for i in range(len(table))]
    return tuple(_row(asked, layout, i, named, steps[i]) for i, layout in enumerate(layouts))


def peak_bytes(asked: Asked, layout: Layout) -> float:
    """Bytes of a rank alone, without seconds."""
    return sum(float(sizes[0]) for _, sizes in _parts(asked, _table([layout])))


def _table(layouts: Sequence[Layout]) -> CandidateTable:
    return CandidateTable.from_candidates([Candidate(layout=layout) for layout in layouts])


def _facts(asked: Asked) -> TrainingFacts:
    return TrainingFacts(optimizer="sgd", extra_states=asked.states, precision=asked.precision)


def _parts(asked: Asked, table: CandidateTable) -> tuple[tuple[str, Floats], ...]:
    spec = _with_states(asked)
    memory = memory_parts(table, spec, _facts(asked), foreach=True)
    return _memory(memory, _alone(memory, table, spec), table)


def recomputations(script: TracedScript) -> tuple[Recompute, ...]:
    """Kinds that can be asked for: a script that recomputes by itself goes on doing so."""
    repeated = any(block.count > 1 and block.input_bytes for block in script.found.model.blocks)
    if script.found.recompute is not Recompute.NONE or not repeated:
        return (Recompute.NONE,)
    return (Recompute.NONE, Recompute.FULL)


def _with_states(asked: Asked) -> ModelSpec:
    """The peaks with the state of the optimizer asked for."""
    spec = asked.script.spec
    more = asked.states - asked.script.states
    state_bytes = int(more * spec.trainable_parameters * spec.parameter_bytes_each)
    peaks = tuple(
        replace(peak, peak_bytes=peak.peak_bytes + state_bytes) for peak in spec.traced_peaks
    )
    return replace(spec, traced_peaks=peaks)


def _alone(memory: MemoryParts, table: CandidateTable, spec: ModelSpec) -> Floats:
    """Activations of ranks whose gradients are made while activations go: the trace itself."""
    activations = memory.activations_bytes_C
    if not spec.traced_peaks:
        return activations
    phases = {peak.phase for peak in spec.traced_peaks}
    lines = [
        fit(
            [(p.micro_batch, float(p.peak_bytes)) for p in spec.traced_peaks if p.phase == phase]
        ).at(table["micro_batch"])
        for phase in phases
    ]
    rest = memory.peak_bytes_C - activations - memory.update_bytes_C
    exact = np.maximum(0.0, np.max(lines, axis=0) - rest)
    first = (table["data_parallel"] == 1) & (table["accumulation"] == 1)
    plain = first & table.is_value("recompute", Recompute.NONE)
    return np.asarray(np.where(plain, exact, activations), np.float64)


def _memory(
    memory: MemoryParts, activations: Floats, table: CandidateTable
) -> tuple[tuple[str, Floats], ...]:
    memory = replace(memory, activations_bytes_C=activations)
    parts = [
        (part.name.removesuffix("_bytes_C"), getattr(memory, part.name)) for part in fields(memory)
    ]
    coming = memory.activations_bytes_C + memory.gathered_bytes_C
    return (
        *parts,
        ("communication", np.where(table["data_parallel"] > 1, NCCL_BYTES, 0.0)),
        ("context", np.full(len(table), CONTEXT_BYTES)),
        ("fragmentation", np.asarray(FRAGMENTATION * coming)),
    )


def _step(asked: Asked, spec: ModelSpec, facts: TrainingFacts, one: CandidateTable) -> StepSeconds:
    """Parts of one row's step, from the seconds of its own micro-batch."""
    kernels = Kernels(
        accelerator=machine_of(asked.cluster).accelerator,
        physics=DEFAULT_PHYSICS,
        precision=asked.precision,
    )
    found, size = asked.script.found, int(one["micro_batch"][0])
    seconds = forward_backward_s(found.operations, kernels, share=size / found.micro_batch)
    timing = MicroBatchTiming(micro_batch=size, forward_backward_s=seconds, activation_bytes=0)
    weights = spec.trainable_parameters * spec.parameter_bytes_each
    timed = replace(
        spec,
        timings=(timing,) if found.operations else (),
        optimizer_step_s=update_s(weights, asked.states, kernels),
    )
    return step_seconds(one, timed, facts, Network.of(asked.cluster))


def _row(
    asked: Asked,
    layout: Layout,
    i: int,
    named: Sequence[tuple[str, Floats]],
    step: StepSeconds,
) -> TracedRow:
    memory = tuple((name, float(sizes[i])) for name, sizes in named)
    seconds = float(step.step_s_C[0])
    timed = bool(np.isfinite(seconds))
    return TracedRow(
        layout=layout,
        memory=memory,
        verdict=verdict(sum(size for _, size in memory), asked.limit_bytes),
        step_s=seconds if timed else None,
        step=tuple((name, float(part[0])) for name, part in step.parts()) if timed else (),
    )
