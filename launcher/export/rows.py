"""A row of a plan's table in a framework's words, or why it has none. Not: writing of files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autoconf_launch.core import BUILTIN_PRECISIONS, ConfigError, Precision, plural

from .dispatch import export_optimum
from .page import Exported, Optimum

_PRECISIONS = {
    "deepspeed": BUILTIN_PRECISIONS,
    "megatron": BUILTIN_PRECISIONS,
    "native": BUILTIN_PRECISIONS,
    "nemo2": (Precision.BF16,),
    "torchtitan": (Precision.BF16,),
}
"""What the files of each framework say, or mean where they say nothing."""


NATIVE = "native"


def first_exportable(rows: Sequence[Optimum], frameworks: Sequence[str]) -> tuple[int, str]:
    """The first row that all these frameworks can express, and why the rows before it cannot be.

    Returns:
        Its number, from 1 (1 where no row can be), and why the first row is skipped, if it is.
    """
    first = ""
    for number, row in enumerate(rows, start=1):
        if (why := export_obstacle(row, frameworks)) is None:
            return number, first
        first = first or why
    return 1, ""


def export_obstacle(row: Optimum, frameworks: Sequence[str]) -> str | None:
    """Why one of the frameworks cannot express a layout; None where all can."""
    obstacles = (_obstacles(row, export_optimum(row, name), name) for name in frameworks)
    return next((why for found in obstacles for why in found), None)


def export_row(rows: Sequence[Optimum], number: int, framework: str) -> Exported:
    """A row by its number in the table, from 1.

    Raises:
        ConfigError: there is no such row, or the framework cannot express it.
    """
    if number > len(rows):
        raise ConfigError(f"--row is {number}, but the table has {plural(len(rows), 'row')}.")
    exported = export_optimum(rows[number - 1], framework)
    why = next(_obstacles(rows[number - 1], exported, framework), None)
    if why is None:
        return exported
    others = (
        i
        for i, row in enumerate(rows, start=1)
        if not any(_obstacles(row, export_optimum(row, framework), framework))
    )
    first = next(others, None)
    hint = f"--row {first} can be" if first else "no row of the table can be (--top N shows more)"
    raise ConfigError(f"Row {number} cannot be exported to {framework} ({why}); {hint}.")


def _obstacles(row: Optimum, exported: Exported, framework: str) -> Iterator[str]:
    precision = row.precision
    if precision is not None and precision.configured not in _PRECISIONS[framework]:
        yield f"its configuration has no name for {precision.value}"
    if framework == NATIVE and row.plan_only is not None:
        yield row.plan_only
    yield from exported.changed
