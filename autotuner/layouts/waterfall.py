"""A step's time as named losses, one after the other. Not: how it is drawn, nor predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PARTS = {
    "ideal": "ideal",
    "kernels": "kernel efficiency",
    "launch": "launch floor",
    "bubble": "bubble",
    "communication": "exposed communication",
    "recompute": "recompute",
    "update": "update",
}
"""Parts of ``StepParts`` in the order of the drawing, and what people call them."""

PROFILED_PARTS = {
    "samples": "samples",
    "launch": "launch floor",
    "recompute": "recompute",
    "communication": "exposed communication",
    "update": "update",
}
"""The same for ``StepSeconds``: where a model was profiled, its samples are not told apart."""


MEASURED_PARTS = {
    "forward": "forward",
    "backward": "backward",
    "exchange": "exposed communication",
    "update": "update",
    "between": "between steps",
}
"""The same for a step that a rank took apart: recompute is within its backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallStep:
    """One loss: it starts where the ones before it end."""

    name: str
    start_s: float
    seconds: float


def waterfall(
    parts: Sequence[tuple[str, float]], names: Mapping[str, str] = PARTS
) -> tuple[WaterfallStep, ...]:
    """The parts of a step in the order in which they are lost."""
    given = dict(parts)
    found, start_s = [], 0.0
    for part, name in names.items():
        found.append(WaterfallStep(name=name, start_s=start_s, seconds=given[part]))
        start_s += given[part]
    return tuple(found)
