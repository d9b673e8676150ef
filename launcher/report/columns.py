"""Columns of a plan's rows, each declared once; text, JSON and CSV are made from the list.

A column has its values for many rows at once, so that tables of 100,000 rows take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import Any, TextIO, TypeAlias

from autoconf_launch.autotuner.cost import ALL_LAYERS
from autoconf_launch.autotuner.planner import Planned, family_name

from ..estimates import PlanAnswer
from .cells import (
    dense_table,
    duration_text,
    gib,
    memory_size,
    number_text,
    percent,
    step_time_text,
    write_csv,
)
from .waterfall import PARTS

RankedRows: TypeAlias = Sequence[Planned]
_Kinds: TypeAlias = Sequence[Any]
"""Kinds of node, with their names and counts."""
_TEXT, _JSON, _CSV = "text", "json", "csv"
_STAGES = "stages"
_S_PER_DAY = 86400


def _plain_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "-"
    return "-" if value is None else str(value)


def _has_parts(answer: PlanAnswer, form: str) -> bool:
    return answer.parts is not None


def _has_parts_in(only: str) -> Callable[[PlanAnswer, str], bool]:
    return lambda answer, form: form == only and answer.parts is not None


def _has_band(answer: PlanAnswer, form: str) -> bool:
    return form != _TEXT or answer.measured is not None


def _has_steps(answer: PlanAnswer, form: str) -> bool:
    return form != _TEXT or answer.steps is not None


@dataclass(frozen=True, slots=True)
class PlanColumn:
    """One column.

    Attributes:
        name: key in JSON and header in CSV; empty: the column is only in the text.
        of: its values for rows of an answer.
        header: in the text; empty: the column is not in the text.
        shown: a value as the text has it.
        omit: the text leaves the column out where all its cells are this one or a dash.
        is_left: the text starts its cells at the left.
        data: a value as JSON and CSV have it.
        group: the object of a row in JSON that has the key; ``stages``: that of each stage.
        when: whether an answer has it in a form.
    """

    name: str
    of: Callable[[PlanAnswer, RankedRows], Sequence[Any]]
    header: str = ""
    shown: Callable[[Any], str] = _plain_text
    omit: str | None = None
    is_left: bool = False
    data: Callable[[Any], Any] | None = None
    group: str = ""
    when: Callable[[PlanAnswer, str], bool] = lambda answer, form: True

    def data_of(self, answer: PlanAnswer, rows: RankedRows) -> Sequence[Any]:
        """Its values as JSON and CSV have them."""
        values = self.of(answer, rows)
        return values if self.data is None else [*map(self.data, values)]


def _columns(answer: PlanAnswer, form: str) -> list[PlanColumn]:
    named = (one for one in PLAN_COLUMNS if (one.header if form == _TEXT else one.name))
    return [one for one in named if one.when(answer, form)]


def _text_cells(answer: PlanAnswer, rows: RankedRows) -> dict[str, list[str]]:
    columns = _columns(answer, _TEXT)
    return {one.header: [one.shown(value) for value in one.of(answer, rows)] for one in columns}


def number_cells(answer: PlanAnswer, row: Planned) -> dict[str, str]:
    """Cells of a row on its speed, memory, time and money, by header."""
    numbers = {one.header for one in PLAN_COLUMNS if not one.group and one.name != "runnable"}
    cells = _text_cells(answer, [row])
    return {header: column[0] for header, column in cells.items() if header in numbers}


def text_table(cells: Mapping[str, Sequence[str]]) -> str:
    """Columns under their headers, without those in which every row is plain."""
    omit = {one.header: one.omit for one in PLAN_COLUMNS}
    kept = {name: column for name, column in cells.items() if {*column} - {"-", omit.get(name)}}
    left = {one.header for one in PLAN_COLUMNS if one.is_left} | {"cluster", "layout"}
    align = ["left" if name in left else "right" for name in kept]
    return dense_table([*zip(*kept.values(), strict=True)], [*kept], align)


def ranking_text(answer: PlanAnswer, first: int, rows: RankedRows) -> str:
    """A table of rows, numbered from ``first`` on."""
    ranks = map(str, range(first, first + len(rows)))
    return text_table({"#": [*ranks], **_text_cells(answer, rows)})


def row_documents(answer: PlanAnswer, rows: RankedRows) -> list[dict[str, Any]]:
    """JSON objects of rows; money is None where no price is known, days without tokens."""
    documents: list[dict[str, Any]] = [{} for _ in rows]
    for one in _columns(answer, _JSON):
        for document, value in zip(documents, one.data_of(answer, rows), strict=True):
            if one.group == _STAGES:
                stages = document.setdefault(_STAGES, [{} for _ in value])
                for stage, own in zip(stages, value, strict=True):
                    stage[one.name] = own
            else:
                (document.setdefault(one.group, {}) if one.group else document)[one.name] = value
    return documents


def csv_header(answer: PlanAnswer) -> list[str]:
    """Headers of a line in CSV; what a stage has stands in one cell for all stages."""
    columns = _columns(answer, _CSV)
    return [f"stage_{one.name}" if one.group == _STAGES else one.name for one in columns]


def csv_lines(answer: PlanAnswer, rows: RankedRows) -> Iterator[tuple[Any, ...]]:
    """Lines of rows in CSV, in chunks."""
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        columns = (one.data_of(answer, chunk) for one in _columns(answer, _CSV))
        yield from zip(*([*map(_cell, values)] for values in columns), strict=True)


_CHUNK = 1 << 13


def _cell(value: Any) -> Any:
    """Several values as one cell; words that have spaces with a semicolon between them."""
    if not isinstance(value, (list, tuple)):
        return value
    words = ["/".join(one) if isinstance(one, list) else str(one) for one in value]
    return ("; " if any(" " in word for word in words) else " ").join(words)


def write_blocks(file: TextIO, blocks: Sequence[tuple[str, PlanAnswer, RankedRows]]) -> None:
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


def _counts_text(numbers: Sequence[int] | None) -> str:
    """``5 4 2x3 3``."""
    return " ".join(str(n) if count == 1 else f"{count}x{n}" for n, count in _runs(numbers or "-"))


def _order_text(names: Sequence[str]) -> str:
    """``8xA100-SXM-40GB, 2 x 4xA10G-24GB``: nodes in the order of ranks."""
    runs = _runs(names)
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in runs)


def nodes_text(kinds: _Kinds, counts: Sequence[int]) -> str:
    """``1x8xA100-SXM-40GB + 3x4xA10G-24GB``: some nodes of each kind."""
    named = zip(counts, kinds, strict=True)
    return " + ".join(f"{count}x{kind.name}" for count, kind in named if count)


def _each(
    name: str,
    of: Callable[[PlanAnswer, Planned], Any],
    header: str = "",
    shown: Any = _plain_text,
    **more: Any,
) -> PlanColumn:
    """A column of what each row has by itself."""
    return PlanColumn(name, lambda a, rows: [of(a, row) for row in rows], header, shown, **more)


def _knob(name: str, header: str = "", **more: Any) -> PlanColumn:
    """A field of the layout."""

    def value(answer: PlanAnswer, row: Planned) -> Any:
        own = getattr(answer.layout(row), name)
        return own.value if isinstance(own, Enum) else own

    return _each(name, value, header, group="candidate", **more)


def _stage(name: str, of: Callable[[Any, Any], Any], header: str = "", **more: Any) -> PlanColumn:
    """A value of each stage of a row on a part of a cluster."""
    more |= {"group": _STAGES, "when": _has_parts}
    return _each(name, lambda a, row: [of(a, stage) for stage in row.stages], header, **more)


def _part(name: str) -> PlanColumn:
    """Seconds of a part of the step."""

    def values(answer: PlanAnswer, rows: RankedRows) -> list[float]:
        at = [own for own, _ in rows[0].parts].index(name) if rows else 0
        return [row.parts[at][1] for row in rows]

    def has(answer: PlanAnswer, form: str) -> bool:
        return any(name in dict(row.parts) for row in answer.shown[:1])

    return PlanColumn(f"{name}_s", values, group="parts", when=has)


def _order(answer: PlanAnswer, row: Planned) -> list[str]:
    return [answer.kinds[kind].name for kind in row.order]


def _errors(answer: PlanAnswer, rows: RankedRows) -> list[float]:
    return [band.error for band in answer.bands(rows)]


def _tokens_per_s(answer: PlanAnswer, row: Planned) -> float:
    """Tokens of a step in its time."""
    workload = answer.workload
    return workload.global_batch * workload.sequence_length / row.step_s


def _gpu_speed(answer: PlanAnswer, row: Planned) -> float:
    return _tokens_per_s(answer, row) / row.layout.world_size


def _usd(row: Planned, steps: float | None) -> float | None:
    return None if steps is None or row.usd_per_step is None else steps * row.usd_per_step


def _training_usd(answer: PlanAnswer, row: Planned) -> float | None:
    return _usd(row, answer.steps)


def _billion_usd(answer: PlanAnswer, row: Planned) -> float | None:
    tokens = answer.workload.global_batch * answer.workload.sequence_length
    return _usd(row, 1e9 / tokens)


def _days(answer: PlanAnswer, row: Planned) -> float | None:
    return None if answer.steps is None else answer.steps * row.step_s / _S_PER_DAY


def _days_text(days: float) -> str:
    return duration_text(days * _S_PER_DAY)


def _runs_here(answer: PlanAnswer, rows: RankedRows) -> list[bool]:
    return [rule is None for rule in answer.plan_only_by(rows)]


def _three_digits(number: float | None) -> str:
    return "-" if number is None else number_text(number, 3)


def _share_text(share: float | None) -> str:
    return "-" if share is None else percent(share)


def _host_text(size: float) -> str:
    return memory_size(size) if size else "-"


def _recompute_text(answer: PlanAnswer, row: Planned) -> str:
    some = "" if row.recompute_layers == ALL_LAYERS else f" {row.recompute_layers}"
    return f"{row.layout.recompute.value}{some}"


def _recompute_layers(answer: PlanAnswer, row: Planned) -> int | None:
    """None for all of a stage's."""
    return None if row.recompute_layers == ALL_LAYERS else row.recompute_layers


