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
_RIGHT = ' style="text-align: right"'
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
    right = [
        all(not text.strip() or text.rstrip() == text for text in column)
        and any(text[:1] == " " for text in column)
        for column in zip(*rows, strict=True)
    ]
    body = "\n".join(_row("td", row, right) for row in rows[1:])
    head = _row("th", rows[0], right)
    return f"<table>\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _row(tag: str, cells: Sequence[str], right: Sequence[bool]) -> str:
    inside = "".join(
        f"<{tag}{_RIGHT if is_right else ''}>{escape(text.strip())}</{tag}>"
        for text, is_right in zip(cells, right, strict=True)
    )
    return f"<tr>{inside}</tr>"
