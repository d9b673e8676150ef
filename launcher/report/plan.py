"""The answer of ``plan`` as text and as a document."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from dataclasses import fields, replace
from enum import Enum
from typing import Any, TextIO

from autoconf_launch.autotuner.cost import (
    ALL_LAYERS,
    MEMORY_BAND,
    STEP_TIME_BAND,
    Verdict,
    active_parameters,
    parameters,
    time_band,
)
from autoconf_launch.autotuner.planner import (
    Loser,
    Plan,
    Planned,
    Question,
)
from autoconf_launch.autotuner.planner import plan as planned
from autoconf_launch.core import (
    Layout,
    Offload,
    Recompute,
)
from autoconf_launch.tuning_spaces import MOST_GPUS, accelerator_names, usable_bytes

from ..estimates import PlanAnswer, is_runnable
from .cells import count_text, duration_text, memory_size, percent, table_of
from .waterfall import PARTS, waterfall, waterfall_text

GB = 2**30
_LEAST_NAMED = 0.005
_LEAST_SHARE = 0.25
_MOST_NAMED = 2
_KNOBS = tuple(f.name for f in fields(Layout))


def row_document(answer: PlanAnswer, one: Planned) -> dict[str, Any]:
    """One entry of ``best``; ``usd_per_step`` is None where no price is known."""
    return {
        "candidate": layout_document(one),
        "step_time_s": one.step_s,
        "step_time_band": time_band(answer.workload.architecture, one.layout),
        "peak_memory_gb": round(one.peak_bytes / GB, 3),
        "usd_per_step": usd_per_step(answer, one.step_s),
        "parts": parts_document(one),
        "runnable": is_runnable(one.layout, one.recompute_layers, answer.workload),
    }


def layout_document(one: Planned) -> dict[str, Any]:
    """The layout by its canonical names; ``recompute_layers`` None for all of a stage's."""
    layers = None if one.recompute_layers == ALL_LAYERS else one.recompute_layers
    knobs = {name: getattr(one.layout, name) for name in _KNOBS}
    return {**{name: _plain(value) for name, value in knobs.items()}, "recompute_layers": layers}


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def parts_document(one: Planned) -> dict[str, float]:
    """Seconds of each part, in the order of the waterfall."""
    seconds = dict(one.parts)
    return {f"{name}_s": seconds[name] for name in PARTS}


def usd_per_step(answer: PlanAnswer, step_s: float) -> float | None:
    """Money for all GPUs while a step lasts; None where no price is known."""
    if answer.price is None:
        return None
    return len(answer.cluster.devices) * answer.price.usd_per_gpu_hour * step_s / 3600


PLAN_SCHEMA_VERSION = 1
_MOST_INDENTED = 1000


def plan_document(answer: PlanAnswer) -> dict[str, Any]:
    """A document; ``explanation`` and ``waterfall`` are there where they were asked for."""
    found = answer.plan
    document: dict[str, Any] = {
        "schema_version": PLAN_SCHEMA_VERSION,
        "considered": found.considered,
        "valid": found.valid,
        "fit": found.fit,
        "seconds": answer.seconds,
        "best": [row_document(answer, one) for one in found.best],
        "rejected": dict(found.rejected),
    }
    if answer.request.explain and found.best:
        document["explanation"] = [_loser_document(one, answer.question) for one in answer.losers]
        document["waterfall"] = [
            {"name": step.name, "seconds": step.seconds} for step in waterfall(found.best[0].parts)
        ]
    return document


def plan_json(document: dict[str, Any]) -> str:
    """A plan's document as JSON, in one line where it is very long."""
    indent = 2 if len(document["best"]) <= _MOST_INDENTED else None
    return json.dumps(document, indent=indent, allow_nan=False)


def plan_text(answer: PlanAnswer) -> str:
    """Head, the ranking, notes on its numbers, what was ruled out, and reasons if asked for."""
    blocks = [_headline(answer)]
    if answer.plan.best:
        blocks += [_ranking(answer), "\n".join(_notes(answer))]
    blocks.append(_rejected_table(answer))
    if answer.losers:
        blocks += [_losers(answer), _waterfall(answer)]
    return "\n\n".join(blocks)


