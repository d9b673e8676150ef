"""Measured layers of a kind of GPU in place of predicted ones."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..cost import InnerLayouts, InnerTimes, Roofline
from ..space import Floats, Ints

_PASSES = 3.0
"""Forward and backward pass over the forward pass alone, which is what is profiled: a backward
pass has two products for each (FASOP takes the same)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLayers:
    """Seconds of the forward pass of one sample, for each number of tensor ranks.

    Attributes:
        tensor: numbers of tensor ranks that were measured, ascending.
        layer_s: of the mean layer for each of them.
        first_s, last_s: of the embedding and of the head; NaN where one was not measured.
    """

    tensor: tuple[int, ...]
    layer_s: tuple[float, ...]
    first_s: tuple[float, ...]
    last_s: tuple[float, ...]


def with_measured(
    predicted: InnerTimes, inner: InnerLayouts, roofline: Roofline, measured: MeasuredLayers
) -> InnerTimes:
    """Times of which a micro-batch of one sample is as measured.

    Where the host is predicted to be slower than the device at one sample, what was measured is
    the host's time, which larger micro-batches share; else all parts scale with it.

    Args:
        predicted: of the inner layouts, all of measured numbers of tensor ranks.
        inner: these layouts.
        roofline: that predicted them.
        measured: on such a GPU.
    """
    ones, nothing = np.ones_like(inner.micro_U), np.zeros_like(inner.recompute_U)
    base = roofline.inner_times(replace(inner, micro_U=ones, recompute_U=nothing))
    place = np.searchsorted(np.array(measured.tensor), inner.tensor_U)
    layer_s = _PASSES * np.array(measured.layer_s)[place]
    device_s = base.busy_s_U + base.exposed_s_U
    waits = base.launch_s_U > _HOST_BOUND * device_s
    device = np.where(waits, np.minimum(1.0, layer_s / device_s), layer_s / base.layer_s_U)
    passes = 1.0 + predicted.again_s_U / predicted.busy_s_U
    running = (predicted.busy_s_U + predicted.again_s_U + predicted.exposed_s_U) * device
    launch = np.where(
        waits, np.maximum(layer_s * passes - running, 0.0), predicted.launch_s_U * device
    )
    return replace(
        predicted,
        busy_s_U=predicted.busy_s_U * device,
        again_s_U=predicted.again_s_U * device,
        exposed_s_U=predicted.exposed_s_U * device,
        launch_s_U=launch,
        slowest_s_U=running + launch,
        first_s_U=predicted.first_s_U * _ratio(measured.first_s, place, base.first_s_U),
        last_s_U=predicted.last_s_U * _ratio(measured.last_s, place, base.last_s_U),
    )


_HOST_BOUND = 0.157
"""Share of the device's time by which equally long work of the host lengthens a layer (2 to the
power of one over ``Physics.host_sharpness``, less 1); more means that the host is the slower."""


def _ratio(forward_s: tuple[float, ...], place: Ints, predicted_s_U: Floats) -> Floats:
    """Measured over predicted, 1 where nothing was measured."""
    found = _PASSES * np.array(forward_s)[place] / predicted_s_U
    return np.asarray(np.where(np.isfinite(found), found, 1.0))
