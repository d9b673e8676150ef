"""Families of layouts, of which a ranking shows one each.

A family is how a layout splits the work: whether it uses tensor, pipeline, context and expert
parallelism, and whether the weights are sharded (ZeRO 3) or whole (ZeRO 0 to 2). Layouts of one
family differ only in sizes and memory savers: degrees, micro-batch, virtual stages, sequence
parallelism, recomputation, offload. A ranking has its fastest safe one. Context parallelism that
gains next to nothing makes no family.
"""

from __future__ import annotations

import numpy as np

from autoconf_launch.core import Layout

from ..cost import LayoutColumns
from ..space import Floats, Ints

FAMILIES = 32
_SHARDS_WEIGHTS = 3
_CONTEXT = 4
_SHORT = 8192
"""Tokens below which none of the published tables in ``benchmarks/ground_truth`` has context
parallelism: it then trains the same tokens on the same ranks, in other pieces."""
_LEAST_LEAD, _SHORT_LEAD = 0.01, 0.05
"""Share by which a layout must be faster to be shown; the second for context parallelism at short
sequences."""


def family_numbers(x: LayoutColumns) -> Ints:
    """A number below ``FAMILIES`` for each layout, in a shape that broadcasts to the columns'."""
    number = (x.tensor_C > 1) + 2 * (x.pipeline_C > 1) + _CONTEXT * (x.context_C > 1)
    number = number + 8 * (x.expert_C > 1) + 16 * (x.zero_stage_C == _SHARDS_WEIGHTS)
    return np.asarray(number)


def shown_families(x: LayoutColumns, seconds_C: Floats, sequence_length: int) -> Ints:
    """Rows, one from each family, without rows that only context parallelism sets apart.

    If two families differ only by it, the family with it is shown if it leads; at short sequences
    only the faster family is shown.
    """
    numbers, has_context = family_numbers(x), x.context_C > 1
    both = numbers - _CONTEXT * has_context
    plain_s, context_s = np.full(FAMILIES, np.inf), np.full(FAMILIES, np.inf)
    plain_s[both[~has_context]] = seconds_C[~has_context]
    context_s[both[has_context]] = seconds_C[has_context]
    is_short = is_short_for_context(sequence_length)
    leads = (context_s * (1.0 + least_lead(sequence_length)) < plain_s)[both]
    return np.flatnonzero(np.where(has_context, leads, not is_short or ~leads))


def is_short_for_context(sequence_length: int) -> bool:
    """True if no published table has context parallelism for this sequence length."""
    return sequence_length < _SHORT


def least_lead(sequence_length: int, context_parallel: int = 2) -> float:
    """Share by which a layout must be faster than a plainer one to be worth a row."""
    is_short = context_parallel > 1 and is_short_for_context(sequence_length)
    return _SHORT_LEAD if is_short else _LEAST_LEAD


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
