"""Columns of a plan's rows, each declared once; text, JSON and CSV are made from the list.

A row is a layout on equal nodes (``Planned``) or on some nodes of a mixed cluster (``MixedRow``).
A column has its values for many rows at once, so that tables of 100,000 rows take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias

from autoconf_launch.autotuner.cost import ALL_LAYERS
from autoconf_launch.autotuner.planner import family_name
from autoconf_launch.core import encode

from ..estimates import PlanAnswer
from .cells import (
    dense_table,
    duration_text,
    memory_size,
    number_text,
    percent,
    step_time_text,
    write_csv,
)
from .waterfall import MIXED_PARTS, PARTS

if TYPE_CHECKING:  # with the mixed room, which plan does not wait for
    from ..estimates import MixedAnswer

RankedAnswer: TypeAlias = "PlanAnswer | MixedAnswer"
RankedRows: TypeAlias = Sequence[Any]
"""Rows of one answer: ``Planned`` of a ``PlanAnswer``, ``MixedRow`` of a ``MixedAnswer``."""


class TableForm(Enum):
    """Where a column is written."""

    TEXT = "text"
    JSON = "json"
    CSV = "csv"


def _plain_text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "-"
    return "-" if value is None else str(value)


def _is_always(answer: Any, form: TableForm) -> bool:
    return True


def _is_equal(answer: Any, form: TableForm) -> bool:
    return isinstance(answer, PlanAnswer)


def _is_mixed(answer: Any, form: TableForm) -> bool:
    return not isinstance(answer, PlanAnswer)


STAGES = "stages"


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
        group: the object of a row in JSON that has the key; ``STAGES``: that of each stage.
        when: the answers and forms that have it.
    """

    name: str
    of: Callable[[Any, RankedRows], Sequence[Any]]
    header: str = ""
    shown: Callable[[Any], str] = _plain_text
    omit: str | None = None
    is_left: bool = False
    data: Callable[[Any], Any] | None = None
    group: str = ""
    when: Callable[[Any, TableForm], bool] = _is_always

    def is_in(self, form: TableForm, answer: RankedAnswer) -> bool:
        """Whether a form of an answer has the column."""
        return bool(self.header if form is TableForm.TEXT else self.name) and self.when(
            answer, form
        )

    def data_of(self, answer: RankedAnswer, rows: RankedRows) -> Sequence[Any]:
        """Its values as JSON and CSV have them."""
        values = self.of(answer, rows)
        return values if self.data is None else [*map(self.data, values)]


def text_cells(answer: RankedAnswer, rows: RankedRows) -> dict[str, list[str]]:
    """Cells of the text by header."""
    shown = [one for one in PLAN_COLUMNS if one.is_in(TableForm.TEXT, answer)]
    return {one.header: [one.shown(value) for value in one.of(answer, rows)] for one in shown}


def number_cells(answer: RankedAnswer, row: Any) -> dict[str, str]:
    """Cells of a row on its speed, memory, time and money, by header."""
    numbers = {one.header for one in PLAN_COLUMNS if not one.group and one.name != "runnable"}
    cells = text_cells(answer, [row])
    return {header: column[0] for header, column in cells.items() if header in numbers}


def text_table(cells: Mapping[str, Sequence[str]]) -> str:
    """Columns under their headers, without those in which every row is plain."""
    kept = {name: column for name, column in cells.items() if {*column} - {"-", _OMIT.get(name)}}
    align = ["left" if name in _LEFT else "right" for name in kept]
    return dense_table([*zip(*kept.values(), strict=True)], [*kept], align)


def ranking_text(answer: RankedAnswer, first: int, rows: RankedRows) -> str:
    """A table of rows, numbered from ``first`` on."""
    ranks = map(str, range(first, first + len(rows)))
    return text_table({"#": [*ranks], **text_cells(answer, rows)})


