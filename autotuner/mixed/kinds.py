"""Kinds of nodes, their measured layers, and the clusters that some nodes of each kind make."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.core import ConfigError

from ..cost import InnerLayouts, InnerTimes, Machine, Roofline
from ..space import Floats, Ints

_PASSES = 3.0
"""Forward and backward pass over the forward pass, which is profiled: a backward pass has two
products for each (FASOP takes the same)."""
_HOST_BOUND = 0.157
"""Share of the device's time by which equally long work of the host lengthens a layer (2 to the
power of one over ``Physics.host_sharpness``, less 1); more means that the host is the slower."""
MOST_SUB_CLUSTERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineKind:
    """Equal nodes of a mixed cluster: GPU, number of GPUs, links, memory and price together.

    Attributes:
        name: ``4xA10G-24GB``, as reports write it.
        machine: only such nodes; its ``gpus_per_node`` are the GPUs that train.
        count: number of these nodes.
        memory_bytes: memory that a rank may use on each of its GPUs.
        usd_per_hour: price of a whole node; None if no price is known.
        measured: layers of the model on its GPUs; None: they are predicted.
    """

    name: str
    machine: Machine
    count: int
    memory_bytes: float
    usd_per_hour: float | None = None
    measured: MeasuredLayers | None = None

    @property
    def gpus(self) -> int:
        """GPUs of a node that train."""
        return self.machine.gpus_per_node


def sub_clusters(kinds: Sequence[MachineKind]) -> Ints:
    """Nodes of each kind in every part of a cluster, the whole one last: shape (clusters, kinds).

    Raises:
        ConfigError: more than 10,000 of them.
    """
    number = math.prod(kind.count + 1 for kind in kinds) - 1
    if number > MOST_SUB_CLUSTERS:
        counts = " x ".join(f"{kind.count + 1}" for kind in kinds)
        raise ConfigError(
            f"This cluster has {number:,} parts ({counts}, less the empty one), and at most "
            f"{MOST_SUB_CLUSTERS:,} are compared; join nodes of a kind, or name fewer of them."
        )
    grid = np.indices([kind.count + 1 for kind in kinds]).reshape(len(kinds), -1).T
    return np.asarray(grid[1:], np.int64)


def usd_per_hour(kinds: Sequence[MachineKind], counts: Sequence[int]) -> float | None:
    """Money for all nodes of a part of the cluster; None if a price is not known."""
    total = 0.0
    for kind, count in zip(kinds, counts, strict=True):
        if count and kind.usd_per_hour is None:
            return None
        total += count * (kind.usd_per_hour or 0.0)
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLayers:
    """Seconds of the forward pass of one sample, for each number of tensor ranks.

    Attributes:
        tensor: numbers of tensor ranks that were measured, ascending.
        layer_s: seconds of the mean layer for each of them.
        first_s, last_s: seconds of the embedding and of the head; NaN if not measured.
    """

    tensor: tuple[int, ...]
    layer_s: tuple[float, ...]
    first_s: tuple[float, ...]
    last_s: tuple[float, ...]


def with_measured(
    predicted: InnerTimes, inner: InnerLayouts, roofline: Roofline, measured: MeasuredLayers
) -> InnerTimes:
    """Times of which a micro-batch of one sample is as measured.

    If the host is predicted to be slower than the device at one sample, the measured time is
    the host's time, which larger micro-batches share; else all parts scale with it.

    ``predicted``: of the inner layouts, all of measured numbers of tensor ranks.
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


def _ratio(forward_s: tuple[float, ...], place: Ints, predicted_s_U: Floats) -> Floats:
    """Measured over predicted, 1 if nothing was measured."""
    found = _PASSES * np.array(forward_s)[place] / predicted_s_U
    return np.asarray(np.where(np.isfinite(found), found, 1.0))
