"""The door to cost: the predictions for each candidate, and the candidates they rule out.

A model is known by its shapes (``Architecture``), on equal machines whose GPUs are known, or by a
run or a trace (``ModelSpec``), on whatever machines there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from autoconf_launch.core import (
    CONTEXT_BYTES,
    Architecture,
    ClusterSpec,
    Grade,
    MemoryUse,
    ModelSpec,
    Precision,
    Recompute,
    Workload,
)

from ..space import (
    UNCALIBRATED_MEMORY_BAND,
    Bools,
    CandidateTable,
    Floats,
    PredictionTable,
    Rule,
    blocks_fill_units,
    blocks_for_stages,
    blocks_to_recompute,
    degree_rule,
    tokens_for_sequence,
)
from .fitting import host_bytes, uses_host
from .hardware import Accelerator, Machine, Network, is_plain_fp32, reached_flops_per_s
from .kernel_times import (
    KernelTimes,
    fit_line,
    least_profiled_step_s,
    least_step_s,
    measured_timings,
    profiled_model,
)
from .layout_columns import LayoutColumns
from .memory import (
    FRAGMENTATION,
    NCCL_BYTES,
    REUSED,
    MemoryParts,
    RankMemory,
    memory_bytes,
    memory_parts,
    peak_bytes,
    rank_memory,
)
from .step import profiled_step_parts, step_parts, step_seconds
from .weights import SECOND_MICRO_BATCH, covered_rows

if TYPE_CHECKING:
    from ..space import SearchSpace  # its settings take long to import, and plan has none

STEP_TIME_BAND = 0.16
"""Nine of ten of the 1065 timed settings in the published tables that the model was fitted on are
within it (``benchmarks/planner_accuracy.py``; models that were excluded from the fit are about one
point worse)."""
EXPERTS_BAND = 0.42
"""22 of the 24 settings with experts in NVIDIA's published tables are within it (Megatron-Bridge
25.09 to 26.08: four models on H100, B200, B300 and GB200, in bf16, fp8 and mxfp8)."""
PROFILED_BAND = 0.3
"""Relative error to expect of a step's seconds; a guess until predictions are calibrated."""
EAGER_BAND = 0.5
"""The error for a script that was traced, not run; a guess: no table has such models."""
_UNREPEATED_BAND = 1.0
"""The same if only FLOPs are known and no repeated blocks tell how many kernels there are."""

Cluster: TypeAlias = ClusterSpec | Machine
_WITHOUT_WEIGHTS = ("micro_batch", "micro_batch_split", "accumulation", "recompute")
"""Knobs that change no rank's weights."""
_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
_LEAST_SPEED_UP = 1.1
"""Smaller gains are within the error of a step's prediction."""


def estimate(
    candidates: CandidateTable | LayoutColumns,
    workload: Workload,
    cluster: Cluster,
    calibration: Floats | None = None,
    *,
    untimed: KernelTimes | None = None,
) -> PredictionTable:
    """Predictions of the cost models for each candidate; NaN if impossible.

    Args:
        candidates: a table, or columns that may broadcast; columns give only peaks and seconds in
            shapes that broadcast to theirs, without parts and bounds.
        workload: the training. A profiled model needs a table and a ``ClusterSpec``; without a
            model everything is unknown.
        cluster: the machines. A model known by its shapes has seconds only on a ``Machine``; on a
            ``ClusterSpec``, whose nodes may differ, memory stage by stage.
        calibration: factor for the seconds of each row.
        untimed: seconds of a profiled model's micro-batches if none was timed.

    Raises:
        TypeError: candidates or cluster are not of the kind that this model needs.
    """
    if isinstance(workload.model, Architecture):
        if isinstance(candidates, CandidateTable):
            candidates = LayoutColumns.from_table(candidates)
        if isinstance(cluster, Machine):
            return _by_formula(candidates, workload, cluster, calibration)
        return _memory_by_formula(candidates, workload, cluster)
    if not isinstance(candidates, CandidateTable) or not isinstance(cluster, ClusterSpec):
        raise TypeError("a profile predicts rows of a table on a cluster that was found")
    if workload.model is None:
        unknown = np.full(len(candidates), np.nan)
        return PredictionTable(
            peak_bytes_C=unknown, step_s_C=unknown, band=None, how="the model is not known"
        )
    return _by_profile(candidates, workload, cluster, untimed)


