"""Columns of a plan's rows.

A row is a layout on equal nodes (``Planned``) or on some nodes of a mixed cluster (``MixedRow``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from autoconf_launch.autotuner.cost import ALL_LAYERS
from autoconf_launch.autotuner.planner import family_name
from autoconf_launch.core import encode

from ..estimates import PlanAnswer
from .cells import (
    duration_text,
    gib,
    host_text,
    memory_size,
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
    each,
    rows_cells,
    rows_documents,
    rows_header,
    rows_lines,
    rows_text,
)
from .waterfall import MIXED_PARTS, PARTS

if TYPE_CHECKING:  # with the mixed room, which plan does not wait for
    from ..estimates import MixedAnswer

RankedAnswer: TypeAlias = "PlanAnswer | MixedAnswer"
RankedRows: TypeAlias = Sequence[Any]
"""Rows of one answer: ``Planned`` of a ``PlanAnswer``, ``MixedRow`` of a ``MixedAnswer``."""
_S_PER_DAY = 86400


def _is_equal(answer: Any, form: str) -> bool:
    return isinstance(answer, PlanAnswer)


def _is_mixed(answer: Any, form: str) -> bool:
    return not isinstance(answer, PlanAnswer)


def _is_unequal(answer: Any, form: str) -> bool:
    """What equal nodes have only in JSON, where it is null."""
    return form == JSON or _is_mixed(answer, form)


def _is_mixed_in(only: str) -> Callable[[Any, str], bool]:
    return lambda answer, form: form == only and _is_mixed(answer, form)


def _has_runs(answer: Any, form: str) -> bool:
    return form != TEXT or (_is_equal(answer, form) and answer.measured is not None)


def _has_steps(answer: Any, form: str) -> bool:
    return form != TEXT or answer.steps is not None


def number_cells(answer: RankedAnswer, row: Any) -> dict[str, str]:
    """Cells of a row on its speed, memory, time and money, by header."""
    numbers = [one for one in PLAN_COLUMNS if not one.group and one.name != "runs_here"]
    return {header: cells[0] for header, cells in rows_cells(numbers, [row], answer).items()}


def ranking_text(answer: RankedAnswer, first: int, rows: RankedRows) -> str:
    """A table of rows, numbered from ``first`` on."""
    return rows_text(PLAN_COLUMNS, rows, answer, first=first)


def row_documents(answer: RankedAnswer, rows: RankedRows) -> list[dict[str, Any]]:
    """JSON objects of rows; money is None where no price is known, days without tokens."""
    return rows_documents(PLAN_COLUMNS, rows, answer)


def csv_header(answer: RankedAnswer) -> list[str]:
    """Headers of a line in CSV."""
    return rows_header(PLAN_COLUMNS, answer)


def csv_lines(answer: RankedAnswer, rows: RankedRows) -> Iterator[tuple[Any, ...]]:
    """Lines of rows in CSV."""
    return rows_lines(PLAN_COLUMNS, rows, answer)


def write_blocks(file: TextIO, blocks: Sequence[tuple[str, RankedAnswer, RankedRows]]) -> None:
    """Write a header and a line for each row; ranks go on from block to block."""
    first = 1
    for block, answer, rows in (block for block in blocks if block[2]):
        if first == 1:
            write_csv(file, [("rank", *csv_header(answer), "block")])
        lines = enumerate(csv_lines(answer, rows), start=first)
        write_csv(file, ((rank, *line, block) for rank, line in lines))
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


def nodes_text(answer: MixedAnswer, counts: Sequence[int]) -> str:
    """``1x8xA100-SXM-40GB + 3x4xA10G-24GB``: some nodes of each kind."""
    named = zip(counts, answer.kinds, strict=True)
    return " + ".join(f"{count}x{kind.name}" for count, kind in named if count)


def _knob(name: str, header: str = "", **more: Any) -> Column:
    """A field of the layout."""

    def values(answer: RankedAnswer, rows: RankedRows) -> list[Any]:
        if not isinstance(answer, PlanAnswer):
            return [encode(getattr(answer.layout(row), name)) for row in rows]
        found = [getattr(row.layout, name) for row in rows]
        return [value.value for value in found] if found and isinstance(found[0], Enum) else found

    return Column(name, values, header, group="candidate", **more)


def _stage(name: str, of: Callable[[Any, Any], Any], header: str = "", **more: Any) -> Column:
    """A value of each stage of a row on a mixed cluster."""
    more |= {"group": STAGES, "when": _is_mixed}
    return each(name, lambda a, row: [of(a, stage) for stage in row.stages], header, **more)


def _part(name: str, when: Callable[[Any, str], bool]) -> Column:
    """Seconds of a part of the step."""

    def values(answer: RankedAnswer, rows: RankedRows) -> list[float]:
        at = [own for own, _ in rows[0].parts].index(name) if rows else 0
        return [row.parts[at][1] for row in rows]

    return Column(f"{name}_s", values, group="parts", when=when)


def _order(answer: Any, row: Any) -> list[str]:
    return [answer.kinds[kind].name for kind in row.order]


def _errors(answer: Any, rows: RankedRows) -> list[float]:
    return [band.error for band in answer.bands(rows)]


def _tokens_per_s(answer: Any, row: Any) -> float:
    """Tokens of a step in its time."""
    workload = answer.workload
    return float(workload.global_batch * workload.sequence_length / row.step_s)


def _gpu_speed(answer: Any, row: Any) -> float:
    return _tokens_per_s(answer, row) / int(answer.question.world)


def _free(answer: Any, row: Any) -> float:
    peak, limit = answer.fullest(row)
    return float(1.0 - peak / limit)


def _usd(answer: Any, row: Any, steps: float | None) -> float | None:
    usd: float | None = answer.usd_per_step(row)
    return None if steps is None or usd is None else steps * usd


def _training_usd(answer: Any, row: Any) -> float | None:
    return _usd(answer, row, answer.steps)


def _billion_usd(answer: Any, row: Any) -> float | None:
    tokens = answer.workload.global_batch * answer.workload.sequence_length
    return _usd(answer, row, 1e9 / tokens)


def _days(answer: Any, row: Any) -> float | None:
    return None if answer.steps is None else answer.steps * row.step_s / _S_PER_DAY


def _days_text(days: float) -> str:
    return duration_text(days * _S_PER_DAY)


def _runs_here(answer: Any, rows: RankedRows) -> list[str]:
    return [state.runs_here for state in answer.states(rows)]


def _plan_only_by(answer: Any, rows: RankedRows) -> list[str | None]:
    return [state.rule if state.is_plan_only else None for state in answer.states(rows)]


def _recompute_text(answer: Any, row: Any) -> str:
    some = "" if row.recompute_layers == ALL_LAYERS else f" {row.recompute_layers}"
    return f"{row.layout.recompute.value}{some}"


def _recompute_layers(answer: Any, row: Any) -> int | None:
    """None for all of a stage's."""
    return None if row.recompute_layers == ALL_LAYERS else row.recompute_layers


