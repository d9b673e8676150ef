"""Answers for a script whose model is known by its pieces.

The documents have the fields of those of ``fit`` and ``plan``, and ``script``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from autoconf_launch.autotuner.cost import EAGER_BAND, MEMORY_BAND, TrainerChoice, Verdict
from autoconf_launch.autotuner.space import candidate_name
from autoconf_launch.core import Bystander, Candidate, Layout, OperationCost, Recompute, encode

from ..estimates import limit_to_lift
from ..first_forward import PiecesFit, PiecesPlan, PiecesQuestion, Room, TracedRow, TracedScript
from ..machine import is_cpu
from .cells import (
    amount,
    count_text,
    format_gains_document,
    format_gains_text,
    gib,
    memory_size,
    memory_unit,
    percent,
    size_text,
    step_time_text,
    table_of,
    trainer_text,
)
from .fit import ANSWERS, FIT_SCHEMA_VERSION, gpus_text, marginal_note
from .plan import PLAN_SCHEMA_VERSION


def script_text(script: TracedScript, choice: TrainerChoice | None = None) -> str:
    """One line on how it was looked into, one on what it trains, and notes.

    Args:
        script: what was found.
        choice: whose rules the answer follows; None: the answer below names it.
    """
    return "\n".join(_lines(script, "" if choice is None else f", {trainer_text(choice)}"))


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
        "rooms": [_room_document(room) for room in found],
        "bystanders": [encode(one) for one in seen.bystanders],
        "left_behind": list(seen.left_behind),
        "notes": list(seen.notes),
    }


def rooms_table(script: TracedScript, found: Sequence[Room]) -> str:
    """ZeRO stages with their need, and the largest micro-batch that fits safely."""
    own = script.found.recompute
    names = {kind: kind.value for kind in Recompute} | {Recompute.NONE: own.value}
    rows = [
        [
            str(room.zero_stage),
            names[room.recompute] if script.architecture is None else room.recompute.value,
            memory_size(room.peak_bytes),
            room.verdict.value,
            str(room.largest or "-"),
        ]
        for room in found
    ]
    headers = ["zero", "recompute", "memory", "fits", "largest micro-batch"]
    return table_of(rows, headers, ["right", "left", "right", "left", "right"])


def _lines(script: TracedScript, rules: str) -> Iterator[str]:
    seen, model = script.found, script.found.model
    how = (
        "on fake tensors, nothing was computed"
        if seen.fake
        else "with real tensors on the CPU, no step was made"
    )
    yield f"{script.name}, stopped at its first forward pass ({how}){rules}:"
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


def _room_document(room: Room) -> dict[str, Any]:
    return {
        "zero_stage": room.zero_stage,
        "recompute": room.recompute.value,
        "peak_memory_gib": gib(room.peak_bytes),
        "verdict": room.verdict.value,
        "largest_micro_batch": room.largest,
    }


_LEAST_SHOWN = 0.005


def pieces_fit_text(answer: PiecesFit) -> str:
    """What was found, the parts, the verdict, what each stage leaves room for."""
    asked, row = answer.asked, answer.row
    blocks = [
        f"{_head(asked)}, {_layout_text(row.layout)}",
        _parts_table(row),
        f"{ANSWERS[row.verdict]}. A rank needs {memory_size(row.peak_bytes)} "
        f"±{percent(MEMORY_BAND)} of {memory_size(asked.training.limit_bytes)}.",
        *filter(None, [format_gains_text(answer.gains)]),
        rooms_table(asked.script, answer.rooms),
    ]
    if answer.remedies:
        blocks.append(_remedies(answer))
    limit_bytes, cluster = asked.training.limit_bytes, asked.training.cluster
    if lifted := limit_to_lift(row.peak_bytes, limit_bytes, cluster):
        blocks.append(f"It fits without {lifted}.")
    elif row.verdict is Verdict.NO and not answer.remedies:
        larger = "ask about GPUs with --cluster" if is_cpu(cluster) else "use larger GPUs"
        blocks.append(f"No ZeRO stage, micro-batch or recomputation makes it fit; {larger}.")
    return "\n\n".join(blocks)


def pieces_fit_document(answer: PiecesFit) -> str:
    """One JSON document; keys in ``_gib`` are of 2^30 bytes."""
    asked, row = answer.asked, answer.row
    document = {
        "schema_version": FIT_SCHEMA_VERSION,
        "model": asked.script.name,
        "parameters": asked.script.found.model.parameters,
        "trainer": asked.training.trainer.name,
        "layout": encode(row.layout),
        "verdict": row.verdict.value,
        "peak_memory_gib": gib(row.peak_bytes),
        "peak_memory_band": MEMORY_BAND,
        "limit_gib": gib(asked.training.limit_bytes),
        "step_time_s": row.step_s,
        "faster_formats": format_gains_document(answer.gains),
        "stages": [{"stage": 0, "memory_gib": gib(row.peak_bytes), "parts": _parts(row)}],
        "remedies": [_remedy_document(row.layout, one) for one in answer.remedies],
        "script": script_document(asked.script, answer.rooms),
    }
    return json.dumps(document, indent=2, allow_nan=False)


def pieces_plan_text(answer: PiecesPlan) -> str:
    """What was found, the ranking, and what its numbers are."""
    asked = answer.asked
    head = (
        f"{_head(asked)}, global batch "
        f"{asked.training.workload.global_batch}: {answer.considered:,} layouts considered in "
        f"{answer.seconds:.2f} s, {answer.fit:,} fit"
    )
    if not answer.best:
        return head
    note = (
        "Step times are rooflines over the traced operations, one kernel each, at the rates that "
        f"kernels reach: ±{percent(EAGER_BAND)}, so the order is a guide. Memory is "
        f"±{percent(MEMORY_BAND)}; a rank has {memory_size(asked.training.limit_bytes)}."
    )
    marked = marginal_note([row.verdict for row in answer.best])
    notes = "\n".join(filter(None, [format_gains_text(answer.gains), note, *marked]))
    return "\n\n".join([head, _ranking(answer), notes])


def pieces_plan_document(answer: PiecesPlan, usd_per_gpu_hour: float | None) -> dict[str, Any]:
    """A document, as that of a plan."""
    gpus = len(answer.asked.training.cluster.devices)
    usd_per_s = None if usd_per_gpu_hour is None else usd_per_gpu_hour * gpus / 3600
    return {
        "schema_version": PLAN_SCHEMA_VERSION,
        "trainer": answer.asked.training.trainer.name,
        "considered": answer.considered,
        "valid": answer.considered,
        "fit": answer.fit,
        "seconds": answer.seconds,
        "headroom": answer.headroom,
        "limit_gib": gib(answer.asked.training.limit_bytes),
        "best": [
            _row_document(row, usd_per_s) | {"free_memory": _free(answer, row)}
            for row in answer.best
        ],
        "rejected": {"memory": answer.considered - answer.fit},
        "faster_formats": format_gains_document(answer.gains),
        "script": script_document(answer.asked.script),
    }


def _head(asked: PiecesQuestion) -> str:
    """The script, and where it trains."""
    place = gpus_text(asked.training.cluster)
    return f"{script_text(asked.script, asked.training.trainer)}\nOn {place}"


def _layout_text(layout: Layout) -> str:
    return (
        f"{candidate_name(Candidate(layout=layout))}: dp={layout.data_parallel}, "
        f"global batch {layout.global_batch}"
    )


def _parts_table(row: TracedRow) -> str:
    unit_name, unit = memory_unit(row.peak_bytes)
    shown = [(name, size) for name, size in row.memory if size / unit >= _LEAST_SHOWN]
    cells = [[name, f"{size / unit:.2f}"] for name, size in (*shown, ("sum", row.peak_bytes))]
    return table_of(cells, [f"{unit_name} of a rank", ""], ["left", "right"])


def _remedies(answer: PiecesFit) -> str:
    asked = answer.row
    rows = [
        [
            " ".join(_changes(asked.layout, one.layout)),
            memory_size(one.peak_bytes, 2),
            one.verdict.value,
            "-" if one.step_s is None else step_time_text(one.step_s),
            "-"
            if one.step_s is None or not asked.step_s
            else percent(one.step_s / asked.step_s - 1, "+"),
        ]
        for one in answer.remedies
    ]
    headers = ["what would fit", "memory", "fits", "step", "slower"]
    return table_of(rows, headers, ["left", "right", "left", "right", "right"])


def _changes(asked: Layout, changed: Layout) -> list[str]:
    named = (
        ("micro-batch", asked.micro_batch, changed.micro_batch),
        ("recompute", asked.recompute.value, changed.recompute.value),
        ("zero", asked.zero_stage, changed.zero_stage),
    )
    return [f"{name}={after}" for name, before, after in named if before != after]


def _ranking(answer: PiecesPlan) -> str:
    cells = [
        [
            str(rank),
            str(row.layout.data_parallel),
            str(row.layout.zero_stage),
            str(row.layout.micro_batch),
            str(row.layout.accumulation),
            row.layout.recompute.value,
            "-" if row.step_s is None else step_time_text(row.step_s),
            memory_size(row.peak_bytes, 2),
            percent(_free(answer, row)),
            row.verdict.value,
        ]
        for rank, row in enumerate(answer.best, start=1)
    ]
    headers = ["#", "dp", "zero", "micro", "acc", "recompute", "step", "memory", "free", "fits"]
    right = "right"
    return table_of(cells, headers, [right] * 5 + ["left", right, right, right, "left"])


def _free(answer: PiecesPlan, row: TracedRow) -> float:
    """Share of a GPU's memory that is left."""
    return 1.0 - row.peak_bytes / answer.asked.training.limit_bytes


def _row_document(row: TracedRow, usd_per_s: float | None) -> dict[str, Any]:
    step_s = row.step_s
    return {
        "candidate": encode(row.layout),
        "step_time_s": step_s,
        "step_time_band": EAGER_BAND,
        "peak_memory_gib": gib(row.peak_bytes),
        "fits": row.verdict.value,
        "usd_per_step": None if usd_per_s is None or step_s is None else usd_per_s * step_s,
        "parts": dict(row.step),
        "runnable": False,
    }


def _remedy_document(asked: Layout, row: TracedRow) -> dict[str, Any]:
    return {
        "changes": _changes(asked, row.layout),
        "layout": encode(row.layout),
        "peak_memory_gib": gib(row.peak_bytes),
        "verdict": row.verdict.value,
        "step_time_s": row.step_s,
    }


def _parts(row: TracedRow) -> dict[str, float]:
    return {name: gib(size) for name, size in row.memory}