def _headline(answer: PlanAnswer) -> str:
    model, found = answer.workload.architecture, answer.plan
    weights, active = parameters(model), active_parameters(model)
    idle = f" ({count_text(active)} for each token)" if active != weights else ""
    gpus = answer.cluster.devices
    return (
        f"{model.name}: {count_text(weights)} parameters{idle}, on {len(gpus)} x {gpus[0].name}, "
        f"global batch {answer.workload.global_batch} of "
        f"{answer.workload.sequence_length} tokens\n"
        f"{found.considered:,} layouts considered in {answer.seconds:.2f} s: {found.valid:,} are "
        f"valid, {found.fit:,} fit"
    )


def _ranking(answer: PlanAnswer) -> str:
    """Columns in which no layout differs from the plain one are skipped."""
    rows = [_cells(rank, answer, one) for rank, one in enumerate(answer.plan.best, start=1)]
    names = [
        name
        for name in rows[0]
        if name not in _LEFT_OUT or any(row[name] != _LEFT_OUT[name] for row in rows)
    ]
    align = ["left" if name in _WORDS else "right" for name in names]
    return table_of([[row[name] for name in names] for row in rows], names, align)


_LEFT_OUT = {
    "vpp": "1",
    "cp": "1",
    "ep": "1",
    "recompute": "none",
    "sp": "-",
    "offload": "none",
    "$/step": "-",
}
_WORDS = frozenset({"recompute", "sp", "offload", "fits", "runs here"})


def _cells(rank: int, answer: PlanAnswer, one: Planned) -> dict[str, str]:
    layout = one.layout
    some = f" {one.recompute_layers}" if one.recompute_layers != ALL_LAYERS else ""
    usd = usd_per_step(answer, one.step_s)
    cells = {
        "#": str(rank),
        "dp": str(layout.data_parallel),
        "tp": str(layout.tensor_parallel),
        "pp": str(layout.pipeline_parallel),
        "vpp": str(layout.virtual_pipeline),
        "cp": str(layout.context_parallel),
        "ep": str(layout.expert_parallel),
        "zero": str(layout.zero_stage),
        "micro": str(layout.micro_batch),
        "acc": str(layout.accumulation),
        "recompute": layout.recompute.value + some,
        "sp": "yes" if layout.sequence_parallel else "-",
        "offload": layout.offload.value,
        "step s": f"{one.step_s:.4g}",
        "of peak": f"{100 * dict(one.parts)['ideal'] / one.step_s:.0f} %",
        "memory": memory_size(one.peak_bytes),
        "fits": one.verdict.value,
        "$/step": "-" if usd is None else f"{usd:.3g}",
    }
    if answer.steps is not None:
        cells["time"] = duration_text(answer.steps * one.step_s)
        cells["$"] = "-" if usd is None else f"{answer.steps * usd:,.0f}"
    runnable = is_runnable(layout, one.recompute_layers, answer.workload)
    return {**cells, "runs here": "yes" if runnable else "plan-only"}


def _notes(answer: PlanAnswer) -> Iterator[str]:
    best, limit = answer.plan.best, answer.request.training.limit_bytes
    bands = {time_band(answer.workload.architecture, one.layout) for one in best}
    band = " to ".join(f"{100 * band:.0f}" for band in sorted(bands))
    yield (
        f"90 % error bands from published runs: step time ±{band} %, memory "
        f"±{percent(MEMORY_BAND)}. A GPU has {memory_size(limit)}."
    )
    if max(bands) > STEP_TIME_BAND:
        guess = f"±{100 * max(bands):.0f} %"
        yield f"{guess} is an estimate: no published run has experts or offload."
    if any(one.layout.offload is not Offload.NONE for one in best):
        yield "Host memory is not checked: make sure that it has room for what is offloaded."
    if answer.price is not None:
        yield f"Price: ${answer.price.usd_per_gpu_hour:.2f} per GPU hour ({answer.price.how})."
    else:
        yield "No price of this GPU is known; give one with --usd-per-gpu-hour."
    if answer.steps is not None:
        yield f"The training takes {answer.steps:,} steps."
    surely = answer.plan.surely
    if best[0].verdict is Verdict.MARGINAL:
        room = percent(MEMORY_BAND)
        sure = f" Safe choice ({room} headroom): {_layout_text(surely)}." if surely else ""
        yield f"#1 may run out of memory.{sure}"


def _layout_text(one: Planned) -> str:
    return f"{name_of(one.layout)}, {one.step_s:.4g} s, {memory_size(one.peak_bytes)}"


