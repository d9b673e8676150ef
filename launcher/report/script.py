"""What is said of a script that was stopped at its first forward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from autoconf_launch.core import Bystander, OperationCost, Recompute, encode

from ..first_forward import Room, TracedScript
from .cells import (
    amount,
    count_text,
    gib,
    memory_size,
    size_text,
)
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
