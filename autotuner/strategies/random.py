"""The pool in random order. Not: any judgement of a candidate."""

from __future__ import annotations

from ..objective import Objective
from .base import Blind


def random_search(objective: Objective) -> Blind:
    """Uniform, without replacement."""
    return Blind(order=lambda rows, draw: draw.permutation(rows))