PLAN_COLUMNS: tuple[Column, ...] = (
    each("nodes", lambda a, row: [*row.counts], when=_is_mixed_in(JSON)),
    each("nodes", lambda a, row: nodes_text(a, row.counts), when=_is_mixed_in(CSV)),
    each("order", _order, "nodes in order", _order_text, is_left=True, when=_is_mixed),
    _knob("data_parallel", "dp"),
    _knob("tensor_parallel", "tp"),
    _knob("pipeline_parallel", "pp"),
    _knob("virtual_pipeline", "vpp", omit="1"),
    _knob("context_parallel", "cp", omit="1"),
    _knob("expert_parallel", "ep", omit="1"),
    _knob("zero_stage", "zero"),
    _knob("micro_batch", "micro"),
    _knob("micro_batch_split", "uneven micro", shown=_counts_text, is_left=True, when=_is_unequal),
    _knob("accumulation", "acc"),
    _knob("recompute"),
    each("", _recompute_text, "recompute", omit="none", is_left=True, group="candidate"),
    _knob("sequence_parallel", "sp", is_left=True),
    _knob("offload", "offload", omit="none", is_left=True),
    _knob("placement", when=_is_unequal),
    _knob("pipeline_split", when=_is_unequal),
    each("recompute_layers", _recompute_layers, group="candidate", when=_is_equal),
    _stage("nodes", lambda a, stage: [a.kinds[kind].name for kind in stage.kinds]),
    _stage("layers", lambda a, stage: stage.layers, "layers", shown=_counts_text, is_left=True),
    _stage("micro_batch_s", lambda a, stage: stage.micro_batch_s),
    _stage("peak_memory_gib", lambda a, stage: gib(stage.peak_bytes)),
    _stage("limit_gib", lambda a, stage: gib(stage.limit_bytes)),
    each("family", lambda a, row: family_name(row.layout), when=_is_equal),
    each("step_time_s", "step_s", "step", step_time_text),
    Column("step_time_band", _errors, "band", lambda error: f"±{percent(error)}", when=_has_runs),
    Column("step_time_unchecked", lambda a, rows: [[*one.unchecked] for one in a.bands(rows)]),
    each("tokens_per_s", _tokens_per_s, "tokens/s", three_digits, when=_is_mixed),
    each("tokens_per_s_per_gpu", _gpu_speed, "tokens/s/GPU", three_digits, when=_is_equal),
    each("mfu", "", "MFU", percent, when=_is_equal),
    each("peak_memory_gib", lambda a, row: a.fullest(row)[0], "memory", memory_size, data=gib),
    each(
        "host_memory_gib",
        "host_bytes",
        "host memory",
        host_text,
        data=gib,
        when=_is_equal,
    ),
    each("free_memory", _free, "free", percent),
    each("fits", "verdict.value", "fits", omit="yes", is_left=True),
    each("usd_per_hour", when=_is_mixed),
    each("usd_per_step", lambda a, row: a.usd_per_step(row)),
    each("", _billion_usd, "$/B tokens", three_digits, when=lambda a, form: a.steps is None),
    each("training_days", _days, "time", _days_text, when=_has_steps),
    each("training_usd", _training_usd, "$", three_digits, when=_has_steps),
    Column("runs_here", _runs_here, "runs here", is_left=True),
    Column("runnable", lambda a, rows: [one == "yes" for one in _runs_here(a, rows)]),
    Column("plan_only_by", _plan_only_by),
    *(_part(name, _is_equal) for name in PARTS if name != "frozen"),
    _part("frozen", lambda a, form: _is_equal(a, form) and bool(a.workload.frozen_passes)),
    *(_part(name, _is_mixed) for name in MIXED_PARTS),
)
"""In the order of the text and of CSV; the parts of the step come last."""
