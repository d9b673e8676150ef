"""What surely needs more memory than something that ran out of it."""

from __future__ import annotations

import numpy as np

from autoconf_launch.core import Candidate, FailureKind

from .table import Bools, CandidateTable, Floats
from .trial import FailedTrial, Record

UNCALIBRATED_MEMORY_BAND = 0.2
"""Relative error to expect of a predicted peak; a guess until predictions are calibrated."""

_FIRST_FSDP = 2
_MARGIN = 1.2
_DRIFT, _MOST_SLACK = 0.05, 0.15
_SLACK_BYTES = 600 << 20
"""What a trial may have found less free than its limit for its failure to count as its own: a
share of the limit, and a CUDA context, which the driver and CUDA do not count alike."""


def is_out_of_memory(record: Record) -> bool:
    """Whether a trial ended for want of memory."""
    failure = record.failure
    return failure is not None and failure.kind is FailureKind.OUT_OF_MEMORY


def is_sure(record: Record) -> bool:
    """Whether an out-of-memory was the candidate's own: its limit was free before it ran.

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
    """Rows that need at least what ``failed`` does: a larger micro-batch, a lower ZeRO stage.

    Two of these comparisons are sure only where predictions agree by a margin: stages 0 and 1
    (DDP) against 2 and 3 (FSDP), which gathers weights; and a row without accumulation against
    one with it, which holds gradients during its forward pass.

    Args:
        table: candidates to rule out.
        failed: what ran out of memory.
        peak_bytes_C: predicted needs of the rows; NaN where unknown.
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
