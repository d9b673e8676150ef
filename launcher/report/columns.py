"""Columns of a plan's rows, their runners, and the parts of a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from typing import Any, TextIO, TypeAlias

from autoconf_launch.autotuner.cost import ALL_LAYERS
from autoconf_launch.autotuner.planner import Planned, family_name
from autoconf_launch.autotuner.playoff import SoakReport
from autoconf_launch.autotuner.space import Prediction, Record

from ..estimates import PlanAnswer, RowState
from .cells import (
    duration_text,
    gib,
    host_text,
    label,
    memory_size,
    number_text,
    percent,
    step_time_text,
    three_digits,
    write_csv,
)
from .tables import (
    CSV,
    JSON,
    STAGES,
    TEXT,
    Column,
    csv_rows,
    each,
    rows_documents,
    rows_text,
)

RankedRows: TypeAlias = Sequence[Planned]
_S_PER_DAY = 86400
_WIDTH = 48
PARTS = {
    "ideal": "ideal",
    "samples": "samples",
    "kernels": "kernel efficiency",
    "launch": "launch floor",
    "compute": "stages at work, in the mean",
    "bubble": "bubble",
    "communication": "exposed communication",
    "sends": "first micro-batch on its way",
    "gradients": "exposed gradient sums and update",
    "embeddings": "sum of tied embeddings",
    "recompute": "recompute",
    "update": "update",
    "host": "host",
    "frozen": "frozen models",
}
"""Parts of a predicted step in the order of the drawing, with their names in texts. On nodes that
differ a step is taken apart by its stages."""
_SHORT_S = 0.1
"""Steps below it are drawn in milliseconds."""
RULES_IN_WORDS = {
    "tp_heads": "TP does not divide the attention heads",
    "tp_kv_heads": "TP does not fit the key-value heads",
    "tp_ffn": "TP does not divide the MLP's width",
    "tp_states": "TP does not divide the groups of a state",
    "pp_layers": "PP has more stages than the model has layers",
    "vpp_pp": "virtual stages need a pipeline",
    "vpp_layers": "virtual stages leave too many places of layers empty",
    "vpp_micro_batches": "virtual stages need micro-batches in multiples of PP",
    "cp_sequence": "CP does not divide the sequence into equal parts",
    "ep_experts": "EP does not divide the experts",
    "ep_ranks": "EP does not divide DP x CP",
    "sp_tp": "sequence parallelism needs TP",
    "sp_sequence": "sequence parallelism needs a sequence that TP divides",
    "offload_zero": "offloaded weights need ZeRO 3",
    "recompute_layers": "more layers are recomputed than a stage has",
    "zero_ranks": "ZeRO has nothing to shard over one rank",
    "runtime_training": "our runtime has no such precision, optimizer, states, loss or schedule, "
    "no adapters and no frozen parts",
    "runtime_model": "the model's own structure is not known",
    "runtime_activations": "our runtime does not offload activations, and no published step time "
    "with them was checked",
    "runtime_offload": "our runtime does not offload, and no published run was checked that does",
    "runtime_tensor": "the model has no tensor plan, or TP does not divide its key-value heads",
    "runtime_pipeline": "our runtime does not cut this model into stages",
    "runtime_virtual": "the model has fewer blocks than virtual stages",
    "runtime_context": "our runtime does not share out this model's tokens",
    "runtime_expert": "our runtime does not share out this model's experts",
    "trainer_tp": "the trainer has no tensor parallelism",
    "trainer_sp": "the trainer has no sequence parallelism",
    "trainer_pp": "the trainer has no pipelines",
    "trainer_vpp": "the trainer has no virtual stages",
    "schedule_vpp": "the pipeline's schedule has its own stages",
    "schedule_micro_batches": "the pipeline's schedule needs more micro-batches, or even PP",
    "trainer_layout": "the trainer has only even virtual stages",
    "trainer_cp": "the trainer has no context parallelism",
    "trainer_ep": "the trainer has no expert parallelism",
    "trainer_zero": "the trainer has no such ZeRO stage",
    "trainer_zero_in_pipelines": "the trainer has no such ZeRO stage in pipelines",
    "trainer_zero_beside_tensor": "the trainer has no such ZeRO stage beside TP or CP",
    "trainer_offload": "the trainer has no such offload",
    "trainer_recompute": "the trainer has no such recomputation",
    "trainer_activations": "the trainer offloads activations without pipelines and recomputation",
    "trainer_in_backward": "an update in the backward pass has one micro-batch a step",
    "trainer_layers": "the trainer recomputes all layers or none",
    "expert_ranks": "expert ranks must divide the data-parallel ranks",
    "stage_micro_batches": "1F1B needs a micro-batch for each stage",
    "runtime_layers": "our runtime recomputes some layers only where each rank has one stage",
    "host_memory": "offloads more than the host memory of a node holds",
    "memory": "needs more memory than a GPU has",
    "deadline": "takes longer than --deadline",
    "max_cost": "costs more than --max-cost",
}
"""The planner's rules by their names."""
_MOST_LISTED = 8
PROFILED_PARTS = {
    "samples": "samples",
    "launch": "launch floor",
    "recompute": "recompute",
    "bubble": "bubble",
    "communication": "exposed communication",
    "update": "update",
}
"""Parts of a step of a profiled model: kinds of work on its samples are not distinguished, and
only a pipeline has a bubble."""
MEASURED_PARTS = {
    "forward": "forward",
    "backward": "backward",
    "exchange": "exposed communication",
    "update": "update",
    "between": "between steps",
}
"""Parts of a step that a rank measured: recompute is within its backward."""


