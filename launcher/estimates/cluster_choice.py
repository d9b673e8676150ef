"""``--cluster`` to a ClusterSpec: a short name or a file. Not: the machines that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autoconf_launch.autotuner.cost import LayoutColumns, Proposal, step_parts
from autoconf_launch.core import ClusterSpec, ConfigError
from autoconf_launch.tuning_spaces import cluster_of_document, parse_cluster, price

from ..config_file import read_config
from .training_choice import machine_of

_FILES = (".yaml", ".yml", ".json", ".hjson")


def choose_cluster(text: str) -> ClusterSpec:
    """Nodes of ``8xA100-SXM-80GB``, ``64x8xH100-SXM-80GB`` or a file with ``nodes``.

    Raises:
        ConfigError: another form, an unknown GPU, a file that cannot be read.
    """
    path = Path(text)
    if path.suffix.lower() not in _FILES:
        return parse_cluster(text)
    document = read_config(path)
    try:
        return cluster_of_document(document)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPrice:
    """A price and where it is from."""

    usd_per_gpu_hour: float
    how: str


def choose_price(given: float | None, cluster: ClusterSpec) -> ChosenPrice | None:
    """The flag's price, else the cluster file's, else the newest published; None if there is none.

    Args:
        given: of one GPU and hour, by a flag.
        cluster: nodes of equal GPUs.
    """
    if given is not None:
        return ChosenPrice(usd_per_gpu_hour=given, how="as given")
    node = cluster.nodes[0]
    if node.usd_per_hour is not None:
        each = node.usd_per_hour / len(node.devices)
        return ChosenPrice(usd_per_gpu_hour=each, how="by the cluster file")
    known = price(node.devices[0].name)
    if known is None:
        return None
    return ChosenPrice(
        usd_per_gpu_hour=known.usd_per_gpu_hour,
        how=f"{known.cloud} {known.instance}, {known.region}, {known.as_of}; {known.source}",
    )


def proposal_step_s(
    cluster: ClusterSpec, proposals: Sequence[Proposal]
) -> tuple[float | None, ...]:
    """Seconds for each proposal of one workload; None for clusters whose nodes differ."""
    if not proposals or not cluster.are_nodes_equal:
        return (None,) * len(proposals)
    nodes = machine_of(cluster)
    columns = LayoutColumns.from_layouts(
        [one.layout for one in proposals], [one.recompute_layers for one in proposals]
    )
    parts = step_parts(columns, proposals[0].workload, nodes)
    return tuple(float(s) if np.isfinite(s) else None for s in parts.step_s_C)