def row_documents(answer: RankedAnswer, rows: RankedRows) -> list[dict[str, Any]]:
    """JSON objects of rows; money is None where no price is known, days without tokens."""
    documents: list[dict[str, Any]] = [{} for _ in rows]
    for one in (column for column in PLAN_COLUMNS if column.is_in(TableForm.JSON, answer)):
        for document, value in zip(documents, one.data_of(answer, rows), strict=True):
            if one.group == STAGES:
                stages = document.setdefault(STAGES, [{} for _ in value])
                for stage, own in zip(stages, value, strict=True):
                    stage[one.name] = own
            else:
                of_group = document.setdefault(one.group, {}) if one.group else document
                of_group[one.name] = value
    return documents


def csv_header(answer: RankedAnswer) -> list[str]:
    """Headers of a line in CSV; what a stage has stands in one cell for all stages."""
    columns = [one for one in PLAN_COLUMNS if one.is_in(TableForm.CSV, answer)]
    return [f"stage_{one.name}" if one.group == STAGES else one.name for one in columns]


def csv_lines(answer: RankedAnswer, rows: RankedRows) -> Iterator[tuple[Any, ...]]:
    """Lines of rows in CSV, in chunks."""
    columns = [one for one in PLAN_COLUMNS if one.is_in(TableForm.CSV, answer)]
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        cells = ([*map(_cell, one.data_of(answer, chunk))] for one in columns)
        yield from zip(*cells, strict=True)


_CHUNK = 1 << 13


def write_blocks(file: TextIO, blocks: Sequence[tuple[str, RankedAnswer, RankedRows]]) -> None:
    """Write a header and a line for each row; ranks go on from block to block."""
    if not blocks:
        return
    write_csv(file, [("rank", *csv_header(blocks[0][1]), "block")])
    first = 1
    for block, answer, rows in blocks:
        lines = enumerate(csv_lines(answer, rows), start=first)
        write_csv(file, ((rank, *line, block) for rank, line in lines))
        first += len(rows)


def _cell(value: Any) -> Any:
    """Several values as one cell; words that have spaces with a semicolon between them."""
    if not isinstance(value, (list, tuple)):
        return value
    words = ["/".join(one) if isinstance(one, list) else str(one) for one in value]
    return ("; " if any(" " in word for word in words) else " ").join(words)


def runs_text(numbers: Sequence[int]) -> str:
    """``5 4 2x3 3``: numbers in order, equal neighbours once with their count."""
    runs = [(number, len(list(some))) for number, some in groupby(numbers)]
    return " ".join(str(n) if count == 1 else f"{count}x{n}" for n, count in runs)


def nodes_text(answer: MixedAnswer, counts: Sequence[int]) -> str:
    """``1x8xA100-SXM-40GB + 3x4xA10G-24GB``: some nodes of each kind."""
    named = zip(counts, answer.kinds, strict=True)
    return " + ".join(f"{count}x{kind.name}" for count, kind in named if count)


def _order_text(names: Sequence[str]) -> str:
    """``8xA100-SXM-40GB, 2 x 4xA10G-24GB``: nodes in the order of ranks."""
    runs = [(name, len(list(some))) for name, some in groupby(names)]
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in runs)


def gib(size_bytes: float) -> float:
    """GiB of a document."""
    return round(size_bytes / _GIB, 3)


_GIB = 2**30


def _knob(name: str, header: str = "", **more: Any) -> PlanColumn:
    """A field of the layout."""

    def values(answer: RankedAnswer, rows: RankedRows) -> list[Any]:
        if not isinstance(answer, PlanAnswer):
            return [encode(getattr(answer.layout(row), name)) for row in rows]
        found = [getattr(row.layout, name) for row in rows]
        return [value.value for value in found] if found and isinstance(found[0], Enum) else found

    return PlanColumn(name, values, header, group="candidate", **more)


def _stage(
    name: str, of: Callable[[MixedAnswer, Any], Any], header: str = "", **more: Any
) -> PlanColumn:
    """A value of each stage of a row on a mixed cluster."""

    def values(answer: MixedAnswer, rows: RankedRows) -> list[list[Any]]:
        return [[of(answer, stage) for stage in row.stages] for row in rows]

    return PlanColumn(name, values, header, group=STAGES, when=_is_mixed, **more)


