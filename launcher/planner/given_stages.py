"""Layers of each pipeline stage, where a row of measurements says them. Not: an even split."""

from __future__ import annotations

import re

import numpy as np

from ..recorded.measurement_row import Row

_BOUNDARIES = re.compile(r"layer partition boundaries \[([\d, ]+)\]")
_BEFORE = 2
"""Modules of DeepSpeed's GPT pipeline before its first layer: embedding and a transposition."""


def stage_layers(one: Row) -> tuple[int, ...] | None:
    """Layers of each pipeline stage as the row's note gives them; None where it does not."""
    match = _BOUNDARIES.search(one.note)
    if match is None:
        return None
    edges = np.array([int(edge) for edge in match[1].split(",")])
    if len(edges) != one.layout.pipeline_parallel + 1:
        return None
    inside = np.clip(edges - _BEFORE, 0, one.shape.layers)
    return tuple(np.diff(inside).tolist())