def _by_formula(
    layouts: LayoutColumns,
    workload: Workload,
    machine: Machine,
    calibration: Floats | None,
) -> PredictionTable:
    peak_bytes_C, host_bytes_C = peak_bytes(layouts, workload), None
    if uses_host(layouts, workload):
        host_bytes_C = host_bytes(layouts, workload, machine.gpus_per_node)
    found = PredictionTable(
        peak_bytes_C=peak_bytes_C,
        step_s_C=np.full_like(peak_bytes_C, np.nan),
        band=STEP_TIME_BAND,
        how="the planner's time model",
        host_bytes_C=host_bytes_C,
    )
    if layouts.recompute_C.ndim > 1:
        return replace(found, step_s_C=step_seconds(layouts, workload, machine))
    parts = step_parts(layouts, workload, machine)
    step_s_C, factor = parts.step_s_C, 1.0 if calibration is None else calibration
    return replace(
        found,
        step_s_C=step_s_C * factor,
        least_step_s_C=least_step_s(layouts, workload, machine),
        parts=tuple(
            (name, np.broadcast_to(seconds, step_s_C.shape) * factor)
            for name, seconds in parts.named_parts()
        ),
    )


def _memory_by_formula(
    layouts: LayoutColumns, workload: Workload, cluster: ClusterSpec
) -> PredictionTable:
    """Memory of every stage; a pipeline of fewer stages than the longest repeats its last one."""
    longest = int(layouts.pipeline_C.max())
    stage_SC = np.minimum(np.arange(longest)[:, None], layouts.pipeline_C - 1)
    memory = memory_bytes(layouts, workload, stage_SC)
    gpus = max(len(node.devices) for node in cluster.nodes)
    return PredictionTable(
        peak_bytes_C=memory.peak_C,
        step_s_C=np.full_like(memory.peak_C, np.nan),
        band=None,
        how="memory by formula",
        stage_parts=memory.full(),
        limit_bytes=cluster.least_memory_bytes,
        host_bytes_C=(
            host_bytes(layouts, workload, gpus) if uses_host(layouts, workload) else None
        ),
    )


def _by_profile(
    table: CandidateTable, workload: Workload, cluster: ClusterSpec, untimed: KernelTimes | None
) -> PredictionTable:
    spec, network = profiled_model(workload), Network.of(cluster)
    kernels = None if measured_timings(spec) else untimed
    step = profiled_step_parts(table, workload, network, kernels)
    on_gpu = not all(device.name.startswith("cpu") for device in cluster.devices)
    known = np.where(covered_rows(table, spec), 0.0, np.nan)
    memory = memory_parts(table, workload)
    if on_gpu:
        memory = MemoryParts(named=traced_memory(table, workload))
    return PredictionTable(
        peak_bytes_C=memory.peak_C,
        step_s_C=step.step_s_C,
        least_step_s_C=known + least_profiled_step_s(table, spec),
        parts=step.profiled_parts(),
        memory_parts=memory.full(),
        limit_bytes=cluster.least_memory_bytes,
        band=untimed_band(spec) if kernels else PROFILED_BAND,
        how=_how(spec, network, is_untimed=kernels is not None),
    )


def traced_memory(table: CandidateTable, workload: Workload) -> tuple[tuple[str, Floats], ...]:
    """Name and bytes of each part on a GPU, as the driver counts them.

    Besides the parts of ``memory_parts``: buffers of collectives, the device's context, and
    memory that the allocator cannot use.
    """
    rank = rank_memory(table, workload, foreach=True)
    memory = rank.parts
    alone = _alone_parts(rank, table, workload)
    changed = {**dict(memory.named), **alone}
    coming = changed["activations"] + changed["gathered"]
    unused = (1.0 - REUSED) * np.minimum(rank.again, rank.loss)
    lost = np.maximum(FRAGMENTATION * coming, unused)
    freed = memory["activations"] + memory["logits"] + memory["gathered"]
    before_update = sum(changed[name] for name in ("gathered", "activations", "logits", "update"))
    updating = rank.temporary + (1.0 - REUSED) * freed * (rank.temporary > 0)
    return (
        *changed.items(),
        ("communication", np.where(table["data_parallel"] > 1, NCCL_BYTES, 0.0)),
        ("context", np.full(len(table), float(CONTEXT_BYTES))),
        ("fragmentation", np.asarray(np.maximum(lost, updating - before_update))),
        *((name, np.full(len(table), float(size))) for name, size in workload.beside),
    )


