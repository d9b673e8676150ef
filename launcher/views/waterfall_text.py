"""A step as a waterfall of plain characters. Not: what its parts are (autotuner)."""

from __future__ import annotations

from collections.abc import Sequence

from autoconf_launch.autotuner.layouts.waterfall import WaterfallStep

_WIDTH = 48


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
