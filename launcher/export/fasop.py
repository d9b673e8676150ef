"""A plan's table in the columns of FASOP.

Source: AvatarHwang/FASOP, README and FASOP/FASOP.py: fields separated by ``*``, sorted by time.
The embedding and the head each count as a layer in a partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from autoconf_launch.autotuner.cost import LayoutColumns, memory_bytes
from autoconf_launch.autotuner.planner import Planned
from autoconf_launch.core import ClusterSpec, NodeKind, Workload
from autoconf_launch.tuning_spaces import price

FASOP_SEPARATOR = "*"
_GB = 1e9
_COUNTS = {"A100": "num_a100", "A10": "num_a10", "A10G": "num_a10"}
"""Its columns of nodes, by the name of a GPU without form and memory."""
_Kinds: TypeAlias = "Sequence[tuple[str, str]]"
"""The column that counts each kind of node, and that node's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FasopTable:
    """Rows of a plan with the inputs of their columns.

    Attributes:
        cluster: all nodes; rows refer to their kinds by number.
        steps: of the whole training; None if its tokens are unknown.
    """

    rows: tuple[Planned, ...]
    cluster: ClusterSpec
    workload: Workload
    steps: int | None


def fasop_rows(table: FasopTable) -> list[tuple[object, ...]]:
    """A header and a line for each row, the fastest first."""
    kinds = [_column_and_name(kind) for kind in table.cluster.kinds]
    rows = sorted(table.rows, key=lambda row: row.step_s)
    sharded = _sharded_bytes(table, rows)
    lines = (_line(table, row, kinds, peaks) for row, peaks in zip(rows, sharded, strict=True))
    return [_columns(kinds), *(tuple(line.values()) for line in lines)]


def _columns(kinds: _Kinds) -> tuple[str, ...]:
    others = [name for name in _node_counts(kinds, ()) if name not in _COUNTS.values()]
    return (
        *("mbs", "tp", "dp", "pp", "node placement", "num_a100", "num_a10", *others, "partition"),
        *("estimated time (s/step)", "pipeline time", "DP all-reduce time"),
        *("embedding layer all-reduce time", "price_per_step", "is_oom", "oom_gpumem"),
        *("is_fsdp_oom", "fsdpoom_gpumem", "train_cost"),
    )


def _line(table: FasopTable, row: Planned, kinds: _Kinds, sharded: list[float]) -> dict[str, Any]:
    """A line: seconds, USD, and memory of the fullest rank in GB, without and with ZeRO 3."""
    layout, parts, usd = row.layout, dict(row.parts), row.usd_per_step
    layers = [stage.layers for stage in row.stages]
    layers[0] += 1
    layers[-1] += 1
    outside = parts["gradients"] + parts["embeddings"]
    limits = [stage.limit_bytes for stage in row.stages]
    peaks = [stage.peak_bytes for stage in row.stages]
    return {
        "mbs": layout.micro_batch,
        "tp": layout.tensor_parallel,
        "dp": layout.data_parallel,
        "pp": layout.pipeline_parallel,
        "node placement": str([kinds[kind][1] for kind in row.order]),
        **_node_counts(kinds, row.counts),
        "partition": str(layers),
        "estimated time (s/step)": row.step_s,
        "pipeline time": row.step_s - outside,
        "DP all-reduce time": parts["gradients"],
        "embedding layer all-reduce time": parts["embeddings"],
        "price_per_step": usd,
        "is_oom": _is_over(peaks, limits),
        "oom_gpumem": max(peaks) / _GB,
        "is_fsdp_oom": _is_over(sharded, limits),
        "fsdpoom_gpumem": max(sharded) / _GB,
        "train_cost": None if usd is None or table.steps is None else usd * table.steps,
    }


def _is_over(peaks: list[float], limits: list[float]) -> bool:
    return any(peak > limit for peak, limit in zip(peaks, limits, strict=True))


def _sharded_bytes(table: FasopTable, rows: Sequence[Planned]) -> list[list[float]]:
    """Memory of each row's stages if replicas shared weights, gradients and optimizer states."""
    found: list[list[float]] = [[] for _ in rows]
    for stages in {len(row.stages) for row in rows}:
        some = [number for number, row in enumerate(rows) if len(row.stages) == stages]
        layouts = [replace(rows[number].layout, zero_stage=3) for number in some]
        layers = np.array([[one.layers for one in rows[number].stages] for number in some]).T
        numbers = np.arange(stages)[:, None]
        peaks = memory_bytes(LayoutColumns.from_layouts(layouts), table.workload, numbers, layers)
        for number, mine in zip(some, peaks.total.T.tolist(), strict=True):
            found[number] = mine
    return found


def _column_and_name(kind: NodeKind) -> tuple[str, str]:
    """A node's column, and its cloud instance if our table has its price, else its own name."""
    known = price(kind.node.devices[0].name)
    column = _COUNTS.get(kind.gpu.split("-")[0], f"num_{kind.gpu.lower()}")
    return column, kind.name if known is None else known.instance


def _node_counts(kinds: _Kinds, counts: tuple[int, ...]) -> dict[str, int]:
    """Nodes of each GPU; FASOP's two columns are always present."""
    found = {"num_a100": 0, "num_a10": 0}
    for number, (column, _) in enumerate(kinds):
        found[column] = found.get(column, 0) + (counts[number] if counts else 0)
    return found
