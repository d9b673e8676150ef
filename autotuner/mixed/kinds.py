"""Kinds of nodes, and the clusters that some nodes of each kind make. Not: their order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autoconf_launch.core import ConfigError

from ..cost import Machine
from ..space import Ints
from .measured import MeasuredLayers

MOST_SUB_CLUSTERS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineKind:
    """Equal nodes of a mixed cluster: GPU, number of GPUs, links, memory and price together.

    Attributes:
        name: ``4xA10G-24GB``, as reports write it.
        machine: of such nodes alone; its ``gpus_per_node`` are the GPUs that train.
        count: how many of these nodes there are.
        memory_bytes: what a rank may use of one of its GPUs.
        usd_per_hour: of one whole node, whatever is used of it; None where no price is known.
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
    """Money for all nodes of a part of the cluster; None where a price of one is not known."""
    total = 0.0
    for kind, count in zip(kinds, counts, strict=True):
        if count and kind.usd_per_hour is None:
            return None
        total += count * (kind.usd_per_hour or 0.0)
    return total
