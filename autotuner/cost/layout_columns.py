"""Layouts as plain columns, their distinct parts, stacks of equal layers. Not: knobs (space).

Shapes: C = candidates, U = distinct inner layouts (all that a layer on a rank depends on). C may
be several axes, the same number in each column, that broadcast against each other: a planner that
keeps meshes on one and the rest on another is twice as fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from autoconf_launch.core import ALL_LAYERS, Candidate, Layout, Offload, Recompute, Workload

from ..layers import has_mixer
from ..space import ABSENT, RECOMPUTE_LAYERS, Bools, CandidateTable, Floats, Ints

RECOMPUTE_CODES = {kind: code for code, kind in enumerate(Recompute)}
OFFLOAD_CODES = {kind: code for code, kind in enumerate(Offload)}

NONE = RECOMPUTE_CODES[Recompute.NONE]
SELECTIVE = RECOMPUTE_CODES[Recompute.SELECTIVE]
FULL = RECOMPUTE_CODES[Recompute.FULL]
_EVEN = -1
_LARGEST_TABLE = 1 << 22


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LayoutColumns:
    """Degrees and choices of each candidate; see ``Layout`` for their meaning.

    Attributes:
        accumulation_C: a fraction if the last micro-batch of a measured step was smaller.
        recompute_C: position in ``Recompute``.
        recompute_layers_C: layers of each stage that full recomputation covers; -1 for all.
        offload_C: position in ``Offload``.
        given_C3: layers of the first stage, of the fullest in the middle and of the last, -1 if
            they are even; None if all are.
    """

    data_C: Ints
    tensor_C: Ints
    pipeline_C: Ints
    virtual_C: Ints
    context_C: Ints
    expert_C: Ints
    zero_stage_C: Ints
    micro_batch_C: Ints
    accumulation_C: Ints | Floats
    recompute_C: Ints
    recompute_layers_C: Ints
    sequence_parallel_C: Bools
    offload_C: Ints
    given_C3: Ints | None = None

    def __len__(self) -> int:
        return len(self.data_C)

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis, all columns broadcast."""
        return np.broadcast_shapes(*(getattr(self, name).shape for name in _NAMES))

    def in_sequences(self, workload: Workload) -> LayoutColumns:
        """The layouts with micro-batches of sequences if a sample has several."""
        count = workload.sequences_per_sample
        return self if count == 1 else replace(self, micro_batch_C=self.micro_batch_C * count)

    @property
    def shards_C(self) -> Ints:
        """Ranks over which ZeRO shards."""
        return self.data_C * self.context_C

    @property
    def stage_ranks_C(self) -> Ints:
        """Ranks of one pipeline stage."""
        return self.tensor_C * self.shards_C

    @property
    def world_C(self) -> Ints:
        """Ranks of all stages."""
        return self.pipeline_C * self.stage_ranks_C

    @property
    def optimizer_shards_C(self) -> Ints:
        """Ranks that share the optimizer's state, as every ZeRO stage above 0 does."""
        return np.where(self.zero_stage_C >= 1, self.shards_C, 1)

    @property
    def expert_shards_C(self) -> Ints:
        """Ranks that have the same experts."""
        return np.asarray(np.maximum(1, self.shards_C // self.expert_C), np.int64)

    @property
    def are_states_away_C(self) -> Bools:
        """True if the optimizer's state is in host memory."""
        away = [OFFLOAD_CODES[one] for one in (Offload.OPTIMIZER, Offload.PARAMETERS)]
        return np.asarray(np.isin(self.offload_C, away), np.bool_)

    @property
    def are_activations_away_C(self) -> Bools:
        """True if activations wait for the backward pass in host memory."""
        return np.asarray(self.offload_C == OFFLOAD_CODES[Offload.ACTIVATIONS], np.bool_)

    @property
    def are_weights_away_C(self) -> Bools:
        """True if the weights are in host memory, too."""
        return np.asarray(self.offload_C == OFFLOAD_CODES[Offload.PARAMETERS], np.bool_)

    @staticmethod
    def from_table(table: CandidateTable) -> LayoutColumns:
        """Columns of a table; without the extra ``recompute_layers`` all layers recompute."""
        return LayoutColumns(
            data_C=table["data_parallel"],
            tensor_C=table["tensor_parallel"],
            pipeline_C=table["pipeline_parallel"],
            virtual_C=table["virtual_pipeline"],
            context_C=table["context_parallel"],
            expert_C=table["expert_parallel"],
            zero_stage_C=table["zero_stage"],
            micro_batch_C=_largest_micro_batches(table),
            accumulation_C=table["accumulation"],
            recompute_C=table["recompute"],
            recompute_layers_C=_extra(table, RECOMPUTE_LAYERS, ALL_LAYERS),
            sequence_parallel_C=table["sequence_parallel"] == 1,
            offload_C=table["offload"],
            given_C3=_given_splits(table),
        )

    @staticmethod
    def from_layouts(
        layouts: Sequence[Layout], recompute_layers: Sequence[int] | None = None
    ) -> LayoutColumns:
        """A row for each layout."""
        counts = recompute_layers or [ALL_LAYERS] * len(layouts)
        rows = [
            Candidate(layout=layout, extras=((RECOMPUTE_LAYERS, count),))
            for layout, count in zip(layouts, counts, strict=True)
        ]
        return LayoutColumns.from_table(CandidateTable.from_candidates(rows))

    @staticmethod
    def join(layouts: Sequence[LayoutColumns]) -> LayoutColumns:
        """Rows of several sets, one after the other."""
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(one, name) for one in layouts]) for name in _NAMES
        }
        if any(one.given_C3 is not None for one in layouts):
            even = [
                np.full((len(x), 3), _EVEN) if x.given_C3 is None else x.given_C3 for x in layouts
            ]
            columns["given_C3"] = np.concatenate(even)
        return LayoutColumns(**columns)

    def map_columns(self, change: Callable[[Any], Any]) -> LayoutColumns:
        """Each column changed in the same way, such as another shape."""
        return LayoutColumns(**{name: change(getattr(self, name)) for name in _NAMES})

    def take(self, rows: Ints) -> LayoutColumns:
        """Some rows by number."""
        given = None if self.given_C3 is None else self.given_C3[rows]
        return replace(self.map_columns(lambda column: column[rows]), given_C3=given)

    def layouts(self) -> Iterator[Layout]:
        """The layout of each row."""
        kinds, places = tuple(Recompute), tuple(Offload)
        columns = [getattr(self, name).tolist() for name in _LAYOUT_NAMES]
        for values in zip(*columns, strict=True):
            *numbers, recompute, parallel, offload = values
            yield Layout(
                **dict(zip(_LAYOUT_NUMBERS, numbers, strict=True)),
                recompute=kinds[recompute],
                sequence_parallel=parallel,
                offload=places[offload],
            )