PLAN_COLUMNS: tuple[PlanColumn, ...] = (
    _each("nodes", lambda a, row: [*row.counts], when=_has_parts_in(_JSON)),
    _each("nodes", lambda a, row: nodes_text(a.kinds, row.counts), when=_has_parts_in(_CSV)),
    _each("order", _order, "nodes in order", _order_text, is_left=True, when=_has_parts),
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
    _each("", _recompute_text, "recompute", omit="none", is_left=True, group="candidate"),
    _knob("sequence_parallel", "sp", is_left=True),
    _knob("offload", "offload", omit="none", is_left=True),
    _knob("placement"),
    _knob("pipeline_split"),
    _each("recompute_layers", _recompute_layers, group="candidate"),
    _stage("nodes", lambda a, stage: [a.kinds[kind].name for kind in stage.kinds]),
    _stage("layers", lambda a, stage: stage.layers, "layers", shown=_counts_text, is_left=True),
    _stage("micro_batch_s", lambda a, stage: stage.micro_batch_s),
    _stage("peak_memory_gib", lambda a, stage: gib(stage.peak_bytes)),
    _stage("limit_gib", lambda a, stage: gib(stage.limit_bytes)),
    _each("family", lambda a, row: family_name(row.layout)),
    _each("step_time_s", lambda a, row: row.step_s, "step", step_time_text),
    PlanColumn(
        "step_time_band", _errors, "band", lambda error: f"±{percent(error)}", when=_has_band
    ),
    PlanColumn("step_time_unchecked", lambda a, rows: [[*one.unchecked] for one in a.bands(rows)]),
    _each("tokens_per_s", _tokens_per_s),
    _each("tokens_per_s_per_gpu", _gpu_speed, "tokens/s/GPU", _three_digits),
    _each("mfu", lambda a, row: None if row.stages else row.mfu, "MFU", _share_text),
    _each("peak_memory_gib", lambda a, row: row.peak_bytes, "memory", memory_size, data=gib),
    _each(
        "host_memory_gib",
        lambda a, row: row.host_bytes,
        "host memory",
        _host_text,
        data=gib,
    ),
    _each("free_memory", lambda a, row: 1.0 - row.peak_bytes / row.limit_bytes, "free", percent),
    _each("fits", lambda a, row: row.verdict.value, "fits", omit="yes", is_left=True),
    _each("usd_per_hour", lambda a, row: row.usd_per_hour),
    _each("usd_per_step", lambda a, row: row.usd_per_step),
    _each("", _billion_usd, "$/B tokens", _three_digits, when=lambda a, form: a.steps is None),
    _each("training_days", _days, "time", _days_text, when=_has_steps),
    _each("training_usd", _training_usd, "$", _three_digits, when=_has_steps),
    PlanColumn(
        "runnable",
        _runs_here,
        "runs here",
        lambda runs: "yes" if runs else "plan-only",
        "plan-only",
        True,
    ),
    PlanColumn("plan_only_by", lambda a, rows: a.plan_only_by(rows)),
    *map(_part, PARTS),
)
"""In the order of the text and of CSV; the parts of the step come last."""