def _has_parts(answer: PlanAnswer, form: str) -> bool:
    return answer.parts is not None


def only_in(own: str) -> Callable[[Any, str], bool]:
    """A condition of a column that is in one form only."""
    return lambda answer, form: form == own


def _has_parts_in(own: str) -> Callable[[PlanAnswer, str], bool]:
    return lambda answer, form: form == own and answer.parts is not None


def _has_band(answer: PlanAnswer, form: str) -> bool:
    return form != TEXT or answer.measured is not None


def _has_steps(answer: PlanAnswer, form: str) -> bool:
    return form != TEXT or answer.steps is not None


def ranking_text(answer: PlanAnswer, first: int, rows: RankedRows) -> str:
    """A table of rows, numbered from ``first`` on."""
    return rows_text(PLAN_COLUMNS, rows, answer, first=first)


def row_documents(answer: PlanAnswer, rows: RankedRows) -> list[dict[str, Any]]:
    """JSON objects of rows; money is None without a price, days are None without tokens."""
    return rows_documents(PLAN_COLUMNS, rows, answer)


def write_blocks(file: TextIO, blocks: Sequence[tuple[str, PlanAnswer, RankedRows]]) -> None:
    """Write a header and a line for each row; ranks go on from block to block."""
    first = 1
    for block, answer, rows in (block for block in blocks if block[2]):
        lines = csv_rows(PLAN_COLUMNS, rows, answer)
        header = next(lines)
        if first == 1:
            write_csv(file, [("rank", *header, "block")])
        ranked = enumerate(lines, start=first)
        write_csv(file, ((rank, *line, block) for rank, line in ranked))
        first += len(rows)


def _runs(values: Sequence[Any]) -> list[tuple[Any, int]]:
    """Values in order, equal neighbours once with their count."""
    return [(value, len(list(some))) for value, some in groupby(values)]


def _counts_text(numbers: Sequence[int]) -> str:
    """``5 4 2x3 3``."""
    return " ".join(str(n) if count == 1 else f"{count}x{n}" for n, count in _runs(numbers))


def _order_text(names: Sequence[str]) -> str:
    """``8xA100-SXM-40GB, 2 x 4xA10G-24GB``: nodes in the order of ranks."""
    runs = _runs(names)
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in runs)


def nodes_text(kinds: Sequence[Any], counts: Sequence[int]) -> str:
    """``1x8xA100-SXM-40GB + 3x4xA10G-24GB``: some nodes of each kind."""
    named = zip(counts, kinds, strict=True)
    return " + ".join(f"{count}x{kind.name}" for count, kind in named if count)


def _knob(name: str, header: str = "", **more: Any) -> Column:
    """A field of the layout."""

    def value(answer: PlanAnswer, row: Planned) -> Any:
        own = getattr(answer.layout(row), name)
        return own.value if isinstance(own, Enum) else own

    return each(name, value, header, group="candidate", **more)


