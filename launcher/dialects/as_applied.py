"""Rows of a table with what the profile run found where nobody says a value. Not: the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autoconf_launch.autotuner.knobs import LayoutValue
from autoconf_launch.core import AppliedStrategy, Recompute

from .sheet import Place, Sheet, Variable
from .spelling import Spelled, Spelling

MEASURED = ("micro_batch", "accumulation", "zero_stage", "recompute")
"""Knobs that a probe finds in a live training."""


def applied_value(applied: AppliedStrategy | None, knob: str) -> LayoutValue:
    """What ran; None where there was no profile run, or it could not see the knob."""
    if applied is None or knob not in MEASURED:
        return None
    value: LayoutValue = getattr(applied, knob)
    return None if knob == "micro_batch" and not value else value


def with_applied(
    table: Sequence[Spelled], sheet: Sheet, applied: AppliedStrategy
) -> tuple[Spelled, ...]:
    """The table with what ran as the default of each row that holds nothing.

    A row whose words mean something else while it holds nothing cannot change what the script
    does by itself; it is left out, so that the knob stays as it ran.
    """
    rows = (_with_default(row, sheet, applied_value(applied, row.knob)) for row in table)
    return tuple(row for row in rows if row is not None)


def _with_default(row: Spelled, sheet: Sheet, value: LayoutValue) -> Spelled | None:
    if value is None or row.read(sheet) == value or _is_given(row, sheet):
        return row
    if isinstance(row, Spelling):
        return replace(row, default=_as_words_have_it(row, value))
    return None if row.knob == "zero_stage" else row


def _is_given(row: Spelled, sheet: Sheet) -> bool:
    places: tuple[Place, ...] = getattr(row, "places", ()) or tuple(map(Variable, row.names()))
    return any(place.get(sheet) not in (None, "auto") for place in places)


def _as_words_have_it(row: Spelling, value: LayoutValue) -> LayoutValue:
    """A switch turns all recomputation on, however little of it a probe sees run again."""
    meanings = [meaning for _, meaning in row.words]
    is_other = bool(meanings) and value not in meanings
    return Recompute.FULL if is_other and row.knob == "recompute" else value
