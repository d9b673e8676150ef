"""Rows of measurements as inputs of the time model.

A row's training code is its column ``trainer``, else the code of a known source, else the code
that a plan of the row would choose (``trainer_of``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from autoconf_launch.autotuner.cost import (
    DEFAULT_PHYSICS,
    Accelerator,
    LayoutColumns,
    Machine,
    Physics,
    active_parameters,
    computes_in,
    estimate,
    kernel_traits,
    peak_flops_per_s,
    trained_share,
)
from autoconf_launch.autotuner.layers import (
    dense_layer_weights,
    embedding_weights,
)
from autoconf_launch.autotuner.mixed import GivenStages, MachineKind, given_stages
from autoconf_launch.autotuner.planner import choose_trainer
from autoconf_launch.autotuner.space import CandidateTable, Floats, PredictionTable
from autoconf_launch.core import (
    Architecture,
    Candidate,
    ConfigError,
    Layout,
    Recompute,
    Software,
    Workload,
    even_pipeline_split,
)
from autoconf_launch.tuning_spaces import (
    CHECKED,
    fabric,
    fabric_names,
    known_accelerator,
    machine,
    named_model,
    trainer,
    usable_bytes,
)

from .row import PublishedRow
from .row_shape import RowShape

_BOUNDARIES = re.compile(r"layer partition boundaries \[([\d, ]+)\]")
_BEFORE = 2
"""Modules of DeepSpeed's GPT pipeline before its first layer: embedding and a transposition."""
_SOURCES = (
    ("bigscience-workshop/bigscience", "megatron-deepspeed"),
    ("VIA-Research/vTrain", "megatron-deepspeed"),
    ("DachengLi1/AMP", "megatron-deepspeed"),
    ("mosaicml/llm-foundry", "llm-foundry"),
    ("pytorch/torchtitan benchmarks/llama3-8b_h200_202506_trainy-whitefiber", "torchtitan-2025"),
    ("pytorch/torchtitan", "torchtitan"),
    ("pytorch/torchtune", "torchtune"),
    ("NVIDIA/NeMo", "nemo"),
    ("NVIDIA-NeMo/Automodel", "automodel"),
    ("NVIDIA-NeMo/", "nemo"),
    ("NVIDIA/dgxc-benchmarking", "nemo-2025"),
    ("MooreThreads/SimuMax", "megatron"),
    ("huggingface/nanotron", "nanotron"),
    ("HF nanotron", "nanotron"),
    ("InternLM/InternEvo", "internevo"),
    ("arXiv:2104.04473", "megatron-2021"),
)
"""Published tables by their sources, and the code that each one ran; the first that matches."""
_RELEASE = re.compile(r"release (\d\d\.\d\d)")
_GRAPHED = "26.06"
"""NVIDIA's release from which on ``nemo`` is as ``trainers`` has it."""
_ANY_GPU = "A100-SXM-80GB"
_MOST_OVER_DENSE = 1.6
_ETHERNET = "ethernet"
_NONBLOCKING = "nonblocking"
_HALF_CARD = 0.5
"""Share of an Ethernet card that nodes of different instance types reach between them, in and out.

AMP's 12 V100 and 4 T4 reach 5.0 Gb/s of a card of 10 with one, two and four rings across it alike,
by the difference to the same layouts on only T4. Half of the card is what AWS documents for
traffic through a gateway ("Amazon EC2 instance network bandwidth"); AMP does not say how its nodes
were joined, so that this is the likely reason and not a proven one."""
_FAST_BYTES_PER_S = 100e9 / 8
_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*(Gb/s|Gbps|GB/s)", re.IGNORECASE)
_COUNT_BEFORE = re.compile(r"(\d+)\s*x\s*(?:[A-Za-z][\w-]*\s+)?$")
_COUNT_AFTER = re.compile(r"^\s*x\s*(\d+)")
MIXED_GPUS = "mixed GPUs"
TOO_FAST = "faster than the peak of its GPUs"
_OFFLOADING = ("GB200", "GB300", "GH200")
"""GPUs on one board with their host, whose memory NVIDIA's recipes send activations to instead
(Megatron-Bridge, ``cpu_offloading_num_layers`` of Llama 3 70B on GB200)."""