def _stage(name: str, of: Callable[[Any, Any], Any], header: str = "", **more: Any) -> Column:
    """A value of each stage of a row on a part of a cluster."""
    more |= {"group": STAGES, "when": _has_parts}
    return each(name, lambda a, row: [of(a, stage) for stage in row.stages], header, **more)


def _part(name: str) -> Column:
    """Seconds of a part of the step."""

    def values(answer: PlanAnswer, rows: RankedRows) -> list[float]:
        at = [own for own, _ in rows[0].parts].index(name) if rows else 0
        return [max(row.parts[at][1], 0.0) for row in rows]  # -4e-16 is a rounded 0

    def has(answer: PlanAnswer, form: str) -> bool:
        return any(name in dict(row.parts) for row in answer.shown[:1])

    return Column(f"{name}_s", values, group="parts", when=has)


def _order(answer: PlanAnswer, row: Planned) -> list[str]:
    return [answer.kinds[kind].name for kind in row.order]


def _step_s(answer: PlanAnswer, row: Planned) -> float | None:
    return row.step_s if math.isfinite(row.step_s) else None


def _errors(answer: PlanAnswer, rows: RankedRows) -> list[float]:
    return [band.error for band in answer.bands(rows)]


def _tokens_per_s(answer: PlanAnswer, row: Planned) -> float | None:
    """Tokens of a step in its time; of a script's samples none are known."""
    workload = answer.workload
    return None if answer.script else workload.batch_tokens / row.step_s


def _gpu_speed(answer: PlanAnswer, row: Planned) -> float | None:
    speed = _tokens_per_s(answer, row)
    return None if speed is None else speed / row.layout.world_size


def _usd(row: Planned, steps: float | None) -> float | None:
    return None if steps is None or row.usd_per_step is None else steps * row.usd_per_step


def _billion_usd(answer: PlanAnswer, row: Planned) -> float | None:
    return None if answer.script else _usd(row, 1e9 / answer.workload.batch_tokens)


def _training_s(answer: PlanAnswer, row: Planned) -> float | None:
    return None if answer.steps is None else answer.steps * row.step_s


def _runs_here(answer: PlanAnswer, rows: RankedRows) -> list[str]:
    return [state.runs_here for state in answer.states(rows)]


def _plan_only_by(answer: PlanAnswer, rows: RankedRows) -> list[str | None]:
    return [state.rule if state.is_plan_only else None for state in answer.states(rows)]


def _recompute_text(answer: PlanAnswer, row: Planned) -> str:
    some = "" if row.recompute_layers == ALL_LAYERS else f" {row.recompute_layers}"
    return f"{row.layout.recompute.value}{some}"


def _recompute_layers(answer: PlanAnswer, row: Planned) -> int | None:
    """None for all of a stage's."""
    return None if row.recompute_layers == ALL_LAYERS else row.recompute_layers


