"""Seconds of a step for proposals of ``fit``: its one call of the time model. Not: that model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autoconf_launch.autotuner import CandidateTable, ClusterSpec
from autoconf_launch.autotuner.cost.fitting import Proposal
from autoconf_launch.autotuner.cost.model.columns import LayoutColumns
from autoconf_launch.autotuner.cost.model.step import step_parts
from autoconf_launch.autotuner.cost.model.workload import Arithmetic, Workload
from autoconf_launch.autotuner.cost.training_setup import Format, Framework, TrainingSetup
from autoconf_launch.core import Architecture, Candidate
from autoconf_launch.tuning_spaces.machines import machine

_ARITHMETIC = {Format.FP32: Arithmetic.FP32, Format.FP8: Arithmetic.FP8}


def step_seconds(
    architecture: Architecture, cluster: ClusterSpec, proposals: Sequence[Proposal]
) -> tuple[float | None, ...]:
    """Seconds for each proposal; None for clusters whose nodes differ."""
    if not proposals or not cluster.are_nodes_equal:
        return (None,) * len(proposals)
    node = cluster.nodes[0]
    nodes = machine(
        node.devices[0].name,
        gpus_per_node=len(node.devices),
        network_bytes_per_s=node.network_bytes_per_s,
    )
    table = CandidateTable.from_candidates([Candidate(layout=one.layout) for one in proposals])
    flash = proposals[0].setup.flash_attention and nodes.accelerator.flash > 0
    workload = _workload(architecture, proposals[0].setup, flash)
    parts = step_parts(LayoutColumns.from_table(table), workload, nodes)
    return tuple(float(s) if np.isfinite(s) else None for s in parts.step_s_C)


def _workload(architecture: Architecture, setup: TrainingSetup, flash: bool) -> Workload:
    return Workload(
        architecture=architecture,
        seq=setup.sequence,
        arithmetic=_ARITHMETIC.get(setup.precision, Arithmetic.HALF),
        flash=flash,
        compiled=setup.compiled,
        selective_products=0.5 if setup.framework is Framework.FSDP else 0.0,
    )