_NAMES = tuple(column.name for column in fields(LayoutColumns) if column.name != "given_C3")
_LAYOUT_NAMES = tuple(name for name in _NAMES if name != "recompute_layers_C")
_LAYOUT_NUMBERS = (
    "data_parallel",
    "tensor_parallel",
    "pipeline_parallel",
    "virtual_pipeline",
    "context_parallel",
    "expert_parallel",
    "zero_stage",
    "micro_batch",
    "accumulation",
)


def _extra(table: CandidateTable, name: str, default: int) -> Ints:
    column = dict(table.columns).get(name)
    if column is None:
        return np.full(len(table), default, np.int64)
    known = [value if isinstance(value, int) else default for value in column.categories or ()]
    return np.array([*known, default], np.int64)[
        np.where(column.codes == ABSENT, len(known), column.codes)
    ]


def _largest_micro_batches(table: CandidateTable) -> Ints:
    """Largest micro-batch of a rank, if data-parallel ranks have uneven micro-batches."""
    column = dict(table.columns)["micro_batch_split"]
    splits = [x if isinstance(x, tuple) else () for x in column.categories or ()]
    if not any(splits):
        return table["micro_batch"]
    most = np.array([max(split, default=0) for split in splits], np.int64)[column.codes]
    return np.where(most > 0, most, table["micro_batch"])


def _given_splits(table: CandidateTable) -> Ints | None:
    """Split of each row with a ``pipeline_split``; None if no row has one."""
    column = dict(table.columns)["pipeline_split"]
    splits = [x if isinstance(x, tuple) else None for x in column.categories or ()]
    if not any(splits):
        return None
    edges = [(x[0], max(x[1:-1], default=0), x[-1]) if x else (_EVEN,) * 3 for x in splits]
    return np.array(edges, np.int64)[column.codes]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class InnerLayouts:
    """Distinct combinations of the columns that the time of a layer depends on."""

    tensor_U: Ints
    context_U: Ints
    expert_U: Ints
    micro_U: Ints
    recompute_U: Ints
    sequence_U: Bools
    sharded_U: Bools
    """Weights are gathered layer by layer (ZeRO 3)."""
    data_U: Ints
    """Ranks that weights are gathered from; 1 if they are not."""
    world_U: Ints


_INNER_NAMES = tuple(column.name for column in fields(InnerLayouts))


