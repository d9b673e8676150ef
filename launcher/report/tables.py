"""Columns of rows, each declared once; tables of text, JSON objects and CSV are made from them.

A column has its values for many rows at once, so that tables of 100,000 rows take seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from .cells import table_of

TEXT, JSON, CSV = "text", "json", "csv"
STAGES = "stages"
_CHUNK = 1 << 13


def _plain(value: Any) -> str:
    """A value as it is; a switch as yes or a dash."""
    return ("yes" if value else "-") if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: key in JSON and header in CSV; empty: the column is only in the text.
        of: its values for rows of an answer.
        header: in the text; empty: the column is not in the text.
        shown: a value as the text has it; None is a dash.
        omit: the text skips the column if all its cells are this value or a dash.
        is_left: the text starts its cells at the left.
        data: a value as JSON and CSV have it.
        group: object of a row in JSON that has the key; ``stages``: an object for each stage.
        when: True if an answer has the column in a form.
    """

    name: str
    of: Callable[[Any, Sequence[Any]], Sequence[Any]]
    header: str = ""
    shown: Callable[[Any], str] = _plain
    omit: str | None = None
    is_left: bool = False
    data: Callable[[Any], Any] | None = None
    group: str = ""
    when: Callable[[Any, str], bool] = lambda answer, form: True

    def cells(self, answer: Any, rows: Sequence[Any]) -> list[str]:
        """Its values as the text has them."""
        return ["-" if value is None else self.shown(value) for value in self.of(answer, rows)]

    def data_of(self, answer: Any, rows: Sequence[Any]) -> Sequence[Any]:
        """Its values as JSON and CSV have them."""
        values, data = self.of(answer, rows), self.data
        return values if data is None else [x if x is None else data(x) for x in values]


def each(
    name: str,
    of: str | Callable[[Any, Any], Any] = "",
    header: str = "",
    shown: Callable[[Any], str] = _plain,
    **more: Any,
) -> Column:
    """A column of an attribute of each row, or of a function of the answer and the row.

    If a part of a dotted attribute is None, the value is None.
    """
    if callable(of):
        return Column(name, lambda a, rows: [of(a, row) for row in rows], header, shown, **more)
    own = _reach(of or name)
    return Column(name, lambda a, rows: [*map(own, rows)], header, shown, **more)


def _reach(path: str) -> Callable[[Any], Any]:
    first, *rest = path.split(".")
    if not rest:
        return attrgetter(first)

    def reach(row: Any) -> Any:
        value = getattr(row, first)
        for name in rest:
            value = None if value is None else getattr(value, name)
        return value

    return reach


def _in_form(columns: Sequence[Column], answer: Any, form: str) -> list[Column]:
    named = (one for one in columns if (one.header if form == TEXT else one.name))
    return [one for one in named if one.when(answer, form)]


def rows_cells(
    columns: Sequence[Column], rows: Sequence[Any], answer: Any = None
) -> dict[str, list[str]]:
    """Cells of the text by their header."""
    return {one.header: one.cells(answer, rows) for one in _in_form(columns, answer, TEXT)}


def rows_text(
    columns: Sequence[Column],
    rows: Sequence[Any],
    answer: Any = None,
    *,
    first: int | None = None,
    markdown: bool = False,
) -> str:
    """Rows under the headers of their columns, numbered from ``first`` on if given."""
    ranks = {} if first is None else {"#": [*map(str, range(first, first + len(rows)))]}
    cells = {**ranks, **rows_cells(columns, rows, answer)}
    return cells_table(columns, cells, markdown=markdown)


def cells_table(
    columns: Sequence[Column], cells: Mapping[str, Sequence[str]], *, markdown: bool = False
) -> str:
    """Cells under their headers, without columns in which every row is plain."""
    omit = {one.header: one.omit for one in columns}
    left = {one.header for one in columns if one.is_left}
    kept = {name: column for name, column in cells.items() if {*column} - {"-", omit.get(name)}}
    align = ["left" if name in left else "right" for name in kept]
    return table_of([*zip(*kept.values(), strict=True)], [*kept], align, markdown=markdown)


def rows_documents(
    columns: Sequence[Column], rows: Sequence[Any], answer: Any = None
) -> list[dict[str, Any]]:
    """Rows as JSON objects."""
    documents: list[dict[str, Any]] = [{} for _ in rows]
    for one in _in_form(columns, answer, JSON):
        for document, value in zip(documents, one.data_of(answer, rows), strict=True):
            if one.group == STAGES:
                stages = document.setdefault(STAGES, [{} for _ in value])
                for stage, own in zip(stages, value, strict=True):
                    stage[one.name] = own
            else:
                (document.setdefault(one.group, {}) if one.group else document)[one.name] = value
    return documents


def csv_rows(
    columns: Sequence[Column], rows: Sequence[Any], answer: Any = None, *, header: bool = True
) -> Iterator[Sequence[Any]]:
    """Lines of rows in CSV below their header, in chunks; values of all stages share a cell."""
    named = _in_form(columns, answer, CSV)
    if header:
        yield [f"stage_{one.name}" if one.group == STAGES else one.name for one in named]
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        values = (one.data_of(answer, chunk) for one in named)
        yield from zip(*([*map(_csv_value, column)] for column in values), strict=True)


def _csv_value(value: Any) -> Any:
    """Several values as one cell; words that have spaces with a semicolon between them."""
    if not isinstance(value, (list, tuple)):
        return value
    words = ["/".join(one) if isinstance(one, list) else str(one) for one in value]
    return ("; " if any(" " in word for word in words) else " ").join(words)