PLAN_COLUMNS: tuple[Column, ...] = (
    each("nodes", lambda a, row: [*row.counts], when=_has_parts_in(JSON)),
    each("nodes", lambda a, row: nodes_text(a.kinds, row.counts), when=_has_parts_in(CSV)),
    each("order", _order, "nodes in order", _order_text, is_left=True, when=_has_parts),
    _knob("data_parallel", "dp"),
    _knob("tensor_parallel", "tp"),
    _knob("pipeline_parallel", "pp"),
    _knob("virtual_pipeline", "vpp", omit="1"),
    _knob("context_parallel", "cp", omit="1"),
    _knob("expert_parallel", "ep", omit="1"),
    _knob("zero_stage", "zero"),
    _knob("micro_batch", "micro"),
    _knob("micro_batch_split", "uneven micro", shown=_counts_text, is_left=True),
    _knob("accumulation", "acc"),
    _knob("recompute"),
    each("", _recompute_text, "recompute", omit="none", is_left=True, group="candidate"),
    _knob("sequence_parallel", "sp", is_left=True),
    _knob("offload", "offload", omit="none", is_left=True),
    _knob("placement"),
    _knob("pipeline_split"),
    each("recompute_layers", _recompute_layers, group="candidate"),
    _stage("nodes", lambda a, stage: [a.kinds[kind].name for kind in stage.kinds]),
    _stage("layers", lambda a, stage: stage.layers, "layers", shown=_counts_text, is_left=True),
    _stage("micro_batch_s", lambda a, stage: stage.micro_batch_s),
    _stage("peak_memory_gib", lambda a, stage: gib(stage.peak_bytes)),
    _stage("limit_gib", lambda a, stage: gib(stage.limit_bytes)),
    each("family", lambda a, row: family_name(row.layout)),
    each("step_time_s", _step_s, "step", step_time_text),
    Column("step_time_band", _errors, "band", lambda error: f"±{percent(error)}", when=_has_band),
    Column("step_time_unchecked", lambda a, rows: [[*one.unchecked] for one in a.bands(rows)]),
    each("tokens_per_s", _tokens_per_s),
    each("tokens_per_s_per_gpu", _gpu_speed, "tokens/s/GPU", three_digits),
    each("mfu", lambda a, row: row.mfu if a.question else None, "MFU", percent),
    each("peak_memory_gib", "peak_bytes", "memory", memory_size, data=gib),
    each("host_memory_gib", "host_bytes", "host memory", host_text, data=gib),
    each("free_memory", lambda a, row: 1.0 - row.peak_bytes / row.limit_bytes, "free", percent),
    each("fits", "verdict.value", "fits", omit="yes", is_left=True),
    each("usd_per_hour"),
    each("usd_per_step"),
    each("", _billion_usd, "$/B tokens", three_digits, when=lambda a, form: a.steps is None),
    each(
        *("training_days", _training_s, "time", duration_text),
        data=lambda seconds: seconds / _S_PER_DAY,
        when=_has_steps,
    ),
    each("training_usd", lambda a, row: _usd(row, a.steps), "$", three_digits, when=_has_steps),
    Column("runs_here", _runs_here, "runs here", is_left=True),
    Column("runnable", lambda a, rows: [one == "yes" for one in _runs_here(a, rows)]),
    Column("plan_only_by", _plan_only_by),
    *map(_part, PARTS),
)
"""In the order of the text and of CSV; the parts of the step come last."""


def of_best(one: Column) -> Column:
    """The column for the best layouts of several answers; the text has numbers only."""

    def values(answer: Any, answers: Sequence[PlanAnswer]) -> list[Any]:
        best = ((own, own.plan.best[:1]) for own in answers)
        return [one.of(own, rows)[0] if rows else None for own, rows in best]

    def has(answer: PlanAnswer, form: str) -> bool:
        return form != JSON and one.when(answer, form)

    is_number = not one.group and one.name != "runs_here"
    return replace(one, of=values, header=one.header if is_number else "", when=has)


def state_notes(states: Sequence[RowState]) -> Iterator[str]:
    """Why rows, numbered from 1, do not run here: each state and its reason once."""
    ranks: dict[RowState, list[int]] = {}
    for rank, state in enumerate(states, start=1):
        if state.rule is not None:
            ranks.setdefault(state, []).append(rank)
    for state, numbers in ranks.items():
        yield f"{state_text(state)}: {row_numbers_text(numbers)}."