def _alone_parts(rank: RankMemory, table: CandidateTable, workload: Workload) -> dict[str, Floats]:
    """Parts of ranks whose gradients are made while activations go.

    Without recomputation that is the trace itself; with it gradients are whole once only one
    block's activations are left.
    """
    memory, peaks = rank.parts, profiled_model(workload).traced_peaks
    activations, logits = memory["activations"], memory["logits"]
    first = (table["data_parallel"] == 1) & (table["accumulation"] == 1)
    if not peaks:
        return {}
    lines = [
        fit_line([(p.micro_batch, float(p.peak_bytes)) for p in peaks if p.phase == phase])
        for phase in {peak.phase for peak in peaks} - {SECOND_MICRO_BATCH}
    ]
    most = np.max([line.at(table["micro_batch"]) for line in lines], axis=0)
    rest = memory.total - activations - memory["update"]
    traced = np.maximum(0.0, most - rest)
    late = np.maximum(activations + logits - memory["gradients"], rank.again)
    is_plain_C = first & table.is_value("recompute", Recompute.NONE)
    repeats_C = first & ~is_plain_C
    logits = np.where(repeats_C, np.minimum(logits, late), logits)
    activations = np.where(is_plain_C, traced, np.where(repeats_C, late - logits, activations))
    freed = activations + logits + memory["gathered"]
    update = np.where(first, np.maximum(0.0, rank.temporary - freed), memory["update"])
    return {"activations": activations, "logits": logits, "update": update}


def untimed_band(spec: ModelSpec) -> float:
    """Relative error to expect of seconds that only the FLOPs of blocks tell."""
    return EAGER_BAND if any(block.count > 1 for block in spec.blocks) else _UNREPEATED_BAND


def _how(spec: ModelSpec, network: Network | None, *, is_untimed: bool) -> str:
    memory = "traced memory" if spec.traced_peaks else "memory by formula"
    if is_untimed:
        return f"{memory}, time from FLOPs and the GPU's datasheet"
    count = len(measured_timings(spec))
    if not count:
        return f"{memory} only"
    links = " and links" if network else ""
    return f"{memory}, time from {count} profiled micro-batches{links}"


def memory_rule(
    predictions: PredictionTable, cluster: ClusterSpec, band: float = UNCALIBRATED_MEMORY_BAND
) -> Rule:
    """Rows that may fit: dropped is only what exceeds the smallest device by more than ``band``.

    The rule holds for the table that ``predictions`` were made for, and for no other.
    """
    limit_bytes = cluster.least_memory_bytes

    def keep(table: CandidateTable) -> Bools:
        if len(table) != len(predictions):
            raise ValueError(f"{len(predictions)} predictions are not of {len(table)} candidates")
        return ~(predictions.peak_bytes_C * (1 - band) > limit_bytes)

    return Rule(
        name="memory",
        keep=keep,
        why=f"a rank would need more than its {scaled_bytes(limit_bytes)}",
    )


