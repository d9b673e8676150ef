"""Cells as aligned text. Not: what is in them."""

from __future__ import annotations

from collections.abc import Sequence

from tabulate import tabulate


def table_of(
    rows: Sequence[Sequence[str]],
    headers: Sequence[str],
    align: Sequence[str],
    *,
    markdown: bool = False,
) -> str:
    """Columns under their headers, or a pipe table; no number is read into a cell."""
    table = tabulate(
        rows,
        headers=headers,
        tablefmt="pipe" if markdown else "simple",
        colalign=align,
        disable_numparse=True,
    )
    return "\n".join(line.rstrip() for line in table.splitlines())