def _part(name: str, when: Callable[[Any, TableForm], bool]) -> PlanColumn:
    """Seconds of a part of the step."""

    def values(answer: RankedAnswer, rows: RankedRows) -> list[float]:
        at = [own for own, _ in rows[0].parts].index(name) if rows else 0
        return [row.parts[at][1] for row in rows]

    return PlanColumn(f"{name}_s", values, group="parts", when=when)


def _tokens_per_s(answer: RankedAnswer, row: Any) -> float:
    return answer.workload.global_batch * answer.workload.sequence_length / float(row.step_s)


def _usd(answer: Any, rows: RankedRows, steps: float | None) -> list[float | None]:
    """Money of some steps of each row; None where it is not known."""
    if steps is None:
        return [None] * len(rows)
    each = [answer.usd_per_step(row) for row in rows]
    return [None if usd is None else steps * usd for usd in each]


def _days(answer: RankedAnswer, rows: RankedRows) -> list[float | None]:
    steps = answer.steps
    return [None if steps is None else steps * row.step_s / _S_PER_DAY for row in rows]


_S_PER_DAY = 86400


def _days_text(days: float) -> str:
    return duration_text(days * _S_PER_DAY)


def _usd_text(usd: float | None) -> str:
    return "-" if usd is None else number_text(usd, 3)


def _billion_usd(answer: RankedAnswer, rows: RankedRows) -> list[float | None]:
    tokens = answer.workload.global_batch * answer.workload.sequence_length
    return _usd(answer, rows, 1e9 / tokens)


def _recompute_text(answer: RankedAnswer, rows: RankedRows) -> list[str]:
    return [
        row.layout.recompute.value
        + ("" if row.recompute_layers == ALL_LAYERS else f" {row.recompute_layers}")
        for row in rows
    ]


def _recompute_layers(answer: RankedAnswer, rows: RankedRows) -> list[int | None]:
    """None for all of a stage's."""
    counts = (row.recompute_layers for row in rows)
    return [None if count == ALL_LAYERS else count for count in counts]