def distinct(layouts: LayoutColumns) -> tuple[InnerLayouts, Ints]:
    """The distinct inner layouts, and the number of each candidate's inner layout.

    If columns broadcast, each axis is handled separately: a grid costs as much as its edges.
    """
    sharded = layouts.zero_stage_C >= 3
    columns: tuple[Ints, ...] = (  # as InnerLayouts has them
        layouts.tensor_C,
        layouts.context_C,
        layouts.expert_C,
        layouts.micro_batch_C,
        layouts.recompute_C,
        layouts.sequence_parallel_C.astype(np.int64),
        sharded.astype(np.int64),
        np.where(sharded, layouts.data_C, 1),
        layouts.world_C,
    )
    if max(sum(size > 1 for size in column.shape) for column in columns) > 1:
        columns = tuple(column.copy() for column in np.broadcast_arrays(*columns))
        shape = columns[0].shape
        flat, which = _on_axes(tuple(column.reshape(-1) for column in columns))
        which = which.reshape(shape)
    else:
        flat, which = _on_axes(columns)
    columns_U: dict[str, Any] = dict(zip(_INNER_NAMES, flat, strict=True))
    for name in ("sequence_U", "sharded_U"):
        columns_U[name] = columns_U[name].astype(np.bool_)
    return InnerLayouts(**columns_U), which


def distinct_kernels(inner: InnerLayouts, *, casts_shards: bool) -> tuple[InnerLayouts, Ints]:
    """Layouts with kernels of distinct sizes, and for each inner layout which one has its kernels.

    Recomputation does not matter to a kernel; whether weights are gathered does only if
    the shares of ranks are cast or summed in each micro-batch (``casts_shards``).
    """
    data_U = inner.data_U if casts_shards else np.ones_like(inner.data_U)
    which, first = _number_distinct(
        (
            inner.tensor_U,
            inner.context_U,
            inner.expert_U,
            inner.micro_U,
            inner.sequence_U.astype(np.int64),
            data_U,
        )
    )
    return InnerLayouts(**{name: getattr(inner, name)[first] for name in _INNER_NAMES}), which


def _on_axes(columns: tuple[Ints, ...]) -> tuple[list[Ints], Ints]:
    """Distinct combinations of columns that vary on one axis each, and which one each cell has."""
    axes = columns[0].ndim
    which = np.zeros((1,) * axes, np.int64)
    found = list(columns)
    for axis in range(axes):
        mine = [i for i, column in enumerate(columns) if column.shape[axis] != 1]
        if not mine:
            continue
        code, first = _number_distinct(tuple(columns[i].reshape(-1) for i in mine))
        for i in mine:
            found[i] = np.take(columns[i], first, axis=axis)
        line = [1] * axes
        line[axis] = -1
        which = which * len(first) + code.reshape(line)
    shape = np.broadcast_shapes(*(column.shape for column in found))
    return [np.broadcast_to(column, shape).reshape(-1) for column in found], which


def _number_distinct(columns: tuple[Ints, ...]) -> tuple[Ints, Ints]:
    """Number of each row among the distinct ones, and the first row of each distinct one.

    Columns hold few small numbers, so tables of their values replace a sort; large ones
    are sorted.
    """
    code = np.zeros(len(columns[0]), np.int64)
    size = 1
    for column in columns:
        ranked, count = _rank_values(column)
        code, size = _rank_values(code * count + ranked, size * count)
    first = np.empty(size, np.int64)
    first[code[::-1]] = np.arange(len(code) - 1, -1, -1)
    return code, first


