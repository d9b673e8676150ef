"""Named rules for valid candidates, and for those that surely need more memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from autoconf_launch.core import (
    FIRST_FSDP_STAGE,
    RUNTIME_KNOBS,
    Candidate,
    DegreeLimits,
    FailureKind,
    even_pipeline_split,
)

from .table import ABSENT, Bools, CandidateTable, Floats, Ints
from .trial import GPIPE, RECOMPUTE_LAYERS, SCHEDULE_KNOB, FailedTrial, Record

UNCALIBRATED_MEMORY_BAND = 0.2
"""Relative error to expect of a predicted peak; a guess until predictions are calibrated."""
_FIRST_FSDP = 2
_MARGIN = 1.2
_DRIFT, _MOST_SLACK = 0.05, 0.15
_SLACK_BYTES = 600 << 20
"""Memory below its limit that a trial may have found free for its failure to count as its own: a
share of the limit, and a CUDA context, which the driver and CUDA do not count alike."""
RejectedCounts: TypeAlias = tuple[tuple[str, int], ...]
_LIMITED = {
    "tensor": ("tensor_plan", "the tensor degree must divide what the model's tensor plan splits"),
    "expert": ("experts", "the expert degree must divide the model's experts"),
    "context": ("context_sequence", "context ranks must share out equal chunks of each sample"),
    "pipeline": ("pipeline_cut", "stages must share out the model's repeated blocks"),
}
"""Name and reason of the rule for each degree that a model limits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A mask over a table.

    Attributes:
        name: its name in counts and messages.
        keep: rows that may stay, from columns.
        why: one sentence on the rows that may not.
    """

    name: str
    keep: Callable[[CandidateTable], Bools]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RuleOutcome:
    """Rows that pass every rule; a row that does not counts for the first one it breaks."""

    keep_C: Bools
    rejected: RejectedCounts


def apply_rules(table: CandidateTable, rules: Sequence[Rule]) -> RuleOutcome:
    """Apply rules in order; those that rejected nothing are not counted."""
    keep = np.ones(len(table), np.bool_)
    rejected = []
    for rule in rules:
        broken = keep & ~rule.keep(table)
        keep &= ~broken
        if broken.any():
            rejected.append((rule.name, int(broken.sum())))
    return RuleOutcome(keep_C=keep, rejected=tuple(rejected))


def add_counts(*counts: RejectedCounts) -> RejectedCounts:
    """Rejected rows of several tables, rule by rule."""
    total: dict[str, int] = {}
    for name, count in (item for items in counts for item in items):
        total[name] = total.get(name, 0) + count
    return tuple(total.items())


def mesh_equation(world_size: int) -> Rule:
    """Degrees multiply to the number of ranks."""
    return Rule(
        name="mesh",
        keep=lambda t: t["data_parallel"] * _other_degrees(t) == world_size,
        why=f"the degrees of parallelism must multiply to {world_size} ranks",
    )


def pinned_global_batch(samples: int) -> Rule:
    """The global batch is exactly this."""
    return Rule(
        name="global_batch",
        keep=lambda t: t.global_batch_C == samples,
        why=f"micro-batch x accumulation x data-parallel ranks must be {samples}",
    )


def largest_global_batch(samples: int) -> Rule:
    """The global batch is at most this."""
    return Rule(
        name="max_train_batch_size",
        keep=lambda t: t.global_batch_C <= samples,
        why=f"the global batch must be at most max_train_batch_size = {samples}",
    )


def zero_needs_data_parallel() -> Rule:
    """ZeRO on one data-parallel rank would only repeat stage 0."""
    return Rule(
        name="zero_needs_data_parallel",
        keep=lambda t: (t["zero_stage"] == 0) | (t["data_parallel"] * t["context_parallel"] > 1),
        why="ZeRO has nothing to shard on one data-parallel rank",
    )


def sequence_needs_tensor() -> Rule:
    """Sequence parallelism shares the norms out over tensor ranks."""
    return Rule(
        name="sp_tp",
        keep=lambda t: (t["sequence_parallel"] == 0) | (t["tensor_parallel"] > 1),
        why="sequence parallelism needs tensor ranks",
    )


def experts_on_data_ranks() -> Rule:
    """Expert ranks are data-parallel ranks, in groups of one size."""
    return Rule(
        name="expert_ranks",
        keep=lambda t: t["data_parallel"] % t["expert_parallel"] == 0,
        why="the expert degree must divide the data-parallel ranks",
    )


def micro_batches_for_stages() -> Rule:
    """1F1B has a micro-batch for each stage, the interleaved schedule a multiple of them."""

    def keep(table: CandidateTable) -> Bools:
        stages, passes = table["pipeline_parallel"], table["accumulation"]
        enough = (passes >= stages) | _has_extra(table, SCHEDULE_KNOB, GPIPE)
        return np.where(table["virtual_pipeline"] > 1, passes % stages == 0, enough)

    return Rule(
        name="stage_micro_batches",
        keep=keep,
        why="a step must have a micro-batch for each pipeline stage, and multiples of the stages "
        "where each rank has several",
    )


def parts_for_splits() -> Rule:
    """An uneven split has a part for each stage, or for each data-parallel rank of the batch."""

    def keep(table: CandidateTable) -> Bools:
        stages = table["pipeline_parallel"] * table["virtual_pipeline"]
        ranks, micro = table["data_parallel"], table["micro_batch"]
        return (
            _measures(table, "pipeline_split", len, stages)
            & _measures(table, "micro_batch_split", len, ranks)
            & _measures(table, "micro_batch_split", sum, ranks * micro)
        )

    return Rule(
        name="split_parts",
        keep=keep,
        why="pipeline_split needs a part for each stage, micro_batch_split one for each "
        "data-parallel rank, whose mean is the micro-batch",
    )


def _has_extra(table: CandidateTable, name: str, value: object) -> Bools:
    known = any(name == column for column, _ in table.columns)
    return table.is_value(name, value) if known else np.zeros(len(table), np.bool_)


def _measures(
    table: CandidateTable, knob: str, measure: Callable[[Any], int], wanted: Ints
) -> Bools:
    """Rows without a split, and those whose length or sum is as wanted."""
    column = dict(table.columns)[knob]
    splits: Sequence[Any] = column.categories or ()
    found = np.array([ABSENT if split is None else measure(split) for split in splits])
    sizes = found[column.codes]
    return np.asarray((sizes == ABSENT) | (sizes == wanted))


def replicas_for_buckets() -> Rule:
    """DDP and its sharded optimizer train whole copies only."""
    names = [knob.name for knob in RUNTIME_KNOBS.values() if knob.needs_replicas]
    return Rule(
        name="ddp_knobs",
        keep=lambda t: (
            (_other_degrees(t) * t["expert_parallel"] == 1)
            | np.logical_and.reduce([t[name] == ABSENT for name in names])
        ),
        why="DDP, which has these knobs, trains whole models on data-parallel ranks alone",
    )


def shards_divide_ranks() -> Rule:
    """Weights are in shards over a part of the data-parallel ranks that divides them."""

    def keep(table: CandidateTable) -> Bools:
        ranks = table["data_parallel"] * table["context_parallel"]
        over = table.numbers("shard_ranks", 1.0)
        model_ranks = table["tensor_parallel"] * table["pipeline_parallel"]
        whole = (table["zero_stage"] < FIRST_FSDP_STAGE) & (model_ranks == 1)
        divides = _divides(over, ranks) & ((over <= 1) | ~whole)
        shards = np.where(over > 1, over, ranks)
        return np.asarray(
            divides & _divides(table.numbers("reshard_after_forward", 1.0), shards), np.bool_
        )

    return Rule(
        name="shard_ranks",
        keep=keep,
        why="shard_ranks and reshard_after_forward must divide the ranks that they split",
    )


def _divides(over: Floats, ranks: Ints | Floats) -> Bools:
    """True if a number of shards is absent, or divides the ranks and is less than them."""
    return np.asarray((over <= 1) | ((over < ranks) & (ranks % np.maximum(over, 1) == 0)))


def degree_rule(limits: DegreeLimits) -> Rule:
    """The degree divides the sizes that the model shares out."""
    name, why = _LIMITED[limits.key]

    def keep(table: CandidateTable) -> Bools:
        degrees = table[f"{limits.key}_parallel"].tolist()
        return np.array([limits.obstacle(degree) is None for degree in degrees], np.bool_)

    return Rule(name=name, keep=keep, why=why)


def tokens_for_sequence(tokens: int) -> Rule:
    """Tensor ranks share the tokens of a sample, or of a context rank, equally."""
    return Rule(
        name="sp_sequence",
        keep=lambda t: (
            (t["sequence_parallel"] == 0)
            | (tokens % (t["tensor_parallel"] * t["context_parallel"]) == 0)
        ),
        why=f"tensor ranks must share {tokens} tokens equally under sequence parallelism",
    )


def blocks_for_stages(blocks: int) -> Rule:
    """Each pipeline stage has a block at least, and an uneven split all of them."""

    def keep(table: CandidateTable) -> Bools:
        stages = table["pipeline_parallel"] * table["virtual_pipeline"]
        column = dict(table.columns)["pipeline_split"]
        splits: Sequence[Any] = column.categories or ()
        sums = np.array([blocks if split is None else sum(split) for split in splits])
        return np.asarray((stages == 1) | (stages <= blocks) & (sums[column.codes] == blocks))

    return Rule(
        name="stage_blocks",
        keep=keep,
        why=f"pipeline stages share out the model's {blocks} repeated blocks",
    )


def blocks_to_recompute(blocks: int) -> Rule:
    """Each rank has at least as many blocks as it recomputes."""

    def keep(table: CandidateTable) -> Bools:
        wanted = table.numbers(RECOMPUTE_LAYERS, 0.0)
        column = dict(table.columns)["pipeline_split"]
        splits: Sequence[Any] = column.categories or (None,)
        stages, chunks = table["pipeline_parallel"], table["virtual_pipeline"]
        keys = np.stack([stages, chunks, column.codes])
        cases, of_row = np.unique(keys, axis=1, return_inverse=True)
        least = [_least_blocks(blocks, int(p), int(v), splits[c]) for p, v, c in cases.T]
        return np.asarray(wanted <= np.array(least)[of_row.ravel()], np.bool_)

    return Rule(
        name="recompute_layers",
        keep=keep,
        why=f"activation_checkpointing.layers is more than a rank has of the model's {blocks} "
        "repeated blocks",
    )


def _least_blocks(blocks: int, stages: int, chunks: int, split: Sequence[int] | None) -> int:
    """Blocks of the rank that has the fewest; a rank has each ``pipeline``-th stage."""
    shares = split or even_pipeline_split(blocks, stages * chunks)
    return min(sum(shares[rank::stages]) for rank in range(stages))


def blocks_fill_units(pieces: int) -> Rule:
    """A unit has no more blocks than the model has pieces."""
    return Rule(
        name="blocks_per_unit",
        keep=lambda t: np.asarray(t.numbers("blocks_per_unit", 1.0) <= pieces, np.bool_),
        why=f"the model has only {pieces} pieces to put into one unit",
    )


def _other_degrees(table: CandidateTable) -> Ints:
    return table["tensor_parallel"] * table["pipeline_parallel"] * table["context_parallel"]


def is_out_of_memory(record: Record) -> bool:
    """True if a trial ended for want of memory."""
    failure = record.failure
    return failure is not None and failure.kind is FailureKind.OUT_OF_MEMORY


def is_sure(record: Record) -> bool:
    """True if an out-of-memory was the candidate's own: its limit was free before it ran.

    The limit is the memory that the device had free when the tune began, so that what another
    process has held all the time takes nothing from a trial.
    """
    outcome = record.outcome
    if not isinstance(outcome, FailedTrial) or outcome.memory is None:
        return False
    limit_bytes = outcome.memory.limit_bytes
    slack_bytes = min(_SLACK_BYTES, _MOST_SLACK * limit_bytes)
    return outcome.memory.free_before_bytes + slack_bytes >= (1.0 - _DRIFT) * limit_bytes


def surely_needs_more(
    table: CandidateTable,
    failed: Candidate,
    peak_bytes_C: Floats | None = None,
    failed_bytes: float | None = None,
) -> Bools:
    """Rows that need at least the memory of ``failed``: larger micro-batch, lower ZeRO stage.

    Two of these comparisons are sure only if predictions agree by a margin: stages 0 and 1
    (DDP) against 2 and 3 (FSDP), which gathers weights; and a row without accumulation against
    a row with it, which holds gradients during its forward pass.

    Args:
        table: candidates to rule out.
        failed: the candidate that ran out of memory.
        peak_bytes_C: predicted needs of the rows; NaN if unknown.
        failed_bytes: predicted need of ``failed``.
    """
    layout = failed.layout
    stage = table["zero_stage"]
    rows = table.matches(failed, but=("zero_stage", "micro_batch", "accumulation"))
    rows &= table["micro_batch"] >= layout.micro_batch
    rows &= (
        (stage <= layout.zero_stage) if layout.data_parallel > 1 else stage == layout.zero_stage
    )
    sure = (stage >= _FIRST_FSDP) == (layout.zero_stage >= _FIRST_FSDP)
    sure &= (table["accumulation"] > 1) | (layout.accumulation == 1)
    if peak_bytes_C is not None and failed_bytes is not None:
        sure |= peak_bytes_C >= _MARGIN * failed_bytes
    return np.asarray(rows & sure, np.bool_)
