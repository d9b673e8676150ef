"""The parts of a step as a drawing: what is lost one after the other. Not: how it is found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_WIDTH = 48
PARTS = {
    "ideal": "ideal",
    "kernels": "kernel efficiency",
    "launch": "launch floor",
    "bubble": "bubble",
    "communication": "exposed communication",
    "recompute": "recompute",
    "update": "update",
}
"""Parts of a predicted step in the order of the drawing, and what people call them."""

PROFILED_PARTS = {
    "samples": "samples",
    "launch": "launch floor",
    "recompute": "recompute",
    "communication": "exposed communication",
    "update": "update",
}
"""Parts of a step of a profiled model: kinds of work on its samples are not distinguished."""


MEASURED_PARTS = {
    "forward": "forward",
    "backward": "backward",
    "exchange": "exposed communication",
    "update": "update",
    "between": "between steps",
}
"""Parts of a step that a rank measured: recompute is within its backward."""


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


def waterfall_text(steps: Sequence[WaterfallStep]) -> str:
    """A line for each loss: seconds, share of the step, a bar from where the last one ended."""
    total_s = sum(step.seconds for step in steps)
    names = max(len(step.name) for step in steps)
    lines = [_line(step, total_s, names) for step in steps]
    return "\n".join([*lines, f"{'step':<{names}}  {total_s:9.4g} s  100 %  {'=' * _WIDTH}"])


def _line(step: WaterfallStep, total_s: float, names: int) -> str:
    first = round(_WIDTH * step.start_s / total_s)
    last = round(_WIDTH * (step.start_s + step.seconds) / total_s)
    bar = " " * first + ("#" * (last - first) or ("|" if step.seconds > 0 else ""))
    share = 100 * step.seconds / total_s
    return f"{step.name:<{names}}  {step.seconds:9.4g} s  {share:3.0f} %  {bar}".rstrip()
