"""The pool in its own order. Not: any judgement of a candidate."""

from __future__ import annotations

from ..objective import Objective
from .base import Blind


def grid_search(objective: Objective) -> Blind:
    """Next rows first; the order of a space is stable."""
    return Blind(order=lambda rows, _: rows)
