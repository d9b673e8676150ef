"""Models, tables and columns for tests of the deciding half, each with one signature."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autoconf_launch.autotuner.cost import LayoutColumns
from autoconf_launch.autotuner.space import CandidateTable
from autoconf_launch.core import Architecture, Candidate, Layout

OneLayout = Layout | Mapping[str, Any]
"""A layout, or its fields that differ from the default, with ``extras`` for other knobs."""


def architecture(
    name: str = "small", *, layers: int = 6, hidden: int = 256, heads: int = 4, **others: Any
) -> Architecture:
    """A decoder; heads and inner width follow from the first numbers unless they are given."""
    sizes = {"kv_heads": heads, "head": hidden // heads, "ffn": 4 * hidden, "vocabulary": 4096}
    return Architecture(
        name=name, layers=layers, hidden=hidden, heads=heads, **{**sizes, **others}
    )


def table(*rows: OneLayout) -> CandidateTable:
    return CandidateTable.from_candidates([_candidate(one) for one in rows])


def layouts(*rows: OneLayout) -> LayoutColumns:
    return LayoutColumns.from_table(table(*rows))


def _candidate(one: OneLayout) -> Candidate:
    if isinstance(one, Layout):
        return Candidate(layout=one)
    fields = dict(one)
    extras = fields.pop("extras", ())
    return Candidate(layout=Layout(**fields), extras=extras)
