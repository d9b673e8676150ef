"""What was found in a script, as text and as a document. Not: what is predicted from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from autoconf_launch.core import Recompute

from ..traced.rooms import Room
from ..traced.script import TracedScript
from .tables import table_of

_GB = 2**30
_SCALES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def script_text(script: TracedScript) -> str:
    """One line on how it was looked into, one on what it trains, and notes."""
    return "\n".join(_lines(script))


def script_document(script: TracedScript, found: Sequence[Room] = ()) -> dict[str, Any]:
    """The section ``script`` of a document; GB of 2^30 bytes."""
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
        "forward_backward_flops": _flops(script),
        "rooms": [_room_document(room) for room in found],
        "left_behind": list(seen.left_behind),
        "notes": list(seen.notes),
    }


def rooms_table(script: TracedScript, found: Sequence[Room]) -> str:
    """ZeRO stages with their need, and the largest micro-batch that surely fits."""
    own = script.found.recompute
    names = {kind: kind.value for kind in Recompute} | {Recompute.NONE: own.value}
    rows = [
        [
            str(room.zero_stage),
            names[room.recompute] if script.architecture is None else room.recompute.value,
            f"{room.peak_bytes / _GB:.2f}",
            room.verdict.value,
            str(room.largest or "-"),
        ]
        for room in found
    ]
    headers = ["zero", "recompute", "GB", "fits", "largest micro-batch"]
    return table_of(rows, headers, ["right", "left", "right", "left", "right"])


def amount(value: float) -> str:
    """A number with three digits and a letter for its thousands."""
    scale, letter = next(((s, c) for s, c in _SCALES if value >= s), (1.0, ""))
    return f"{value / scale:.3g} {letter}"


def _lines(script: TracedScript) -> Iterator[str]:
    seen, model = script.found, script.found.model
    how = (
        "on fake tensors, nothing was computed"
        if seen.fake
        else "with real tensors on the CPU, no step was made"
    )
    yield f"{script.name}, stopped at its first forward pass ({how}):"
    some = "" if model.trainable_parameters == model.parameters else ", "
    some += f"{_count(model.trainable_parameters)} of them trained" if some else ""
    length = f" x {model.sequence_length} tokens" if model.sequence_length else ""
    yield (
        f"{_count(model.parameters)} weights{some}; a micro-batch of {seen.micro_batch}"
        f"{length} in {seen.precision.value} is {amount(_flops(script))}FLOP; "
        f"{_optimizer(script)}."
    )
    if script.architecture is None:
        yield (
            f"Answered from the pieces of its model, since {script.why_pieces}: data parallelism, "
            "ZeRO and recomputation; tensor and pipeline parallelism need a known architecture."
        )
    if not seen.backward:
        yield "It came to no backward pass, which is taken for twice the forward pass."
    for note in seen.notes:
        yield f"{note.rstrip('.')}."
    if seen.left_behind:
        yield f"It left in the working directory: {', '.join(seen.left_behind)}."


def _count(weights: int) -> str:
    """As one speaks of models: B for a thousand millions."""
    return amount(weights).replace("G", "B").rstrip()


def _optimizer(script: TracedScript) -> str:
    seen = script.found
    if seen.optimizer is None:
        return "no optimizer was made yet, AdamW is taken"
    if seen.state_bytes is None:
        return f"{seen.optimizer}, with {script.states} values a weight by its name"
    return f"{seen.optimizer} with {seen.state_bytes / _GB:.3g} GB of state"


def _flops(script: TracedScript) -> float:
    return sum(one.flops * one.count for one in script.found.operations)


def _room_document(room: Room) -> dict[str, Any]:
    return {
        "zero_stage": room.zero_stage,
        "recompute": room.recompute.value,
        "peak_memory_gb": round(room.peak_bytes / _GB, 3),
        "verdict": room.verdict.value,
        "largest_micro_batch": room.largest,
    }
