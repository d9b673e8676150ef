"""Families of layouts, of which a ranking shows one each.

A family is how a layout splits the work: whether it uses tensor, pipeline, context and expert
parallelism, and whether the weights are sharded (ZeRO 3) or whole (ZeRO 0 to 2). Layouts of one
family differ in sizes and memory savers alone: degrees, micro-batch, virtual stages, sequence
parallelism, recomputation, offload. A ranking has its fastest safe one.
"""

from __future__ import annotations

import numpy as np

from autoconf_launch.core import Layout

from ..cost import LayoutColumns
from ..space import Ints

FAMILIES = 32
_SHARDS_WEIGHTS = 3


def family_numbers(x: LayoutColumns) -> Ints:
    """A number below ``FAMILIES`` for each layout, in a shape that broadcasts to the columns'."""
    number = (x.tensor_C > 1) + 2 * (x.pipeline_C > 1) + 4 * (x.context_C > 1)
    number = number + 8 * (x.expert_C > 1) + 16 * (x.zero_stage_C == _SHARDS_WEIGHTS)
    return np.asarray(number)


def family_name(layout: Layout) -> str:
    """``TP + PP``, ``CP + ZeRO 3``, ``DP``: how a layout splits the work."""
    degrees = (
        ("TP", layout.tensor_parallel),
        ("PP", layout.pipeline_parallel),
        ("CP", layout.context_parallel),
        ("EP", layout.expert_parallel),
    )
    parts = [name for name, degree in degrees if degree > 1]
    if layout.zero_stage == _SHARDS_WEIGHTS:
        parts.append("ZeRO 3")
    return " + ".join(parts or ["DP"])
