"""Seconds of a pipeline over micro-batches. Not: what one stage does (inner).

Shapes: C = candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...table import Floats
from .columns import LayoutColumns

_ROUNDING = 1e-6
"""By which a mean of equal layers may be off."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageTimes:
    """One micro-batch, forward and backward: on the slowest stage, and on all of them in a row.

    ``send_s_C`` is sending its activations, or their gradients, to a neighbour.
    """

    slowest_s_C: Floats
    all_s_C: Floats
    send_s_C: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayerSeconds:
    """One layer and micro-batch: of the mean layer, and of the stack with the slower ones."""

    mean_s_C: Floats
    slowest_s_C: Floats


def largest_share(layers: int, layouts: LayoutColumns) -> Floats:
    """Layers on the fullest stage; with virtual stages each of them is filled evenly."""
    pieces = layouts.pipeline_C * layouts.virtual_C
    return np.asarray(-(-layers // pieces) * layouts.virtual_C, np.float64)


def stage_layers(layers: int, layouts: LayoutColumns) -> tuple[Floats, Floats, Floats]:
    """Layers of the first stage, of the fullest one in the middle, and of the last one.

    Where they are not given and do not divide, the last stage and the first one, which have head
    and embedding too, get fewer.
    """
    fullest = largest_share(layers, layouts)
    spare = fullest * layouts.pipeline_C - layers
    on_first = np.maximum(fullest - np.floor(spare / 2), 0.0)
    on_last = np.maximum(fullest - np.ceil(spare / 2), 0.0)
    if (given := layouts.given_C3) is None:
        return on_first, fullest, on_last
    even = (on_first, fullest, on_last)
    first, middle, last = (np.where(x >= 0, x, y) for x, y in zip(given.T, even, strict=True))
    return first, middle, last


def stage_times(
    layouts: LayoutColumns,
    layers: int,
    *,
    layer: LayerSeconds,
    first_s_C: Floats,
    last_s_C: Floats,
    send_s_C: Floats,
) -> StageTimes:
    """Layers as they are given, else evenly; see :func:`stage_layers`.

    An encoder and a decoder have stages of their own: the slower one's set the pace.
    """
    on_first, on_middle, on_last = stage_layers(layers, layouts)
    alone = layers * layer.mean_s_C + first_s_C + last_s_C
    last = on_last * layer.mean_s_C + last_s_C
    first = on_first * layer.mean_s_C + first_s_C
    middle = np.where(layouts.pipeline_C > 2, on_middle, 0.0) * layer.mean_s_C
    slowest = np.maximum(np.maximum(first, last), middle)
    is_uneven = layer.slowest_s_C > (1.0 + _ROUNDING) * layer.mean_s_C
    slowest = np.maximum(slowest, np.where(is_uneven, on_middle * layer.slowest_s_C, 0.0))
    return StageTimes(
        slowest_s_C=np.where(layouts.pipeline_C > 1, slowest, alone),
        all_s_C=alone,
        send_s_C=send_s_C,
    )


def schedule_s(
    layouts: LayoutColumns, stages: StageTimes, *, exposed_share: float
) -> tuple[Floats, Floats]:
    """Seconds of a step's micro-batches under 1F1B, and how many of them are sends.

    The first micro-batch passes all stages, the others follow at the pace of the slowest one
    (Narayanan et al. 2021, arXiv:2104.04473, section 2.2: a bubble of (p - 1) / (v m)
    where v virtual stages are interleaved).
    """
    count = np.maximum(layouts.accumulation_C, 1.0)
    fill = (stages.all_s_C - stages.slowest_s_C) / layouts.virtual_C
    hops = 2.0 * (layouts.pipeline_C - 1)
    pieces = np.where(layouts.pipeline_C > 1, 2.0 * layouts.virtual_C, 0.0)
    sends = stages.send_s_C * (hops + exposed_share * pieces * count)
    fill = np.where(layouts.pipeline_C > 1, fill, 0.0)
    return count * stages.slowest_s_C + fill + sends, sends
