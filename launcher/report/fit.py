"""The answer of ``fit`` as text and as a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from autoconf_launch.autotuner.cost import (
    MEMORY_BAND,
    Remedy,
    Verdict,
    active_parameters,
    parameters,
)
from autoconf_launch.autotuner.planner import StagePlan
from autoconf_launch.autotuner.space import candidate_name
from autoconf_launch.core import (
    FIRST_FSDP_STAGE,
    Architecture,
    Candidate,
    ClusterSpec,
    Framework,
    Layout,
    encode,
)

from ..estimates import FitAnswer, HostMemory, TrainingRequest, has_rates
from ..machine import is_cpu
from .cells import (
    adapters_text,
    count_text,
    format_gains_document,
    format_gains_text,
    gib,
    memory_size,
    memory_unit,
    percent,
    step_time_text,
    table_of,
    trainer_text,
)

FIT_SCHEMA_VERSION = 2
_COLUMNS = 8
HOST_NOT_CHECKED = (
    "Host memory is not checked; host_memory_gib in a cluster file says how much a node has."
)
ANSWERS = {
    Verdict.YES: "yes: it fits",
    Verdict.MARGINAL: "marginal: it may fit",
    Verdict.NO: "no: it does not fit",
}
_LEAST_SHOWN = 0.005


def marginal_note(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """One sentence on the mark of rows that may run out of memory; nothing if there is none."""
    if Verdict.MARGINAL in verdicts:
        yield (
            f"marginal: below the memory limit by less than the error band of ±"
            f"{percent(MEMORY_BAND)}, so it may run out."
        )


def fit_text(answer: FitAnswer) -> str:
    """Head, a table of parts by stages, the verdict, and what would help."""
    blocks = [_headline(answer), _table(answer)]
    if (found := answer.by_stages) is not None:
        table = stages_table(answer.asked.layout, found.stages, answer.cluster.kinds)
        blocks.append(f"{table}\nA step takes {step_time_text(found.step_s)}.")
    blocks.append(_verdict(answer))
    blocks += _notes(answer)
    if gains := format_gains_text(answer.gains):
        blocks.append(gains)
    if not has_rates(answer.cluster):
        blocks.append(
            f"No step time is predicted: our table of GPUs lacks "
            f"{answer.cluster.devices[0].name}, whose memory is as its driver reports it."
        )
    if answer.remedies:
        blocks.append(_remedies(answer))
    elif answer.verdict is Verdict.NO:
        blocks.append(_more_gpus(answer))
    return "\n\n".join(blocks)


def _notes(answer: FitAnswer) -> list[str]:
    """Sentences on what a reader would not expect."""
    layout, framework = answer.asked.layout, answer.asked.workload.software.framework
    is_fsdp = framework is Framework.FSDP and layout.zero_stage >= FIRST_FSDP_STAGE
    if (
        not is_fsdp
        or layout.pipeline_parallel == 1
        or layout.data_parallel * layout.context_parallel == 1
    ):
        return []
    return [
        "With pipeline stages, FSDP keeps a rank's whole weights and whole fp32 gradients until "
        "the last micro-batch (row gathered), so more stages can need more memory."
    ]


def _more_gpus(answer: FitAnswer) -> str:
    """What would hold the training where no small change of its layout does."""
    if answer.by_stages is not None:
        return "autoconf-launch plan ranks the layouts that fit on this cluster."
    why, cluster = "It does not fit even with three layout changes", answer.smallest
    if is_cpu(answer.cluster):
        return f"{why} on this machine's CPU; ask about GPUs with --cluster, such as 8xH100."
    if cluster is None:
        return f"{why}; use larger GPUs."
    if cluster == answer.cluster:
        return f"{why}; autoconf-launch plan ranks the layouts that fit on this cluster."
    return (
        f"{why}; as the GPUs are doubled, the first cluster that fits without offload is "
        f"{cluster_name(cluster)}."
    )


def gpus_text(cluster: ClusterSpec) -> str:
    """``8 x A100-SXM-80GB + 8 x H100-SXM-80GB``: how many GPUs of each kind."""
    counts = Counter(device.name for device in cluster.devices)
    return " + ".join(f"{count} x {name}" for name, count in counts.items())


def cluster_name(cluster: ClusterSpec) -> str:
    """``2x8xA100-SXM-80GB``: equal nodes as ``--cluster`` takes them."""
    devices = cluster.nodes[0].devices
    return f"{len(cluster.nodes)}x{len(devices)}x{devices[0].name}"


def fit_document(answer: FitAnswer) -> dict[str, Any]:
    """A document; keys in ``_gib`` are of 2^30 bytes."""
    total_S, host_limit = answer.memory.total[:, 0], answer.host.limit_bytes
    return {
        "schema_version": FIT_SCHEMA_VERSION,
        "model": answer.asked.workload.architecture.name,
        "parameters": parameters(answer.asked.workload.architecture),
        "trainer": answer.trainer.name,
        "layout": encode(answer.asked.layout),
        "verdict": answer.verdict.value,
        "peak_memory_gib": gib(float(total_S.max())),
        "peak_memory_band": MEMORY_BAND,
        "limit_gib": gib(answer.limit_bytes),
        "host_memory_gib": gib(answer.host.needed_bytes),
        "host_limit_gib": None if host_limit is None else gib(host_limit),
        "step_time_s": answer.step_s,
        "notes": _notes(answer),
        "faster_formats": format_gains_document(answer.gains),
        "stages": [
            {
                "stage": stage,
                "memory_gib": gib(float(total)),
                "parts": _parts(answer, stage),
                **_stage_document(answer, stage),
            }
            for stage, total in enumerate(total_S)
        ],
        "remedies": [_remedy_document(remedy) for remedy in answer.remedies],
        "smallest_cluster": cluster_name(answer.smallest) if answer.smallest else None,
    }


def _stage_document(answer: FitAnswer, stage: int) -> dict[str, Any]:
    """Where a stage lies; nothing where all nodes and stages are equal."""
    if answer.by_stages is None:
        return {}
    one, kinds = answer.by_stages.stages[stage], answer.cluster.kinds
    return {
        "nodes": " + ".join(kinds[kind].name for kind in one.kinds),
        "layers": one.layers,
        "peak_memory_gib": gib(one.peak_bytes),
        "limit_gib": gib(one.limit_bytes),
        "micro_batch_s": one.micro_batch_s,
    }


def training_text(training: TrainingRequest, place: str = "") -> str:
    """Model, its size, the batch, where it trains, and whose rules the answer follows."""
    workload = training.workload
    on = f", on {place}" if place else ""
    return (
        f"{_model_text(workload.architecture)}, global batch {workload.global_batch} of "
        f"{workload.sequence_length} tokens{adapters_text(workload)}{on}, "
        f"{trainer_text(training.trainer)}"
    )


def _model_text(model: Architecture) -> str:
    weights, active = parameters(model), active_parameters(model)
    idle = f" ({count_text(active)} for each token)" if active != weights else ""
    return f"{model.name}: {count_text(weights)} parameters{idle}"


def _headline(answer: FitAnswer) -> str:
    workload, layout = answer.asked.workload, answer.asked.layout
    return (
        f"{_model_text(workload.architecture)}, on {gpus_text(answer.cluster)}, "
        f"{trainer_text(answer.trainer)}\n"
        f"{candidate_name(Candidate(layout=layout))}: dp={layout.data_parallel} "
        f"tp={layout.tensor_parallel} pp={layout.pipeline_parallel} "
        f"cp={layout.context_parallel}, global batch {layout.global_batch} of "
        f"{workload.sequence_length} tokens{adapters_text(workload)}"
    )


def _table(answer: FitAnswer) -> str:
    """Parts as rows and stages as columns; the other way round where stages are many."""
    total_S = answer.memory.total[:, 0]
    named = [*_shown_parts(answer), ("sum", total_S)]
    unit_name, unit = memory_unit(float(total_S.max()))
    cells = [[f"{size / unit:.2f}" for size in sizes] for _, sizes in named]
    names = [name for name, _ in named]
    stages = [str(stage) for stage in range(len(total_S))]
    if len(stages) > _COLUMNS:
        rows = [[stage, *parts] for stage, *parts in zip(stages, *cells, strict=True)]
        headers = [f"{unit_name} of stage", *names]
    else:
        rows = [[name, *sizes] for name, sizes in zip(names, cells, strict=True)]
        headers = [f"{unit_name} of a rank", *(f"stage {stage}" for stage in stages)]
    return table_of(rows, headers, ["left", *("right" for _ in headers[1:])])


def stages_table(layout: Layout, stages: Sequence[StagePlan], kinds: Sequence[Any]) -> str:
    """Where each stage lies, and what it needs of its own GPUs.

    Args:
        layout: of the row.
        stages: of the row, which name kinds by number.
        kinds: of nodes, with their names.
    """
    ranks = layout.world_size // len(stages)
    rows = [
        [
            str(number),
            " + ".join(kinds[kind].name for kind in stage.kinds),
            f"{number * ranks} to {(number + 1) * ranks - 1}",
            str(stage.layers),
            step_time_text(stage.micro_batch_s),
            memory_size(stage.peak_bytes),
            memory_size(stage.limit_bytes),
        ]
        for number, stage in enumerate(stages)
    ]
    headers = ["stage", "nodes", "ranks", "layers", "micro-batch", "needs", "has"]
    return table_of(rows, headers, ["left", "left", *["right"] * 5])


def _shown_parts(answer: FitAnswer) -> list[tuple[str, Any]]:
    count = len(answer.memory.total)
    least = _LEAST_SHOWN * memory_unit(float(answer.memory.total.max()))[1]
    parts = [
        (name, np.broadcast_to(sizes, (count, 1))[:, 0]) for name, sizes in answer.memory.named
    ]
    return [(name, sizes) for name, sizes in parts if sizes.max() >= least]


def _parts(answer: FitAnswer, stage: int) -> dict[str, float]:
    count = len(answer.memory.total)
    return {
        name: gib(float(np.broadcast_to(sizes, (count, 1))[stage, 0]))
        for name, sizes in answer.memory.named
    }


def _verdict(answer: FitAnswer) -> str:
    total_S = answer.memory.total[:, 0]
    needed, stage = float(total_S.max()), int(total_S.argmax())
    if answer.by_stages is not None:
        tightest = answer.by_stages.tightest
        needed, stage = tightest.peak_bytes, answer.by_stages.stages.index(tightest)
    return (
        f"{ANSWERS[answer.verdict]}. The fullest rank (stage {stage}) needs "
        f"{memory_size(needed)} ±{percent(MEMORY_BAND)} of {memory_size(answer.limit_bytes)}."
        f"{_host_text(answer.host)}"
    )


def _host_text(host: HostMemory) -> str:
    """What is offloaded, against the host memory of a node; empty where nothing is."""
    if not host.needed_bytes:
        return ""
    needed = f" Offload needs {memory_size(host.needed_bytes)} of host memory per node"
    if host.limit_bytes is None:
        return f"{needed}. {HOST_NOT_CHECKED}"
    return f"{needed}; {host_limit_text(host.limit_bytes)}."


def host_limit_text(limit_bytes: float) -> str:
    """What a node has; nothing where its ranks are processes of a CPU."""
    if not limit_bytes:
        return "CPU processes have no host memory beyond their own"
    return f"it has {memory_size(limit_bytes)}"


def _remedies(answer: FitAnswer) -> str:
    """What would fit, with its step and how much longer that is than the one asked for."""
    rows = [
        [
            " ".join(remedy.changes),
            memory_size(remedy.peak_bytes),
            remedy.verdict.value,
            *_price(remedy.step_s, answer.step_s),
            memory_size(remedy.host_bytes) if remedy.host_bytes else "-",
        ]
        for remedy in answer.remedies
    ]
    headers = ["what would fit", "memory", "fits", "step", "slower", "host memory per node"]
    if not any(remedy.host_bytes for remedy in answer.remedies):
        rows, headers = [row[:-1] for row in rows], headers[:-1]
    table = table_of(rows, headers, ["left", "right", "left", *("right" for _ in headers[3:])])
    is_open = answer.host.limit_bytes is None and not answer.host.needed_bytes
    if is_open and "host memory per node" in headers:
        table += f"\n{HOST_NOT_CHECKED}"
    return table


def _price(step_s: float | None, asked_s: float | None) -> tuple[str, str]:
    if step_s is None or not asked_s:
        return "-", "-"
    return step_time_text(step_s), percent(step_s / asked_s - 1, "+")


def _remedy_document(remedy: Remedy) -> dict[str, Any]:
    return {
        "changes": list(remedy.changes),
        "layout": encode(remedy.proposal.layout),
        "peak_memory_gib": gib(remedy.peak_bytes),
        "verdict": remedy.verdict.value,
        "step_time_s": remedy.step_s,
        "host_memory_gib": gib(remedy.host_bytes),
    }