def row_numbers_text(numbers: Sequence[int]) -> str:
    """``row 4``, ``rows 1 to 3, 5``: rising numbers of rows; more than a few runs are cut."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [f"{run[0]} to {run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs]
    more = ", …" if len(texts) > _MOST_LISTED else ""
    return f"row{'s' * (len(numbers) > 1)} {', '.join(texts[:_MOST_LISTED])}{more}"


def state_text(state: RowState) -> str:
    """``Runs with huggingface, as our runtime has no …``; empty if it runs here."""
    if state.rule is None:
        return ""
    start = "Plan-only" if state.is_plan_only else f"Runs {state.runs_here}"
    return f"{start}, as {RULES_IN_WORDS[state.rule]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallStep:
    """A loss that starts at the end of the loss before it."""

    name: str
    start_s: float
    seconds: float


def step_waterfall(
    parts: Sequence[tuple[str, float]], names: Mapping[str, str] = PARTS
) -> tuple[WaterfallStep, ...]:
    """The parts of a step in the order in which they are lost."""
    given = dict(parts)
    found, start_s = [], 0.0
    for part, name in names.items():
        if part in given:
            seconds = max(given[part], 0.0)  # -4e-16 is a rounded 0
            found.append(WaterfallStep(name=name, start_s=start_s, seconds=seconds))
            start_s += seconds
    return tuple(found)


def waterfall_text(steps: Sequence[WaterfallStep]) -> str:
    """A line for each loss: seconds, share of the step, a bar from the end of the last bar."""
    total_s = sum(step.seconds for step in steps)
    names = max(len(step.name) for step in steps)
    unit = (1.0, "s") if total_s >= _SHORT_S else (1e-3, "ms")
    lines = [_line(step, total_s, names, unit) for step in steps]
    total = f"{number_text(total_s / unit[0]):>9} {unit[1]}"
    return "\n".join([*lines, f"{'step':<{names}}  {total}  100 %  {'=' * _WIDTH}"])


def _line(step: WaterfallStep, total_s: float, names: int, unit: tuple[float, str]) -> str:
    first = round(_WIDTH * step.start_s / total_s)
    last = round(_WIDTH * (step.start_s + step.seconds) / total_s)
    bar = " " * first + ("#" * (last - first) or ("|" if step.seconds > 0 else ""))
    share = 100 * step.seconds / total_s
    size = f"{number_text(step.seconds / unit[0]):>9} {unit[1]}"
    return f"{step.name:<{names}}  {size}  {share:3.0f} %  {bar}".rstrip()


def step_parts_text(record: Record, soak: SoakReport | None = None) -> str | None:
    """Waterfalls of the prediction and of the verification run's steps; None without parts.

    ``record``: at the speed of its configuration that is shown everywhere. The trials' own steps
    are not taken apart, as that slows them.
    """
    prediction, measurement = record.prediction, record.measurement
    if prediction is None or measurement is None or not prediction.step_s or not prediction.parts:
        return None
    measured_s = measurement.mean_step_s
    more = measured_s / prediction.step_s - 1.0
    return (
        f"Where a step of {label(record.trial.candidate)} goes, as predicted ({prediction.how}):\n"
        f"{waterfall_text(predicted_waterfall(prediction))}\n"
        f"measured {number_text(measured_s)} s, "
        f"{100 * abs(more):.0f} % {'more' if more > 0 else 'less'}"
        f"{_soak_text(soak, measured_s)}"
    )


def step_parts_document(record: Record, soak: SoakReport | None = None) -> dict[str, Any] | None:
    """Parts of a step for ``summary.json``."""
    if step_parts_text(record) is None or record.prediction is None or record.measurement is None:
        return None
    return {
        "predicted_step_s": record.prediction.step_s,
        "predicted_parts_s": dict(record.prediction.parts),
        "measured_step_s": record.measurement.mean_step_s,
        "measured_parts_s": _measured_parts(soak),
    }


def _soak_text(soak: SoakReport | None, measured_s: float) -> str:
    if soak is None or not (steps := measured_waterfall(soak)):
        return ""
    drawn = waterfall_text(steps)
    is_same = math.isclose(measured_s, soak.step_s)
    took = "measured" if is_same else f"{number_text(soak.step_s)} s"
    return f"; {took} in its verification run, one phase after the other:\n{drawn}"


def predicted_waterfall(prediction: Prediction | None) -> tuple[WaterfallStep, ...]:
    """Parts of a predicted step; empty if the model has none."""
    return step_waterfall(prediction.parts if prediction else (), PROFILED_PARTS)


def measured_waterfall(soak: SoakReport | None) -> tuple[WaterfallStep, ...]:
    """Phases of a step of the verification run; empty if it was not taken apart."""
    return step_waterfall(tuple(_measured_parts(soak).items()), MEASURED_PARTS)


def _measured_parts(soak: SoakReport | None) -> dict[str, float]:
    if soak is None or not soak.phases:
        return {}
    parts = {name: seconds for name, seconds in soak.phases if name != "exchange" or seconds > 0}
    return {**parts, "between": max(0.0, soak.step_s - sum(parts.values()))}
