"""The answer of ``fit``, and a script's first forward pass, as text and as documents."""

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
    Architecture,
    Bystander,
    Candidate,
    ClusterSpec,
    OperationCost,
    Recompute,
    Workload,
    encode,
)

from ..estimates import FitAnswer, HostMemory, TrainingRequest, has_rates, limit_to_lift
from ..first_forward import Room, TracedScript
from ..machine import is_cpu
from .cells import (
    adapters_text,
    amount,
    count_text,
    format_gains_document,
    format_gains_text,
    gib,
    host_text,
    memory_size,
    memory_unit,
    percent,
    size_text,
    states_text,
    step_time_text,
    table_of,
    trainer_text,
)
from .columns import state_text
from .plan_reasons import bands_text, unchecked_text
from .tables import each, rows_documents, rows_text

FIT_SCHEMA_VERSION = 2
_MOST_STAGES = 8
"""Stages that are columns of the table of parts; more are its rows."""
HOST_NOT_CHECKED = (
    "Host memory is not checked; host_memory_gib in a cluster file says how much a node has."
)
ROUGH_CPU = (
    "Times on a CPU are rough: they follow from a matrix product and a copy measured here just "
    "now."
)
ANSWERS = {
    Verdict.YES: "yes: it fits",
    Verdict.MARGINAL: "marginal: it may fit",
    Verdict.NO: "no: it does not fit",
}
_MOST_NAMED = 4
_LEAST_NAMED_BYTES = 1 << 20
_LEAST_SHOWN = 0.005
"""Parts of fewer units of a table would be written as 0.00."""


def _nodes(kinds: Sequence[Any], one: StagePlan) -> str:
    return " + ".join(kinds[kind].name for kind in one.kinds)


