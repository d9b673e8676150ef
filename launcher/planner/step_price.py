"""Seconds of a step for proposals of ``fit``: its one call of the time model. Not: that model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoconf_launch.autotuner.cost.fitting import Proposal
from autoconf_launch.autotuner.cost.memory_layouts import MemoryLayouts
from autoconf_launch.autotuner.cost.model.columns import LayoutColumns
from autoconf_launch.autotuner.cost.model.step import step_parts
from autoconf_launch.core import Architecture, ClusterSpec

from .training_choice import machine_of, workload_of


def step_seconds(
    architecture: Architecture, cluster: ClusterSpec, proposals: Sequence[Proposal]
) -> tuple[float | None, ...]:
    """Seconds for each proposal of one setup; None for clusters whose nodes differ."""
    if not proposals or not cluster.are_nodes_equal:
        return (None,) * len(proposals)
    nodes = machine_of(cluster)
    rows = MemoryLayouts.from_layouts(
        [one.layout for one in proposals], [one.recompute_layers for one in proposals]
    )
    workload = workload_of(architecture, proposals[0].setup, nodes)
    parts = step_parts(LayoutColumns.from_layouts(rows), workload, nodes)
    return tuple(float(s) if np.isfinite(s) else None for s in parts.step_s_C)