def _rejected_table(answer: PlanAnswer) -> str:
    rows = [[name, f"{count:,}"] for name, count in answer.plan.rejected]
    return table_of(rows, ["ruled out by", "layouts"], ["left", "right"])


def _losers(answer: PlanAnswer) -> str:
    rows = [
        [
            one.family.name,
            name_of(one.planned.layout) if one.planned else "-",
            "-" if one.slower is None else f"{one.planned.step_s:.4g} s" if one.planned else "-",
            "-" if one.slower is None else percent(one.slower, "+"),
            loser_reason(one, answer.question),
        ]
        for one in answer.losers
    ]
    headers = ["layout", "its best", "step", "slower", "why (shares of the best one's step)"]
    return table_of(rows, headers, ["left", "left", "right", "right", "left"])


def _waterfall(answer: PlanAnswer) -> str:
    best = answer.plan.best[0]
    return f"A step of #1:\n{waterfall_text(waterfall(best.parts))}"


def _impossible(one: Loser, question: Question) -> str:
    """Which equation has no solution."""
    chosen = one.family.degrees
    axes = (chosen.tensor_parallel, chosen.pipeline_parallel, chosen.context_parallel)
    sizes = [axis or () for axis in axes]
    if all(len(values) == 1 for values in sizes):
        ranks = math.prod(values[0] for values in sizes)
        data, batch = question.world // ranks, question.training.workload.global_batch
        return f"dp={data} does not divide a global batch of {batch}"
    return "no such mesh divides the GPUs and the global batch"


def loser_reason(loser: Loser, question: Question) -> str:
    """Why the best layout of a family is not the best of all."""
    found, best = loser.plan, loser.best
    if not found.considered:
        return _impossible(loser, question)
    if not found.valid:
        rules = sorted(found.rejected, key=lambda one: -one[1])
        return f"breaks {' or '.join(name for name, _ in rules[:2])}"
    if found.smallest is not None:
        over = found.smallest.peak_bytes - question.limits.memory_bytes
        return f"needs {over / GB:.1f} GiB too much"
    one = found.best[0]
    if one.layout == best.layout and one.recompute_layers == best.recompute_layers:
        return "is the best"
    return slowdown(one, best, question.training.machine.gpus_per_node)


def slowdown(one: Planned, best: Planned, node: int) -> str:
    """What makes ``one`` slower: the largest of its losses, as shares of the best one's step.

    A bubble is given as the share of the slower step that it takes.
    """
    before = dict(best.parts)
    more = {name: (s - before[name]) / best.step_s for name, s in one.parts}
    losses = sorted(
        ((share, name) for name, share in more.items() if share >= _LEAST_NAMED), reverse=True
    )
    if not losses or one.step_s <= best.step_s * (1 + _LEAST_NAMED):
        return "as fast within half a percent"
    total = sum(share for share, _ in losses)
    named = [pair for pair in losses[:_MOST_NAMED] if pair[0] >= _LEAST_SHARE * total]
    return ", ".join(_phrase(name, share, one, node) for share, name in named)


def _phrase(name: str, share: float, one: Planned, node: int) -> str:
    if name == "bubble":
        return f"pipeline bubble {100 * dict(one.parts)['bubble'] / one.step_s:.0f} %"
    words = {
        "ideal": "matrix products",
        "kernels": "kernel inefficiency",
        "recompute": "recomputation",
        "launch": "launch floor",
        "communication": "communication",
        "update": "update",
    }
    text = f"+{100 * share:.0f} % {words[name]}"
    if name == "communication" and one.layout.tensor_parallel > node:
        return f"TP crosses nodes: {text}"
    return text


def name_of(layout: Layout) -> str:
    """Degrees of a layout in a few words."""
    degrees = {
        "dp": layout.data_parallel,
        "tp": layout.tensor_parallel,
        "pp": layout.pipeline_parallel,
        "vpp": layout.virtual_pipeline,
        "cp": layout.context_parallel,
        "ep": layout.expert_parallel,
    }
    words = [f"{knob}={size}" for knob, size in degrees.items() if size > 1 or knob == "dp"]
    words += [f"zero={layout.zero_stage}", f"micro-batch={layout.micro_batch}"]
    if layout.recompute is not Recompute.NONE:
        words.append(f"recompute={layout.recompute.value}")
    if layout.sequence_parallel:
        words.append("sp")
    if layout.offload is not Offload.NONE:
        words.append(f"offload={layout.offload.value}")
    return " ".join(words)


