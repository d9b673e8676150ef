"""Texts of the reports as HTML: their tables as tables, all else as it is, everything escaped."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from itertools import pairwise

_RULE = re.compile(r"-+(  +-+)*")
"""The line below the headers of a table, as a terminal has it."""
_PIPES = re.compile(r"\|(:?-+:?\|)+")
"""The same in Markdown."""
_NARROW = 16
"""Characters of a column that is never broken."""
_PRE = '<pre style="white-space: pre-wrap">'


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
    """Cells of a row below or above this rule, as wide as they are; None where it is not one."""
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
