"""What is said of a script, and the plan of one whose model is known by its pieces.

The document has the fields of a plan's, and ``script``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from autoconf_launch.autotuner.cost import EAGER_BAND, MEMORY_BAND
from autoconf_launch.core import Bystander, OperationCost, Recompute, encode

from ..first_forward import PiecesPlan, Room, TracedRow, TracedScript
from .cells import (
    amount,
    count_text,
    format_gains_document,
    format_gains_text,
    gib,
    memory_size,
    percent,
    size_text,
    step_time_text,
    trainer_text,
)
from .fit import gpus_text, marginal_note
from .plan import PLAN_SCHEMA_VERSION
from .tables import each, rows_documents, rows_text


def script_text(script: TracedScript) -> str:
    """One line on how it was looked into, one on what it trains, and notes."""
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


def _recompute_text(script: TracedScript, room: Room) -> str:
    """What the script does itself, unless more is recomputed."""
    is_own = script.architecture is not None and room.recompute is Recompute.NONE
    return (script.found.recompute if is_own else room.recompute).value


_ROOM_COLUMNS = (
    each("zero_stage", "", "zero"),
    each("recompute", "recompute.value"),
    each("", _recompute_text, "recompute", is_left=True),
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


_MOST_NAMED = 4
_LEAST_NAMED_BYTES = 1 << 20


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


def pieces_plan_text(answer: PiecesPlan) -> str:
    """What was found, the ranking, and what its numbers are."""
    script, training = answer.asked.script, answer.asked.training
    head = (
        f"{script_text(script)}\n\n{script.name}: "
        f"{count_text(script.found.model.parameters)} parameters, global batch "
        f"{training.workload.global_batch}, on {gpus_text(training.cluster)}, "
        f"{trainer_text(training.trainer)}\n{answer.considered:,} layouts considered in "
        f"{answer.seconds:.2f} s, {answer.fit:,} fit"
    )
    if not answer.best:
        return head
    note = (
        "Step times are rooflines over the traced operations, one kernel each, at the rates that "
        f"kernels reach: ±{percent(EAGER_BAND)}, so the order is a guide. Memory is "
        f"±{percent(MEMORY_BAND)}; a rank has {memory_size(training.limit_bytes)}."
    )
    marked = marginal_note([row.verdict for row in answer.best])
    notes = "\n".join(filter(None, [format_gains_text(answer.gains), note, *marked]))
    return "\n\n".join([head, rows_text(_ROW_COLUMNS, answer.best, answer, first=1), notes])


def pieces_plan_document(answer: PiecesPlan) -> dict[str, Any]:
    """A document, as that of a plan."""
    return {
        "schema_version": PLAN_SCHEMA_VERSION,
        "trainer": answer.asked.training.trainer.name,
        "considered": answer.considered,
        "valid": answer.considered,
        "fit": answer.fit,
        "seconds": answer.seconds,
        "headroom": answer.headroom,
        "limit_gib": gib(answer.asked.training.limit_bytes),
        "best": rows_documents(_ROW_COLUMNS, answer.best, answer),
        "rejected": {"memory": answer.considered - answer.fit},
        "faster_formats": format_gains_document(answer.gains),
        "script": script_document(answer.asked.script),
    }


def _free(answer: PiecesPlan, row: TracedRow) -> float:
    """Share of a GPU's memory that is left."""
    return 1.0 - row.peak_bytes / answer.asked.training.limit_bytes


def _usd(answer: PiecesPlan, row: TracedRow) -> float | None:
    hourly, gpus = answer.usd_per_gpu_hour, len(answer.asked.training.cluster.devices)
    return None if hourly is None or row.step_s is None else hourly * gpus * row.step_s / 3600


_ROW_COLUMNS = (
    each("candidate", lambda a, row: encode(row.layout)),
    each("", "layout.data_parallel", "dp"),
    each("", "layout.zero_stage", "zero"),
    each("", "layout.micro_batch", "micro"),
    each("", "layout.accumulation", "acc"),
    each("", "layout.recompute.value", "recompute", is_left=True),
    each("step_time_s", "step_s", "step", step_time_text),
    each("step_time_band", lambda a, row: EAGER_BAND),
    each("peak_memory_gib", "peak_bytes", "memory", lambda size: memory_size(size, 2), data=gib),
    each("free_memory", _free, "free", percent),
    each("fits", "verdict.value", "fits", is_left=True),
    each("usd_per_step", _usd),
    each("parts", lambda a, row: dict(row.step)),
    each("runs_here", lambda a, row: "with the script"),
    each("runnable", lambda a, row: False),
)