def _loser_document(one: Loser, question: Question) -> dict[str, Any]:
    planned = one.planned
    return {
        "layout": one.family.name,
        "candidate": layout_document(planned) if planned else None,
        "fits": one.fits,
        "step_time_s": planned.step_s if planned and one.fits else None,
        "slower": one.slower,
        "peak_memory_gb": round(planned.peak_bytes / GB, 3) if planned else None,
        "parts": parts_document(planned) if planned else None,
        "why": loser_reason(one, question),
    }


_UNEQUAL = frozenset({"placement", "pipeline_split", "micro_batch_split"})


def plan_csv(answer: PlanAnswer, file: TextIO) -> None:
    """Write a header and a line for each ranked layout, the fastest first."""
    writer = csv.writer(file, lineterminator="\n")
    for rank, one in enumerate(answer.plan.best, start=1):
        row = _flat(rank, answer, one)
        if rank == 1:
            writer.writerow(row)
        writer.writerow(row.values())


def _flat(rank: int, answer: PlanAnswer, one: Planned) -> dict[str, Any]:
    document = row_document(answer, one)
    candidate, parts = document.pop("candidate"), document.pop("parts")
    knobs = {name: value for name, value in candidate.items() if name not in _UNEQUAL}
    return {"rank": rank, **knobs, **document, "fits": one.verdict.value, **parts}


_MOST_DOUBLINGS = 6


def why_nothing(answer: PlanAnswer) -> str:
    """What was asked for that no layout gives: rules, memory, or limits of time and money."""
    found = answer.plan
    if not found.valid:
        name, count = max(found.rejected, key=lambda one: one[1])
        return (
            f"none of {found.considered:,} layouts obeys all rules; the most, {count:,}, break "
            f"{name}: take another number of GPUs or global batch."
        )
    if found.smallest is not None:
        return _too_large(answer.question, found, found.smallest)
    assert found.fastest is not None
    return _too_late(answer, found.fastest)


def _too_large(question: Question, found: Plan, smallest: Planned) -> str:
    needed, limit = smallest.peak_bytes, question.limits.memory_bytes
    helps = [text for text in (_more_nodes(question), _larger(smallest.peak_bytes)) if text]
    return (
        f"none of {found.valid:,} valid layouts fits: the smallest need is "
        f"{memory_size(needed)} of {memory_size(limit)} a GPU "
        f"({name_of(smallest.layout)}); it would fit "
        f"{' or '.join(helps) or 'on no number or kind of GPU that we know'}."
    )


def _more_nodes(question: Question) -> str:
    """How many nodes would do, by planning for twice as many again and again."""
    node = question.training.machine.gpus_per_node
    for doubling in range(1, _MOST_DOUBLINGS + 1):
        world = question.world << doubling
        if world > MOST_GPUS:
            break
        if planned(replace(question, world=world, most=1)).best:
            return f"on {world // node} nodes like these"
    return ""


def _larger(needed_bytes: float) -> str:
    """The known GPU that has least memory beyond the need."""
    sizes = sorted((usable_bytes(gpu), gpu) for gpu in accelerator_names())
    return next((f"on {gpu}" for size, gpu in sizes if size >= needed_bytes), "")


def _too_late(answer: PlanAnswer, fastest: Planned) -> str:
    assert answer.steps is not None
    request, total_s = answer.request, fastest.step_s * answer.steps
    limits = []
    if request.deadline_s is not None and total_s > request.deadline_s:
        limits.append(f"the deadline is {duration_text(request.deadline_s)}")
    text = f"takes {duration_text(total_s)}"
    if answer.price is not None:
        gpu_hours = len(answer.cluster.devices) * total_s / 3600
        usd = gpu_hours * answer.price.usd_per_gpu_hour
        text += f" and costs ${usd:,.0f}"
        if request.max_cost_usd is not None and usd > request.max_cost_usd:
            limits.append(f"--max-cost is ${request.max_cost_usd:,.0f}")
    return (
        f"no layout is within the limits: the fastest that fits {text} for all tokens, but "
        f"{' and '.join(limits)}; other numbers or kinds of GPUs may do."
    )