PLAN_COLUMNS: tuple[PlanColumn, ...] = (
    PlanColumn(
        "nodes",
        lambda a, rows: [list(row.counts) for row in rows],
        when=lambda a, form: _is_mixed(a, form) and form is TableForm.JSON,
    ),
    PlanColumn(
        "nodes",
        lambda a, rows: [nodes_text(a, row.counts) for row in rows],
        when=lambda a, form: _is_mixed(a, form) and form is TableForm.CSV,
    ),
    PlanColumn(
        "order",
        lambda a, rows: [[a.kinds[kind].name for kind in row.order] for row in rows],
        "nodes in order",
        _order_text,
        is_left=True,
        when=_is_mixed,
    ),
    _knob("data_parallel", "dp"),
    _knob("tensor_parallel", "tp"),
    _knob("pipeline_parallel", "pp"),
    _knob("virtual_pipeline", "vpp", omit="1"),
    _knob("context_parallel", "cp", omit="1"),
    _knob("expert_parallel", "ep", omit="1"),
    _knob("zero_stage", "zero"),
    _knob("micro_batch", "micro"),
    _knob(
        "micro_batch_split",
        "uneven micro",
        shown=lambda split: runs_text(split) if split else "-",
        is_left=True,
        when=lambda a, form: _is_mixed(a, form) or form is TableForm.JSON,
    ),
    _knob("accumulation", "acc"),
    _knob("recompute"),
    PlanColumn("", _recompute_text, "recompute", omit="none", is_left=True, group="candidate"),
    _knob("sequence_parallel", "sp", is_left=True),
    _knob("offload", "offload", omit="none", is_left=True),
    _knob("placement", when=lambda a, form: _is_mixed(a, form) or form is TableForm.JSON),
    _knob("pipeline_split", when=lambda a, form: _is_mixed(a, form) or form is TableForm.JSON),
    PlanColumn("recompute_layers", _recompute_layers, group="candidate", when=_is_equal),
    _stage("nodes", lambda a, stage: [a.kinds[kind].name for kind in stage.kinds]),
    _stage("layers", lambda a, stage: stage.layers, "layers", shown=runs_text, is_left=True),
    _stage("micro_batch_s", lambda a, stage: stage.micro_batch_s),
    _stage("peak_memory_gib", lambda a, stage: gib(stage.peak_bytes)),
    _stage("limit_gib", lambda a, stage: gib(stage.limit_bytes)),
    PlanColumn(
        "family", lambda a, rows: [family_name(row.layout) for row in rows], when=_is_equal
    ),
    PlanColumn(
        "step_time_s", lambda a, rows: [row.step_s for row in rows], "step", step_time_text
    ),
    PlanColumn(
        "step_time_band",
        lambda a, rows: [band.error for band in a.bands(rows)],
        "band",
        lambda error: f"±{percent(error)}",
        when=lambda a, form: form is not TableForm.TEXT or (_is_equal(a, form) and a.measured),
    ),
    PlanColumn(
        "step_time_unchecked", lambda a, rows: [list(band.unchecked) for band in a.bands(rows)]
    ),
    PlanColumn(
        "tokens_per_s",
        lambda a, rows: [_tokens_per_s(a, row) for row in rows],
        "tokens/s",
        lambda speed: number_text(speed, 3),
        when=_is_mixed,
    ),
    PlanColumn(
        "tokens_per_s_per_gpu",
        lambda a, rows: [_tokens_per_s(a, row) / a.gpus(row) for row in rows],
        "tokens/s/GPU",
        lambda speed: number_text(speed, 3),
        when=lambda a, form: form is not TableForm.TEXT or _is_equal(a, form),
    ),
    PlanColumn("mfu", lambda a, rows: [row.mfu for row in rows], "MFU", percent, when=_is_equal),
    PlanColumn(
        "peak_memory_gib",
        lambda a, rows: [a.fullest(row)[0] for row in rows],
        "memory",
        memory_size,
        data=gib,
    ),
    PlanColumn(
        "host_memory_gib",
        lambda a, rows: [row.host_bytes for row in rows],
        "host memory",
        lambda size: memory_size(size) if size else "-",
        data=gib,
        when=_is_equal,
    ),
    PlanColumn(
        "free_memory",
        lambda a, rows: [1.0 - peak / limit for peak, limit in map(a.fullest, rows)],
        "free",
        percent,
    ),
    PlanColumn(
        "fits",
        lambda a, rows: [row.verdict.value for row in rows],
        "fits",
        omit="yes",
        is_left=True,
    ),
    PlanColumn("usd_per_hour", lambda a, rows: [row.usd_per_hour for row in rows], when=_is_mixed),
    PlanColumn("usd_per_step", lambda a, rows: _usd(a, rows, 1)),
    PlanColumn("", _billion_usd, "$/B tokens", _usd_text, when=lambda a, form: a.steps is None),
    PlanColumn(
        "training_days",
        _days,
        "time",
        _days_text,
        when=lambda a, form: form is not TableForm.TEXT or a.steps is not None,
    ),
    PlanColumn(
        "training_usd",
        lambda a, rows: _usd(a, rows, a.steps),
        "$",
        _usd_text,
        when=lambda a, form: form is not TableForm.TEXT or a.steps is not None,
    ),
    PlanColumn(
        "runnable",
        lambda a, rows: [rule is None for rule in a.plan_only_by(rows)],
        "runs here",
        lambda runs: "yes" if runs else "plan-only",
        omit="plan-only",
        is_left=True,
    ),
    PlanColumn("plan_only_by", lambda a, rows: a.plan_only_by(rows)),
    *(_part(name, _is_equal) for name in PARTS),
    *(_part(name, _is_mixed) for name in MIXED_PARTS),
)
"""In the order of the text and of CSV; the parts of the step come last."""
_OMIT = {one.header: one.omit for one in PLAN_COLUMNS if one.header and one.omit}
_LEFT = {one.header for one in PLAN_COLUMNS if one.is_left} | {"cluster", "layout"}
