"""Ranked layouts as named values, the same for a document and a file. Not: their printing."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import Any

from autoconf_launch.autotuner.cost.memory_layouts import ALL_LAYERS
from autoconf_launch.autotuner.layouts.bands import time_band
from autoconf_launch.autotuner.layouts.search import Planned
from autoconf_launch.autotuner.layouts.waterfall import PARTS
from autoconf_launch.core import Layout

from ..planner.answers import PlanAnswer
from ..planner.runnable import is_runnable

GB = 2**30
_KNOBS = tuple(f.name for f in fields(Layout))


def row_document(answer: PlanAnswer, one: Planned) -> dict[str, Any]:
    """One entry of ``best``; GB of 2^30 bytes, ``usd_per_step`` None where no price is known."""
    return {
        "candidate": candidate_document(one),
        "step_time_s": one.step_s,
        "step_time_band": time_band(answer.architecture, one.layout),
        "peak_memory_gb": round(one.peak_bytes / GB, 3),
        "usd_per_step": usd_per_step(answer, one.step_s),
        "parts": parts_document(one),
        "runnable": is_runnable(one.layout, one.recompute_layers, answer.setup),
    }


def candidate_document(one: Planned) -> dict[str, Any]:
    """The layout by its canonical names; ``recompute_layers`` None for all of a stage's."""
    layers = None if one.recompute_layers == ALL_LAYERS else one.recompute_layers
    knobs = {name: getattr(one.layout, name) for name in _KNOBS}
    return {**{name: _plain(value) for name, value in knobs.items()}, "recompute_layers": layers}


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def parts_document(one: Planned) -> dict[str, float]:
    """Seconds of each part, in the order of the waterfall."""
    seconds = dict(one.parts)
    return {f"{name}_s": seconds[name] for name in PARTS}


def usd_per_step(answer: PlanAnswer, step_s: float) -> float | None:
    """Money for all GPUs while a step lasts; None where no price is known."""
    if answer.price is None:
        return None
    return len(answer.cluster.devices) * answer.price.usd_per_gpu_hour * step_s / 3600
