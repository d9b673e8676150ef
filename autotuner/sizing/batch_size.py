"""Global batch and first layout of a base configuration. Not: the batch that a layout can do.

NeMo 1.0 has both in one table; NeMo 2.0 has the batch in its grids. The table keeps the tokens
of a step over all sequence lengths (256 x 2048 = 64 x 8192); so do we where no row covers a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .families import Family
from .nemo_axes import GridRow, rule_of

_GPT_ROWS = "gpt3"
_USUAL_MEMORY_GB = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """One row of the tables: all sizes up to a bound."""

    family: str
    gpu_memory_gb: int
    sequence: int
    bound_b: float
    global_batch: int
    tensor: int
    pipeline: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseBatch:
    """Samples of a step, and degrees to start from.

    Degrees are None where no table has them: then a planner must say. ``note`` says where the
    batch is from if no table has it.
    """

    global_batch: int
    tensor: int | None = None
    pipeline: int | None = None
    context: int | None = None
    expert: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchQuestion:
    """What a batch is asked for."""

    family: Family
    size_b: float
    sequence: int
    gpu_memory_gb: float


def base_batch(
    rows: Sequence[BatchRow], asked: BatchQuestion, grids: Sequence[GridRow] = ()
) -> BaseBatch:
    """The tables' batch and degrees, or ours with a note that says so.

    Args:
        rows: of NeMo 1.0, for the degrees and, without ``grids``, the batch.
        asked: the model.
        grids: of NeMo 2.0, where its batch is asked for.
    """
    own = [row for row in rows if row.family == _rows_of(asked.family)]
    row = next((row for row in own if _covers(row, asked)), None)
    found = _by_tokens(own, asked) if row is None else _of_table(row)
    rule = rule_of(grids, asked)
    if rule is not None and rule.global_batch is not None:
        return replace(found, global_batch=rule.global_batch, note="")
    return _by_tokens(own, asked) if grids else found


def _covers(row: BatchRow, asked: BatchQuestion) -> bool:
    here = (row.gpu_memory_gb, row.sequence) == (asked.gpu_memory_gb, asked.sequence)
    return here and asked.size_b <= row.bound_b


def _of_table(row: BatchRow) -> BaseBatch:
    degrees = 1 if row.family == _GPT_ROWS else None
    return BaseBatch(
        global_batch=row.global_batch,
        tensor=row.tensor,
        pipeline=row.pipeline,
        context=degrees,
        expert=degrees,
    )


def _rows_of(family: Family) -> str:
    if family.is_encoder_decoder:
        return "t5/mt5"
    return "bert" if family.name == "bert" else _GPT_ROWS


def _by_tokens(own: Sequence[BatchRow], asked: BatchQuestion) -> BaseBatch:
    """As many tokens as models of this size read in a step at the shortest tabled sequence."""
    shortest = min(row.sequence for row in own)
    usual = [row for row in own if row.sequence == shortest]
    usual = [row for row in usual if row.gpu_memory_gb == _USUAL_MEMORY_GB]
    row = next((row for row in usual if asked.size_b <= row.bound_b), usual[-1])
    tokens = row.global_batch * shortest
    batch = max(1, tokens // asked.sequence)
    if batch * asked.sequence != tokens:
        batch = 1 << (batch.bit_length() - 1)
    read = batch * asked.sequence
    near = "as in the table" if read == tokens else f"near the table's {tokens}"
    return BaseBatch(
        global_batch=batch,
        note=(
            f"No table has a batch for {asked.size_b:g} B with {asked.sequence} tokens on "
            f"{asked.gpu_memory_gb:g} GB: using {batch} samples, {read} tokens per step, {near} "
            f"at {shortest}; the layout is the planner's."
        ),
    )