def noted_stage_layers(one: PublishedRow) -> tuple[int, ...] | None:
    """Layers of each pipeline stage as the row's note gives them; None without them."""
    match = _BOUNDARIES.search(one.note)
    if match is None:
        return None
    edges = np.array([int(edge) for edge in match[1].split(",")])
    if len(edges) != one.layout.pipeline_parallel + 1:
        return None
    inside = np.clip(edges - _BEFORE, 0, one.shape.layers)
    return tuple(np.diff(inside).tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """Rows whose steps take as long by the time model, were their layouts the same.

    Attributes:
        workload: workload of the first row; others may differ in settings that only change memory.
        rows: positions in the sequence given.
    """

    workload: Workload
    machine: Machine
    layouts: LayoutColumns
    rows: tuple[int, ...]


def network_bytes_per_s(interconnect: str, gpus_per_node: int) -> float | None:
    """All network cards of a node together; None if none is named.

    Understands ``8x200Gb/s HDR``, ``4x Omni-Path 100Gb/s per node``, ``400 Gb/s RDMA per GPU``.
    """
    found = None
    for part in interconnect.split(";"):
        for match in _RATE.finditer(part):
            before, after = part[: match.start()], part[match.end() :]
            if "nvlink" in before.lower() or "nvswitch" in before.lower():
                continue
            rate = float(match[1]) * (1e9 if match[2] == "GB/s" else 1e9 / 8)
            count = _COUNT_BEFORE.search(before) or _COUNT_AFTER.search(after)
            per_gpu = "per gpu" in after.lower()
            found = rate * (int(count[1]) if count else gpus_per_node if per_gpu else 1)
    return found


def named_fabric(interconnect: str, node_bytes_per_s: float) -> str:
    """The network that a text names; below 100 Gb/s for a whole node it is Ethernet with TCP."""
    names = [name for name in fabric_names() if re.search(rf"\b{name}\b", interconnect.lower())]
    usual = _ETHERNET if node_bytes_per_s < _FAST_BYTES_PER_S else _NONBLOCKING
    return next(iter(names), usual)


@cache  # tables have few shapes and many rows
def nearest_architecture(shape: RowShape) -> Architecture:
    """The model that comes nearest to its published number of parameters.

    Few tables say whether the MLP is gated and the embeddings are tied.
    """
    if (known := shape.known or _known_model(shape)) is not None:
        return known
    gates = (False, True) if shape.gated is None else (shape.gated,)
    ties = (True, False) if shape.tied is None else (shape.tied,)
    made = [_architecture(shape, gated, tied) for gated in gates for tied in ties]
    if shape.params_b is None:
        return made[0]
    return min(made, key=lambda one: abs(_weights(one) - (shape.params_b or 0.0) * 1e9))


def _known_model(shape: RowShape) -> Architecture | None:
    """The named model of these shapes: it has experts and other things that no table states."""
    try:
        named = named_model(re.sub(r"\s*\(.*\)", "", shape.name).strip())
    except ConfigError:
        return None
    same = (named.layers, named.hidden, named.heads) == (shape.layers, shape.hidden, shape.heads)
    return replace(named, vocabulary=shape.vocabulary) if same else None


def _lacks_experts(one: PublishedRow) -> bool:
    """Far more parameters than its shapes give, or ranks for experts; no column states those."""
    model = nearest_architecture(one.shape)
    if model.experts is not None:
        return False
    published = (one.shape.params_b or 0.0) * 1e9
    return one.layout.expert_parallel > 1 or published > _MOST_OVER_DENSE * _weights(model)


def _architecture(shape: RowShape, gated: bool, tied: bool) -> Architecture:
    return Architecture(
        name=shape.name,
        layers=shape.layers,
        hidden=shape.hidden,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head=max(1, shape.hidden // shape.heads),
        ffn=shape.ffn,
        vocabulary=shape.vocabulary,
        gated=gated,
        tied_embeddings=tied,
        experts=shape.experts,
    )


def _weights(model: Architecture) -> float:
    return model.layers * dense_layer_weights(model) + embedding_weights(model) * (
        1 if model.tied_embeddings else 2
    )


def trainer_of(one: PublishedRow) -> str:
    """The training code that a row is predicted for; its note is never read for it."""
    if one.trainer is not None:
        return one.trainer
    name = next((name for source, name in _SOURCES if source in one.source), None)
    if name is None:
        return choose_trainer(_plain_workload(one), [one.gpu], CHECKED).name
    if name == "nemo" and (release := _RELEASE.search(one.source)):
        return name if release[1] >= _GRAPHED else "nemo-2025"
    return name


def workload_of(one: PublishedRow) -> Workload:
    """The row's training, with the habits of its training code for empty columns."""
    usual = trainer(trainer_of(one)).apply_to(_plain_workload(one))
    if one.async_tensor is None:
        return usual
    return replace(usual, software=replace(usual.software, async_tensor=one.async_tensor))


def _plain_workload(one: PublishedRow) -> Workload:
    return replace(
        one.training,
        model=nearest_architecture(one.shape),
        sequence_length=one.shape.seq,
        precision=one.precision,
        software=Software(compiled=bool(one.compiled)),
    )


def row_layout(one: PublishedRow) -> Layout:
    """The row's layout, with its code's habit if sequence parallelism is left open."""
    if "sequence_parallel" not in one.assumed or one.layout.tensor_parallel == 1:
        return one.layout
    return replace(one.layout, sequence_parallel=trainer(trainer_of(one)).sequence_parallel)


def is_impossible(one: PublishedRow, model: Architecture, gpu: Accelerator) -> bool:
    """True if a step is faster than only the layers' matrix products at the GPU's peak.

    LoRA needs the gradients of activations only, so 4 operations per weight and token, not 6.
    """
    if one.step_time_s is None or model.encoder_layers:
        return False
    tables = 1 if model.tied_embeddings else 2
    weights = active_parameters(model) - tables * embedding_weights(model)
    tokens = one.global_batch * (one.shape.seq or 0)
    flops = (4.0 if one.training.trains_adapters else 6.0) * weights * tokens
    peak = max(gpu.half_flops_per_s, peak_flops_per_s(gpu, one.precision))
    return one.step_time_s < flops / one.gpus / peak


def runs_of(
    measurements: Sequence[PublishedRow],
) -> tuple[tuple[MeasuredRun, ...], dict[int, str]]:
    """Rows together that the model can take in one call; and why others cannot be predicted."""
    grouped: dict[tuple[tuple[object, ...], Machine], list[int]] = {}
    reasons: dict[int, str] = {}
    for i, one in enumerate(measurements):
        if known_accelerator(one.gpu) is None:
            reasons[i] = MIXED_GPUS if "+" in one.gpu else "unknown GPU"
            continue
        if _lacks_experts(one):
            reasons[i] = "no experts"
            continue
        node = one.gpus_per_node
        place = machine(one.gpu, gpus_per_node=node)
        if not computes_in(place.accelerator, one.precision):
            reasons[i] = f"{one.gpu} does not compute in {one.precision.value}"
            continue
        if is_impossible(one, nearest_architecture(one.shape), place.accelerator):
            reasons[i] = TOO_FAST
            continue
        network = network_bytes_per_s(one.interconnect, place.gpus_per_node)
        if network:
            place = machine(
                one.gpu,
                gpus_per_node=node,
                network_bytes_per_s=network,
                fabric_name=named_fabric(one.interconnect, network),
            )
        grouped.setdefault((_model_key(workload_of(one)), place), []).append(i)
    return tuple(_run(measurements, rows, place) for (_, place), rows in grouped.items()), reasons


def _model_key(workload: Workload) -> tuple[object, ...]:
    w = workload
    recipe = (w.optimizer, w.weight_format, w.updates_in_backward)
    return w.architecture, w.sequence_length, trained_share(w), *recipe, *kernel_traits(w)


def _run(measurements: Sequence[PublishedRow], rows: Sequence[int], place: Machine) -> MeasuredRun:
    return MeasuredRun(
        workload=workload_of(measurements[rows[0]]),
        machine=place,
        layouts=row_columns([measurements[i] for i in rows]),
        rows=(*rows,),
    )


def row_columns(rows: Sequence[PublishedRow]) -> LayoutColumns:
    """The layout of each row, with broken accumulation and noted stages."""
    given = [replace(row_layout(one), pipeline_split=noted_stage_layers(one)) for one in rows]
    table = CandidateTable.from_candidates([Candidate(layout=layout) for layout in given])
    return replace(
        LayoutColumns.from_table(table),
        accumulation_C=np.array([one.accumulation for one in rows]),
    )


def predict(
    run: MeasuredRun, physics: Physics = DEFAULT_PHYSICS, calibration: Floats | None = None
) -> PredictionTable:
    """Prediction of the cost model for a run's rows."""
    return estimate(run.layouts, run.workload, replace(run.machine, physics=physics), calibration)


def predicted_s(
    runs: Sequence[MeasuredRun], count: int, physics: Physics = DEFAULT_PHYSICS
) -> Floats:
    """Seconds for each of ``count`` rows; NaN for those in no run."""
    seconds = np.full(count, np.nan)
    for run in runs:
        seconds[list(run.rows)] = predict(run, physics).step_s_C
    return seconds


def peaks_bytes(measurements: Sequence[PublishedRow], rows: Sequence[int]) -> Floats:
    """Bytes of the fullest rank for each of ``rows``; NaN for the others.

    They are the same on any machine, so that mixed and unknown GPUs have them, too.
    """
    peaks = np.full(len(measurements), np.nan)
    grouped: dict[tuple[object, ...], list[int]] = {}
    for i in rows:
        one = measurements[i]
        key = (one.shape, trainer_of(one), one.precision, one.compiled, one.training)
        grouped.setdefault(key, []).append(i)
    for same in grouped.values():
        layouts = [row_layout(measurements[i]) for i in same]
        table = CandidateTable.from_candidates([Candidate(layout=one) for one in layouts])
        first = measurements[same[0]]
        place = machine(first.gpu if known_accelerator(first.gpu) else _ANY_GPU)
        peaks[same] = estimate(table, workload_of(first), place).peak_bytes_C
    return peaks


def with_recompute(measurements: Sequence[PublishedRow]) -> tuple[PublishedRow, ...]:
    """Rows with selective recomputation if it makes room and the table does not state it.

    Only rows that ran are filled in; tables state full recomputation, as it is slow.
    """
    filled = list(measurements)
    left = [i for i, one in enumerate(filled) if _leaves_recompute_open(one)]
    full_bytes = [usable_bytes(filled[i].gpu) for i in left]
    plain = peaks_bytes(measurements, left)[left]
    rows = (measurements[i] for i in left)
    selective = Recompute.SELECTIVE
    tried = [replace(one, layout=replace(one.layout, recompute=selective)) for one in rows]
    less = peaks_bytes(tried, range(len(tried)))
    for i, one, most, least, limit in zip(left, tried, plain, less, full_bytes, strict=True):
        if least <= limit < most:
            filled[i] = one
    return tuple(filled)


def _leaves_recompute_open(one: PublishedRow) -> bool:
    name = known_accelerator(one.gpu)
    is_open = "recompute" in one.assumed and not one.out_of_memory
    return is_open and name is not None and not name.startswith(_OFFLOADING)


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedGpus:
    """Some equal GPUs of a mix, and the network of their nodes."""

    gpu: str
    count: int
    interconnect: str


def kinds_of(one: PublishedRow) -> tuple[NamedGpus, ...]:
    """GPUs of ``V100-16GBx12+T4x4`` with their networks; empty if it is not such a mix."""
    parts = one.gpu.split("+")
    found = [re.fullmatch(r"\s*(.+?)\s*x\s*(\d+)\s*", part) for part in parts]
    if len(parts) < 2 or not all(m and known_accelerator(m[1]) for m in found):
        return ()
    networks = one.interconnect.split("+")
    if len(networks) != len(parts):
        networks = [one.interconnect] * len(parts)
    pairs = zip(found, networks, strict=True)
    return tuple(NamedGpus(gpu=m[1], count=int(m[2]), interconnect=n) for m, n in pairs if m)


def mixed_step_s(rows: Sequence[PublishedRow], physics: Physics = DEFAULT_PHYSICS) -> Floats:
    """Seconds of each row; NaN if its machines are unknown or do not fill whole nodes."""
    found = (_mixed_stages(one, physics) for one in rows)
    return np.array([np.nan if one is None else one.step_s for one in found], np.float64)


def mixed_memory(one: PublishedRow) -> tuple[float, float]:
    """Peak of the rank with the least memory left, and its GPU's memory; NaN if unknown."""
    found = _mixed_stages(one, DEFAULT_PHYSICS)
    if found is None:
        return np.nan, np.nan
    tightest = max(found.stages, key=lambda stage: stage.peak_bytes / stage.limit_bytes)
    return tightest.peak_bytes, tightest.limit_bytes


def _mixed_stages(one: PublishedRow, physics: Physics) -> GivenStages | None:
    named = kinds_of(one)
    are_nodes_whole = all(kind.count % (one.gpus_per_node or 1) == 0 for kind in named)
    if not named or not are_nodes_whole or sum(kind.count for kind in named) != one.gpus:
        return None
    kinds = [_machine_kind(one, some, physics) for some in named]
    split = noted_stage_layers(one) or even_pipeline_split(
        one.shape.layers, one.layout.pipeline_parallel
    )
    columns = replace(
        LayoutColumns.from_layouts([row_layout(one)]),
        accumulation_C=np.array([one.accumulation]),
    )
    order = [number for number, kind in enumerate(kinds) for _ in range(kind.count)]
    return given_stages(columns, workload_of(one), kinds, order, split)


def _machine_kind(one: PublishedRow, some: NamedGpus, physics: Physics) -> MachineKind:
    alone = replace(one, gpu=some.gpu, interconnect=some.interconnect, step_time_s=None)
    run = runs_of([alone])[0][0]
    nodes = replace(run.machine, physics=physics)
    if nodes.fabric == fabric(_ETHERNET):
        slow = replace(nodes.fabric, rate=_HALF_CARD / physics.network_fraction)
        nodes = replace(nodes, fabric=slow)
    return MachineKind(
        name=some.gpu,
        machine=nodes,
        count=some.count // run.machine.gpus_per_node,
        memory_bytes=usable_bytes(some.gpu),
    )
