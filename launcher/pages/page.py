"""An HTML file from a title, an answer, charts and tables.

Everything is inside the file, plotly.js too; a content security policy keeps requests from
leaving. Text is escaped by the template, numbers for charts travel as JSON.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

from autoconf_launch.core import ConfigError

from ..report import Column, WaterfallStep, memory_size, memory_unit, save_file

_TEMPLATE = Path(__file__).parent / "page.html"
_RULE = re.compile(r"-+(  +-+)*")
"""The line below the headers of a table, as a terminal has it."""
_PIPES = re.compile(r"\|(:?-+:?\|)+")
"""The same in Markdown."""
_NARROW = 16
"""Characters of a column that is never broken."""
_PRE = '<pre style="white-space: pre-wrap">'
_FAR = 3.0
"""A limit above this multiple of the largest bar would flatten all bars; only the note has it."""
Traces: TypeAlias = list[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure in plotly's own terms (https://plotly.com/javascript/reference/).

    Attributes:
        title: a heading that says what is seen.
        note: a sentence on how to read it.
        traces: ``data`` of the figure.
        layout: the figure's layout; colours of text and grid are the page's.
    """

    title: str
    note: str
    traces: tuple[Mapping[str, Any], ...]
    layout: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Cell:
    """``order`` is the sort key in its column; None: the text."""

    text: str
    order: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows that a click on a header sorts.

    Attributes:
        more: lines that each row unfolds; empty if no row has any.
        marked: rows to highlight; empty: none.
    """

    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    more: tuple[str, ...] = ()
    marked: tuple[bool, ...] = ()


def table_rows(columns: Sequence[Column], rows: Sequence[Any]) -> tuple[tuple[Cell, ...], ...]:
    """Cells of the columns that a text has; numbers sort a column."""
    shown = (zip(one.cells(None, rows), one.data_of(None, rows), strict=True) for one in columns)
    cells = ([Cell(text, _order(value)) for text, value in one] for one in shown)
    return tuple(zip(*cells, strict=True))


def _order(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HtmlPage:
    """``answer`` is what a terminal would show; ``texts`` are titles and texts at the end."""

    title: str
    answer: str
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()


def page_html(page: HtmlPage) -> str:
    """The whole file.

    Raises:
        ConfigError: the extra ``html`` is not installed.
    """
    jinja2, plotly = _library("jinja2"), _library("plotly.offline")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    environment.filters["json_value"] = _json_value
    template = environment.from_string(_TEMPLATE.read_text(encoding="utf-8"))
    text: str = template.render(
        page=page, answer=text_html(page.answer), plotly=plotly.get_plotlyjs()
    )
    return text


def _json_value(value: Any) -> Any:
    """The value with None for each number that JSON does not have; plotly leaves a gap there."""
    if isinstance(value, Mapping):
        return {name: _json_value(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_page(page: HtmlPage, path: Path) -> None:
    """Write the file, in place of an older one.

    Raises:
        ConfigError: an extra is missing, or the file cannot be written.
    """
    text = page_html(page)
    save_file(path, lambda file: file.write(text))


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"HTML pages need {name.partition('.')[0]}, which is not installed: "
            "pip install 'autoconf-launch[html]'."
        ) from error


def text_html(text: str) -> str:
    """An answer as it is printed, for a page or a notebook."""
    blocks = re.split(r"\n\s*\n", text.strip("\n"))
    return "\n".join(_block(block.splitlines()) for block in blocks)


def _block(lines: Sequence[str]) -> str:
    """A paragraph; or a table with the lines above and below it."""
    rule = next((at for at, line in enumerate(lines) if at and _is_rule(line)), None)
    if rule is None:
        return f"{_PRE}{escape(chr(10).join(lines))}</pre>" if lines else ""
    cells = [_cells(line, lines[rule]) for line in lines[rule - 1 :]]
    count = next((at for at, row in enumerate(cells) if row is None), len(cells))
    rows = [row for row in (cells[0], *cells[2:count]) if row is not None]
    table = _table(rows) if rows else ""
    parts = (_block(lines[: rule - 1]), table, _block(lines[rule - 1 + count :]))
    return "\n".join(filter(None, parts))


def _is_rule(line: str) -> bool:
    return bool(_RULE.fullmatch(line) or _PIPES.fullmatch(line))


def _cells(line: str, rule: str) -> list[str] | None:
    if rule.startswith("|"):
        cells = line.strip("|").split("|")
        same = line.startswith("|") and len(cells) == rule.count("|") - 1
        return [cell.removeprefix(" ").removesuffix(" ") for cell in cells] if same else None
    spans = [match.span() for match in re.finditer("-+", rule)]
    line = line.ljust(len(rule))
    gaps = pairwise(spans)
    if line[len(rule) :].strip() or any(line[end:start].strip() for (_, end), (start, _) in gaps):
        return None
    return [line[first:last] for first, last in spans]


def _table(rows: Sequence[Sequence[str]]) -> str:
    styles = [_style(column) for column in zip(*rows, strict=True)]
    body = "\n".join(_row("td", row, styles) for row in rows[1:])
    head = _row("th", rows[0], styles)
    return f"<table>\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _style(column: Sequence[str]) -> str:
    """Columns of numbers end at their right."""
    is_right = all(not text.strip() or text.rstrip() == text for text in column)
    is_padded = any(text[:1] == " " for text in column)
    align = "right" if is_right and is_padded else "left"
    space = "nowrap" if max(len(text.strip()) for text in column) <= _NARROW else "normal"
    return f"text-align: {align}; white-space: {space}"


def _row(tag: str, cells: Sequence[str], styles: Sequence[str]) -> str:
    inside = "".join(
        f'<{tag} style="{style}">{escape(text.strip())}</{tag}>'
        for text, style in zip(cells, styles, strict=True)
    )
    return f"<tr>{inside}</tr>"


def chart(
    title: str,
    note: str,
    traces: Iterable[Mapping[str, Any]],
    *,
    x: str | Mapping[str, Any] = "",
    y: str | Mapping[str, Any],
    has_legend: bool = True,
    **layout: Any,
) -> Chart:
    """A figure whose axes are titles, or have more than that."""
    axes = {
        name: axis(value) if isinstance(value, str) else value
        for name, value in (("xaxis", x), ("yaxis", y))
        if value
    }
    full = {**layout, **axes, "showlegend": has_legend}
    return Chart(title=title, note=note, traces=tuple(traces), layout=full)


def axis(text: str, **more: Any) -> dict[str, Any]:
    """An axis with a title."""
    return {"title": {"text": text}, **more}


def line_trace(name: str, x: Sequence[float | str], y: Sequence[float]) -> dict[str, Any]:
    """A line with a marker at each point."""
    return {"type": "scatter", "mode": "lines+markers", "name": name, "x": [*x], "y": [*y]}


def marker_trace(
    name: str, x: Sequence[float | str], y: Sequence[float], texts: Sequence[str]
) -> dict[str, Any]:
    """Markers that show their text under the mouse."""
    return {
        **line_trace(name, x, y),
        "mode": "markers",
        "hovertext": [*texts],
        "marker": {"size": 9},
    }


def bar_trace(name: str, x: Sequence[str | float], y: Sequence[str | float]) -> dict[str, Any]:
    """A bar for each name."""
    return {"type": "bar", "name": name, "x": [*x], "y": [*y]}


def waterfall_chart(title: str, note: str, steps: Sequence[WaterfallStep]) -> Chart:
    """Parts of a step, one after the other, and their sum."""
    fall = {
        "type": "waterfall",
        "x": [*(step.name for step in steps), "step"],
        "y": [*(1e3 * step.seconds for step in steps), 0.0],
        "measure": [*("relative" for _ in steps), "total"],
    }
    return chart(title, note, (fall,), y="ms", has_legend=False)


def agreement_chart(
    title: str, unit: str, pairs: Sequence[tuple[float, float]], names: Sequence[str]
) -> Chart:
    """Measured values over predicted ones, with the line on which both are equal."""
    predicted, measured = zip(*pairs, strict=True)
    longest = max(*predicted, *measured)
    equal = {**line_trace("equal", (0.0, longest), (0.0, longest)), "mode": "lines"}
    return chart(
        title,
        "Each point is the prediction made before its trial ran; on the line, both agree.",
        (marker_trace("trials", predicted, measured, names), equal),
        x=axis(f"predicted {unit}", rangemode="tozero"),
        y=f"measured {unit}",
        has_legend=False,
    )


def memory_chart(
    names: Sequence[str],
    parts: Sequence[tuple[str, Sequence[float]]],
    limit_bytes: float | None,
    peaks: Sequence[float] = (),
) -> Chart:
    """Bytes of each name's parts on top of each other, measured peaks, and the limit."""
    sums = [sum(sizes) for sizes in zip(*(sizes for _, sizes in parts), strict=True)]
    largest = max((*sums, *peaks), default=0.0)
    unit, size = memory_unit(largest)
    traces: Traces = [
        bar_trace(part, names, [value / size for value in sizes])
        for part, sizes in parts
        if any(value >= largest / 1000 for value in sizes)
    ]
    if peaks:
        traces.append(marker_trace("measured peak", names, [peak / size for peak in peaks], names))
    if limit_bytes is not None and limit_bytes <= _FAR * largest:
        traces.append(_limit_line(names, limit_bytes / size))
    what = "Parts that were predicted" if parts else "Peaks that were measured"
    limit = f"; a rank may use {memory_size(limit_bytes, 2)}" if limit_bytes is not None else ""
    note = f"{what}, for the rank that needs most{limit}."
    return chart("Memory", note, traces, x={"type": "category"}, y=unit, barmode="stack")


def _limit_line(names: Sequence[str], height: float) -> dict[str, Any]:
    limit = line_trace("limit", (names[0], names[-1]), (height, height))
    return {**limit, "mode": "lines", "line": {"dash": "dash", "color": "#cf222e"}}
