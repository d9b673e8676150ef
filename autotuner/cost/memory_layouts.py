"""A layout as columns that the formulas of transformers read. Not: which layouts there are.

Shapes: C = candidates. C may be several axes, the same number in each column, that broadcast
against each other: a planner that keeps meshes on one and the rest on another is twice as fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autoconf_launch.core import Layout, Offload, Recompute

from ..table import ABSENT, Bools, CandidateTable, Ints

RECOMPUTE_CODES = {kind: code for code, kind in enumerate(Recompute)}
OFFLOAD_CODES = {kind: code for code, kind in enumerate(Offload)}
RECOMPUTE_LAYERS = "recompute_layers"
"""The extra that says how many layers of each pipeline stage are recomputed in full."""

ALL_LAYERS = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MemoryLayouts:
    """Degrees and choices of each candidate; see ``Layout`` for their meaning.

    Attributes:
        recompute_C: position in ``Recompute``.
        recompute_layers_C: layers of each stage that full recomputation covers; -1 for all.
        offload_C: position in ``Offload``.
    """

    data_C: Ints
    tensor_C: Ints
    pipeline_C: Ints
    virtual_C: Ints
    context_C: Ints
    expert_C: Ints
    zero_stage_C: Ints
    micro_batch_C: Ints
    accumulation_C: Ints
    recompute_C: Ints
    recompute_layers_C: Ints
    sequence_parallel_C: Bools
    offload_C: Ints

    @staticmethod
    def from_table(table: CandidateTable) -> MemoryLayouts:
        """Columns of a table; without the extra ``recompute_layers`` all layers recompute."""
        return MemoryLayouts(
            data_C=table["data_parallel"],
            tensor_C=table["tensor_parallel"],
            pipeline_C=table["pipeline_parallel"],
            virtual_C=table["virtual_pipeline"],
            context_C=table["context_parallel"],
            expert_C=table["expert_parallel"],
            zero_stage_C=table["zero_stage"],
            micro_batch_C=table["micro_batch"],
            accumulation_C=table["accumulation"],
            recompute_C=table["recompute"],
            recompute_layers_C=_extra(table, RECOMPUTE_LAYERS, ALL_LAYERS),
            sequence_parallel_C=table["sequence_parallel"] == 1,
            offload_C=table["offload"],
        )

    @staticmethod
    def from_layouts(
        layouts: Sequence[Layout], recompute_layers: Sequence[int] | None = None
    ) -> MemoryLayouts:
        """One row for each layout."""

        def column(values: list[Any]) -> Ints:
            return np.array(values, np.int64)

        return MemoryLayouts(
            data_C=column([x.data_parallel for x in layouts]),
            tensor_C=column([x.tensor_parallel for x in layouts]),
            pipeline_C=column([x.pipeline_parallel for x in layouts]),
            virtual_C=column([x.virtual_pipeline for x in layouts]),
            context_C=column([x.context_parallel for x in layouts]),
            expert_C=column([x.expert_parallel for x in layouts]),
            zero_stage_C=column([x.zero_stage for x in layouts]),
            micro_batch_C=column([x.micro_batch for x in layouts]),
            accumulation_C=column([x.accumulation for x in layouts]),
            recompute_C=column([RECOMPUTE_CODES[x.recompute] for x in layouts]),
            recompute_layers_C=column(list(recompute_layers or [ALL_LAYERS] * len(layouts))),
            sequence_parallel_C=column([x.sequence_parallel for x in layouts]) == 1,
            offload_C=column([OFFLOAD_CODES[x.offload] for x in layouts]),
        )


def _extra(table: CandidateTable, name: str, default: int) -> Ints:
    column = dict(table.columns).get(name)
    if column is None:
        return np.full(len(table), default, np.int64)
    known = [value if isinstance(value, int) else default for value in column.categories or ()]
    return np.array([*known, default], np.int64)[
        np.where(column.codes == ABSENT, len(known), column.codes)
    ]
