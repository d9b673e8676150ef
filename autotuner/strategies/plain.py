"""The pool in random order. Not: any judgement of a candidate."""

from __future__ import annotations

from ..space import Objective
from .base import Blind


def grid_search(objective: Objective) -> Blind:
    """Next rows first; the order of a space is stable."""
    return Blind(order=lambda rows, _: rows)


def random_search(objective: Objective) -> Blind:
    """Uniform, without replacement."""
    return Blind(order=lambda rows, draw: draw.permutation(rows))