def state_beyond_memory(
    space: SearchSpace, workload: Workload, cluster: ClusterSpec
) -> str | None:
    """Explain that no candidate's ranks can hold even weights, gradients and optimizer state.

    None if a candidate may fit, or if no formula covers it.
    """
    if not isinstance(spec := workload.model, ModelSpec):
        return None
    least_bytes, limit_bytes = np.inf, cluster.least_memory_bytes
    has_named_optimizer = workload.optimizer.name is not None  # a script's own may keep no state
    for table in (CandidateTable.from_candidates((space.baseline,)), space.table):
        parts = memory_parts(table, workload)
        state_bytes_C = parts["weights"] + parts["gradients"]
        if has_named_optimizer:
            state_bytes_C = state_bytes_C + parts["optimizer"]
        least_bytes = np.minimum(least_bytes, np.min(state_bytes_C, initial=np.inf))
    if not least_bytes * (1 - UNCALIBRATED_MEMORY_BAND) > limit_bytes:
        return None
    state = "gradients and optimizer state" if has_named_optimizer else "gradients"
    return (
        f"The model does not fit: {spec.parameters / 1e6:,.1f} M parameters with their {state} "
        f"take at least {scaled_bytes(least_bytes)} per rank, and its memory is "
        f"{scaled_bytes(limit_bytes)}. Use more ranks, or ranks with more memory."
    )


def weights_beyond_memory(space: SearchSpace, refused: MemoryUse | None) -> str | None:
    """Error sentence if the weights did not fit, and no candidate shards them differently."""
    if refused is None or not np.all(space.table.matches(space.baseline, but=_WITHOUT_WEIGHTS)):
        return None
    return (
        f"The model does not fit: its weights alone take at least "
        f"{scaled_bytes(refused.peak_bytes)} per rank, which has "
        f"{scaled_bytes(refused.free_before_bytes)}. Use ranks with more memory, or shard the "
        "weights over more ranks."
    )


def knob_rules(spec: ModelSpec | None) -> tuple[Rule, ...]:
    """Rules for other knobs that follow from the structure of an inspected model."""
    if spec is None or spec.grade not in (Grade.TRACED, Grade.MEASURED):
        return ()
    rules = [blocks_fill_units(sum(block.count for block in spec.blocks))]
    rules += [degree_rule(limits) for limits in spec.degree_limits]
    for limits in spec.degree_limits:
        if limits.most is not None:
            blocks = limits.most[1]
            rules += [blocks_for_stages(blocks), blocks_to_recompute(blocks)]
    if spec.sequence_length is not None:
        rules.append(tokens_for_sequence(spec.sequence_length))
    return tuple(rules)


def scaled_bytes(count_bytes: float) -> str:
    """``134 MB``, ``2.56 TB``: a size in an error, with three digits."""
    size, name = next((one for one in _SIZES if count_bytes >= 0.9995 * one[0]), (1.0, "B"))
    return f"{count_bytes / size:.3g} {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatGain:
    """A format, and how many times as fast a step would be with it."""

    precision: Precision
    speed_up: float


def format_gains(
    now: Precision, accelerator: Accelerator, step_s: Callable[[Precision], float | None]
) -> tuple[FormatGain, ...]:
    """Formats that would make a step of fp32 numbers faster, slower ones first.

    Args:
        now: format of the products.
        accelerator: the GPU; on a CPU nothing is gained.
        step_s: seconds of a step in a format; None if no time model covers it.
    """
    formats = tuple(_faster(now, accelerator))
    today_s = step_s(now) if formats else None
    if today_s is None:
        return ()
    steps = ((one, step_s(one)) for one in formats)
    gains = (FormatGain(precision=one, speed_up=today_s / s) for one, s in steps if s)
    return tuple(one for one in gains if one.speed_up >= _LEAST_SPEED_UP)


def measured_format_gains(
    now: Precision, machine: Machine, *, flops: float, step_s: float
) -> tuple[FormatGain, ...]:
    """The same from a measured step of one rank: only its products would be faster."""

    def products_s(precision: Precision) -> float:
        rate = reached_flops_per_s(machine.accelerator, precision, machine.physics)
        return flops / rate

    other_s = max(0.0, step_s - products_s(now))
    return format_gains(now, machine.accelerator, lambda one: other_s + products_s(one))


def _faster(now: Precision, accelerator: Accelerator) -> Iterator[Precision]:
    if now.value_bytes != 4 or accelerator.is_cpu:
        return
    if accelerator.tf32_flops_per_s is not None and is_plain_fp32(accelerator, now):
        yield Precision.TF32
    yield Precision.BF16 if accelerator.bf16 else Precision.FP16