def _rank_values(values: Ints, bound: int | None = None) -> tuple[Ints, int]:
    size = int(values.max(initial=0)) + 1 if bound is None else bound
    if size > _LARGEST_TABLE:
        known, code = np.unique(values, return_inverse=True)
        return code, len(known)
    seen = np.zeros(size, np.bool_)
    seen[values] = True
    return (np.cumsum(seen) - 1)[values], int(seen.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Equal layers that see tokens of one length.

    ``cross_tokens`` are an encoder's tokens that each layer attends to besides its own.
    """

    share: float
    workload: Workload
    cross_tokens: int = 0

    @property
    def attentions(self) -> int:
        """Attentions of a layer: to its own tokens, and to an encoder's."""
        return 2 if self.cross_tokens else 1

    @property
    def joins(self) -> float:
        """Sums over tensor ranks in a pass: one after each attention or state and each MLP."""
        model = self.workload.architecture
        has_mlp = model.ffn > 0 or model.experts is not None
        return float(has_mlp) + self.attentions * has_mixer(model)


def stacks(workload: Workload) -> tuple[Stack, ...]:
    """An encoder and a decoder, each with its share of the layers; other models are one stack."""
    model = workload.architecture
    if not model.encoder_layers:
        return (Stack(share=1.0, workload=workload, cross_tokens=model.cross_tokens),)
    decoded = workload.decoder_sequence_length or workload.sequence_length
    share = model.encoder_layers / (model.encoder_layers + model.layers)
    one = replace(workload, decoder_sequence_length=None)
    return (
        Stack(share=share, workload=replace(one, model=replace(model, causal=False))),
        Stack(
            share=1.0 - share,
            workload=replace(one, sequence_length=decoded),
            cross_tokens=workload.sequence_length,
        ),
    )


def front_workload(workload: Workload) -> Workload:
    """The training of the tower in front of a model: a sample is an image."""
    tower = workload.architecture.front
    assert tower is not None
    return replace(
        workload, model=tower, sequence_length=tower.tokens or 1, decoder_sequence_length=None
    )


@lru_cache(maxsize=1 << 14)
def border_byte_s(
    stages: int, stage_ranks: int, node: int, *, link_s: float, cards_s: float
) -> Floats:
    """Seconds of a byte from each rank of a stage to the next one, at each border of a pipeline.

    Each rank sends to the rank ``stage_ranks`` later, all of a node at once through its cards; the
    stages fill nodes of ``node`` ranks in order.

    ``link_s``: seconds of a byte over the link of one rank. ``cards_s``: seconds of a byte through
    all cards of a node.
    """
    first = np.arange(stages - 1) * stage_ranks
    if stage_ranks >= node:
        most = [_most_in_node(one, stage_ranks, node) for one in (first, first + stage_ranks)]
        return np.asarray(np.maximum(*most) * cards_s)
    last, edge = first + stage_ranks, (first // node + 1) * node
    near = np.maximum(np.minimum(last, edge) - np.maximum(first, edge - stage_ranks), 0)
    far = np.maximum(last - np.maximum(edge, edge + node - stage_ranks), 0)
    stay = near + far < stage_ranks
    return np.asarray(np.maximum(np.maximum(near, far) * cards_s, stay * link_s), np.float64)


def _most_in_node(first: Ints, count: int, node: int) -> Ints:
    """Most of ``count`` ranks from ``first`` on in one node, if they are more than it has."""
    head = node - first % node
    return np.asarray(np.minimum(node, np.maximum(head, count - head)))


def layers_on(stage_SC: Ints, pipeline_C: Ints, layers: int) -> tuple[Ints, Ints]:
    """First layer and number of layers of each stage.

    If the stages do not divide the layers but would with embedding and head counted as one
    each (Llama 3, 2024, section 3.3.2: 126 layers on 16 stages), the ends have one layer less;
    otherwise the first stages have one more.
    """
    each, more = layers // pipeline_C, layers % pipeline_C
    balanced = (more != 0) & ((layers + 2) % pipeline_C == 0)
    is_first, is_last = stage_SC == 0, stage_SC == pipeline_C - 1
    start_SC = np.where(
        balanced,
        stage_SC * (each + 1) - ~is_first,
        stage_SC * each + np.minimum(stage_SC, more),
    )
    count_SC = np.where(balanced, each + 1 - is_first - is_last, each + (stage_SC < more))
    return start_SC, count_SC


def largest_share(layers: int, layouts: LayoutColumns) -> Floats:
    """Layers on the fullest stage; with virtual stages each of them is filled evenly."""
    pieces = layouts.pipeline_C * layouts.virtual_C
    return np.asarray(-(-layers // pieces) * layouts.virtual_C, np.float64)


def stage_layers(layers: int, layouts: LayoutColumns) -> tuple[Floats, Floats, Floats]:
    """Layers of the first stage, of the fullest stage in the middle, and of the last stage.

    If they are not given and do not divide, the last stage and the first stage, which also have
    head and embedding, get fewer.
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


def between(share: Floats, whole_s: Floats, none_s: Floats) -> Floats:
    """Seconds if a share of the layers recomputes, from seconds if all and none do."""
    return np.asarray(share * whole_s + (1.0 - share) * none_s)


def recomputed_share(recomputed_C: Ints, pipeline_C: Ints, layers: int) -> Floats:
    """Part of a stage's layers that full recomputation covers."""
    stage = np.maximum(layers / pipeline_C, 1.0)
    return np.asarray(np.clip(recomputed_C / stage, 0.0, 1.0))


def fsdp_exchange_stage(layouts: LayoutColumns) -> Ints:
    """Exchanges of FSDP2 are ZeRO 1's in a pipeline: one gather and one scatter in a step.

    Its weights stay gathered over all micro-batches (github.com/pytorch/torchtitan
    torchtitan/config/job_config.py, ``fsdp_reshard_after_forward``; github.com/pytorch/pytorch
    torch/distributed/pipelining/stage.py, ``backward_maybe_with_nosync``).
    """
    is_kept_C = (layouts.pipeline_C > 1) & (layouts.zero_stage_C > 1)
    return np.where(is_kept_C, 1, layouts.zero_stage_C)


def broadcast_sum(arrays: Iterable[Floats]) -> Floats:
    """Sum of arrays; small ones are added first, so that few additions run over the whole grid.

    Arrays of one shape are added in their order.
    """
    total: Floats | float = 0.0
    for array in sorted(arrays, key=np.size):
        total = total + array
    return np.asarray(total, np.float64)