STAGE_COLUMNS = (
    each("stage", lambda kinds, one: one.ranks.start // len(one.ranks), "stage", is_left=True),
    each("nodes", _nodes, "nodes", is_left=True),
    each("", lambda kinds, one: f"{one.ranks[0]} to {one.ranks[-1]}", "ranks"),
    each("layers", header="layers"),
    each("micro_batch_s", "", "micro-batch", step_time_text),
    each("peak_memory_gib", "peak_bytes", "needs", memory_size, data=gib),
    each("limit_gib", "limit_bytes", "has", memory_size, data=gib),
)
"""Rows are pipeline stages on kinds of node."""


def _slower(answer: FitAnswer, remedy: Remedy) -> float | None:
    is_known = remedy.step_s is not None and answer.step_s
    return remedy.step_s / answer.step_s - 1 if is_known else None  # type: ignore[operator]


REMEDY_COLUMNS = (
    each("changes", lambda a, one: [*one.changes], "what would fit", " ".join, is_left=True),
    each("layout", lambda a, one: encode(one.proposal.layout)),
    each("peak_memory_gib", "peak_bytes", "memory", memory_size, data=gib),
    each("verdict", "verdict.value", "fits", is_left=True),
    each("step_time_s", "step_s", "step", step_time_text),
    each("", _slower, "slower", lambda share: percent(share, "+")),
    each("host_memory_gib", "host_bytes", "host memory per node", host_text, data=gib),
)


def marginal_note(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """A sentence on the mark of rows that may run out of memory; nothing without such rows."""
    if Verdict.MARGINAL in verdicts:
        yield (
            f"marginal: below the memory limit by less than the error band of ±"
            f"{percent(MEMORY_BAND)}, so it may run out."
        )


def fit_text(answer: FitAnswer) -> str:
    """Head, a table of parts by stages, the verdict, and changes that would help."""
    stages = [f"stage {stage}" for stage in range(len(answer.memory.total))]
    blocks = [_headline(answer), parts_table([(n, x.tolist()) for n, x in _parts(answer)], stages)]
    if (found := answer.by_stages) is not None:
        table = rows_text(STAGE_COLUMNS, found.stages, answer.cluster.kinds)
        blocks.append(f"{table}\nA step takes {step_time_text(found.step_s)}.")
    blocks.append(_verdict(answer))
    blocks += [*_notes(answer), *filter(None, [format_gains_text(answer.gains)])]
    if not has_rates(answer.cluster):
        blocks.append(
            f"No step time is predicted: our table of GPUs lacks "
            f"{answer.cluster.devices[0].name}, whose memory is as its driver reports it. "
            "autoconf-launch doctor --measure-gpu --save FILE measures its rates."
        )
    if answer.remedies:
        blocks.append(_remedies(answer))
    lifted = limit_to_lift(_fullest_rank(answer)[0], answer.limit_bytes, answer.cluster)
    if lifted and not answer.host.is_short:
        blocks.append(f"It fits without {lifted}.")
    elif answer.verdict is Verdict.NO and not answer.remedies:
        blocks.append(_more_gpus(answer))
    return "\n\n".join(blocks)


def _notes(answer: FitAnswer) -> list[str]:
    """The runner, if it is not our runtime, and the step's band on a described GPU."""
    notes = [f"{state_text(answer.state)}."] if answer.state.rule else []
    if answer.bands:
        notes.append(
            " ".join((bands_text(answer.bands, "published"), *unchecked_text(answer.bands)))
        )
    return notes


def _more_gpus(answer: FitAnswer) -> str:
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
    """``8 x A100-SXM-80GB + 8 x H100-SXM-80GB``: number of GPUs of each kind."""
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
        "model": answer.script or answer.asked.workload.architecture.name,
        "parameters": _count(answer.asked.workload),
        "trainer": answer.trainer.name,
        "layout": encode(answer.asked.layout),
        "verdict": answer.verdict.value,
        "peak_memory_gib": gib(float(total_S.max())),
        "peak_memory_band": MEMORY_BAND,
        "limit_gib": gib(answer.limit_bytes),
        "host_memory_gib": gib(answer.host.needed_bytes),
        "host_limit_gib": None if host_limit is None else gib(host_limit),
        "step_time_s": answer.step_s,
        "runs_here": answer.state.runs_here,
        "notes": _notes(answer),
        "faster_formats": format_gains_document(answer.gains),
        "stages": [
            {
                "stage": stage,
                "memory_gib": gib(float(total)),
                "parts": {name: gib(float(sizes[stage])) for name, sizes in _parts(answer)},
                **own,
            }
            for stage, (total, own) in enumerate(zip(total_S, _stages(answer), strict=True))
        ],
        "remedies": rows_documents(REMEDY_COLUMNS, answer.remedies, answer),
        "smallest_cluster": cluster_name(answer.smallest) if answer.smallest else None,
    }


def training_text(training: TrainingRequest, place: str = "", script: str = "") -> str:
    """Model, size, batch, place and trainer of an answer; a script's model has its name."""
    model, length = _model_texts(training.workload, script)
    on = f", on {place}" if place else ""
    batch = f"global batch {training.workload.global_batch}{length}{on}"
    return f"{model}, {batch}, {trainer_text(training.trainer)}"


def _model_texts(workload: Workload, script: str) -> tuple[str, str]:
    """The model with its size, and what its samples are."""
    if script:
        return f"{script}: {count_text(_count(workload))} parameters", ""
    model = workload.architecture
    weights, active = parameters(model), active_parameters(model)
    idle = f" ({count_text(active)} for each token)" if active != weights else ""
    length = (
        f" of {workload.sequence_length} tokens{adapters_text(workload)}{states_text(workload)}"
    )
    return f"{model.name}: {count_text(weights)} parameters{idle}", length


def _count(workload: Workload) -> int:
    model = workload.model
    if isinstance(model, Architecture):
        return parameters(model)
    return 0 if model is None else model.parameters


def _headline(answer: FitAnswer) -> str:
    layout, (model, length) = (
        answer.asked.layout,
        _model_texts(answer.asked.workload, answer.script),
    )
    sizes = f"dp={layout.data_parallel}"
    if not answer.script:
        sizes += f" tp={layout.tensor_parallel} pp={layout.pipeline_parallel} "
        sizes += f"cp={layout.context_parallel}"
    return (
        f"{model}, on {gpus_text(answer.cluster)}, {trainer_text(answer.trainer)}\n"
        f"{candidate_name(Candidate(layout=layout))}: {sizes}, "
        f"global batch {layout.global_batch}{length}"
    )


def parts_table(parts: Sequence[tuple[str, Sequence[float]]], names: Sequence[str]) -> str:
    """Bytes of parts and their sums; names are columns, or rows if there are many."""
    sums = [sum(sizes) for sizes in zip(*(sizes for _, sizes in parts), strict=True)]
    unit_name, unit = memory_unit(max(sums))
    shown = [(part, sizes) for part, sizes in parts if max(sizes) >= _LEAST_SHOWN * unit]
    cells = [
        [part, *(f"{x / unit:.2f}" for x in sizes)] for part, sizes in (*shown, ("sum", sums))
    ]
    table = [[f"{unit_name} of a rank", *names], *cells]
    if len(names) > _MOST_STAGES:
        table = [[*row] for row in zip(*table, strict=True)]
    return table_of(table[1:], table[0], ["left", *("right" for _ in table[0][1:])])


def _stages(answer: FitAnswer) -> list[dict[str, Any]]:
    if answer.by_stages is None:
        return [{} for _ in answer.memory.total]
    return rows_documents(STAGE_COLUMNS, answer.by_stages.stages, answer.cluster.kinds)


def _parts(answer: FitAnswer) -> list[tuple[str, Any]]:
    """Bytes of each part on each stage."""
    shape = len(answer.memory.total), 1
    return [(name, np.broadcast_to(x, shape)[:, 0]) for name, x in answer.memory.named]


def _fullest_rank(answer: FitAnswer) -> tuple[float, int]:
    """Bytes of the fullest rank, and its stage."""
    if answer.by_stages is not None:
        tightest = answer.by_stages.tightest
        return tightest.peak_bytes, answer.by_stages.stages.index(tightest)
    total_S = answer.memory.total[:, 0]
    return float(total_S.max()), int(total_S.argmax())


def _verdict(answer: FitAnswer) -> str:
    needed, stage = _fullest_rank(answer)
    return (
        f"{ANSWERS[answer.verdict]}. The fullest rank (stage {stage}) needs "
        f"{memory_size(needed)} ±{percent(MEMORY_BAND)} of {memory_size(answer.limit_bytes)}."
        f"{_host_text(answer.host)}"
    )


def _host_text(host: HostMemory) -> str:
    if not host.needed_bytes:
        return ""
    needed = f" Offload needs {memory_size(host.needed_bytes)} of host memory per node"
    if host.limit_bytes is None:
        return f"{needed}. {HOST_NOT_CHECKED}"
    return f"{needed}; {host_limit_text(host.limit_bytes)}."


def host_limit_text(limit_bytes: float) -> str:
    """Host memory of a node; CPU processes and unified memory have none beyond their own."""
    if not limit_bytes:
        return "the memory of its processes is the host's own"
    return f"it has {memory_size(limit_bytes)}"


def why_not_fit(needed_bytes: float, limit_bytes: float) -> str:
    """The sentence on a training that needs too much."""
    return (
        f"it does not fit: a rank needs {memory_size(needed_bytes)} and may use "
        f"{memory_size(limit_bytes)}."
    )


def _remedies(answer: FitAnswer) -> str:
    table = rows_text(REMEDY_COLUMNS, answer.remedies, answer)
    is_open = answer.host.limit_bytes is None and not answer.host.needed_bytes
    if is_open and any(remedy.host_bytes for remedy in answer.remedies):
        table += f"\n{HOST_NOT_CHECKED}"
    return table


def script_text(script: TracedScript) -> str:
    """A line on how the script was inspected, a line on its training, and notes."""
    return "\n".join(_lines(script))


def script_document(script: TracedScript, found: Sequence[Room] = ()) -> dict[str, Any]:
    """The section ``script`` of a document; ``_gib`` is of 2^30 bytes."""
    seen = script.found
    return {
        "name": script.name,
        "fake": seen.fake,
        "known_by": "pieces" if script.architecture is None else "architecture",
        "why_pieces": script.why_pieces or None,
        "parameters": seen.model.parameters,
        "trainable_parameters": seen.model.trainable_parameters,
        "micro_batch": seen.micro_batch,
        "sequence_length": seen.model.sequence_length,
        "precision": seen.precision.value,
        "recompute": seen.recompute.value,
        "optimizer": seen.optimizer,
        "optimizer_state_bytes": seen.state_bytes,
        "forward_backward_flops": _flops(seen.operations),
        "frozen_flops": _flops(seen.frozen_operations),
        "rooms": rows_documents(_ROOM_COLUMNS, found, script),
        "bystanders": [encode(one) for one in seen.bystanders],
        "left_behind": list(seen.left_behind),
        "notes": list(seen.notes),
    }


def rooms_table(script: TracedScript, found: Sequence[Room]) -> str:
    """ZeRO stages with their need, and the largest micro-batch that fits safely."""
    return rows_text(_ROOM_COLUMNS, found, script)


def _room_recompute(script: TracedScript, room: Room) -> str:
    is_own = script.architecture is not None and room.recompute is Recompute.NONE
    return (script.found.recompute if is_own else room.recompute).value


_ROOM_COLUMNS = (
    each("zero_stage", "", "zero"),
    each("recompute", "recompute.value"),
    each("", _room_recompute, "recompute", is_left=True),
    each("peak_memory_gib", "peak_bytes", "memory", memory_size, data=gib),
    each("verdict", "verdict.value", "fits", is_left=True),
    each("largest_micro_batch", "largest", "largest micro-batch", lambda n: str(n or "none")),
)


def _lines(script: TracedScript) -> Iterator[str]:
    seen, model = script.found, script.found.model
    how = (
        "on fake tensors, nothing was computed"
        if seen.fake
        else "with real tensors on the CPU, no step was made"
    )
    yield f"{script.name}, stopped at its first forward pass ({how}):"
    some = "" if model.trainable_parameters == model.parameters else ", "
    some += f"{count_text(model.trainable_parameters)} of them trained" if some else ""
    length = f" x {model.sequence_length} tokens" if model.sequence_length else ""
    frozen = _flops(seen.frozen_operations)
    without = f", {amount(frozen)}FLOP of them without gradients" if frozen else ""
    yield (
        f"{count_text(model.parameters)} parameters{some}; a micro-batch of {seen.micro_batch}"
        f"{length} in {seen.precision.value} is {amount(_flops(seen.operations))}FLOP{without}; "
        f"{_optimizer(script)}."
    )
    if script.architecture is None:
        yield (
            f"Answered from the pieces of its model, since {script.why_pieces}: data parallelism, "
            "ZeRO and recomputation; tensor and pipeline parallelism need a known architecture."
        )
    if others := _bystanders(seen.bystanders):
        yield f"Also on the device: {others}."
    yield "Models that it makes later, such as an EMA copy after a warm-up, are not counted."
    if not seen.backward:
        yield "No backward pass ran; it is estimated as twice the forward pass."
    for note in seen.notes:
        yield f"{note.rstrip('.')}."
    if seen.left_behind:
        yield f"It left in the working directory: {', '.join(seen.left_behind)}."


def _bystanders(found: Sequence[Bystander]) -> str:
    """Models and tensors besides the trained model, the largest ones by name."""
    large = [one for one in found if one.size_bytes >= _LEAST_NAMED_BYTES]
    texts = [
        f"{one.name} of {count_text(one.parameters)} parameters ({memory_size(one.size_bytes, 2)})"
        if one.parameters
        else f"{memory_size(one.size_bytes, 2)} of {one.name}"
        for one in large[:_MOST_NAMED]
    ]
    if rest := sum(one.size_bytes for one in large[_MOST_NAMED:]):
        texts.append(f"{memory_size(rest, 2)} of others")
    return ", ".join(texts)


def _optimizer(script: TracedScript) -> str:
    seen = script.found
    if seen.optimizer is None:
        return "no optimizer was made yet; assuming AdamW"
    if seen.state_bytes is None:
        return f"{seen.optimizer}, with {script.states:g} values a weight by its name"
    return f"{size_text(seen.state_bytes)} of {seen.optimizer} state"


def _flops(operations: Sequence[OperationCost]) -> float:
    return sum(one.flops * one.count for one in operations)
