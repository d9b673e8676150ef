"""Numbers of candidates not tried, by reason. Not: their possible gain (optimality_bound)."""

from __future__ import annotations

from dataclasses import dataclass

from .pool import ABOVE_WHAT_RAN, BEYOND_SATURATION, NEEDS_MORE_MEMORY, SMALLER_MICRO_BATCH
from .study import Study

_INFERRED = (NEEDS_MORE_MEMORY, ABOVE_WHAT_RAN, SMALLER_MICRO_BATCH, BEYOND_SATURATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Numbers of candidates without a trial.

    Attributes:
        candidates: all candidates that the rules allow, besides the user's configuration.
        needs_more_memory: candidates that surely need more memory than a failed trial.
        above_what_ran: candidates with a larger micro-batch than the script provided.
        smaller: candidates with a micro-batch below the user's, which fits in memory.
        open: candidates that could still be tried.
        beyond_saturation: open candidates that the curves of throughput exclude.
        patience: trials in a row without improvement that ended a stage; 0 if none did.
        best_micro_batches_alone: True if other knobs were tried only with the best micro-batches.
    """

    candidates: int
    needs_more_memory: int
    above_what_ran: int
    smaller: int
    open: int
    beyond_saturation: int
    patience: int = 0
    best_micro_batches_alone: bool = False


def count_skipped(study: Study) -> Skipped:
    """Count the candidates that a study has not tried so far."""
    counts = dict(study.pool.rejected)
    full, above, smaller, beyond = (counts.pop(name, 0) for name in _INFERRED)
    by_rules = sum(counts.values()) - sum(count for _, count in study.space.rejected)
    table = study.space.table
    known = [*(record.trial for record in study.records), *study.out.pending]
    tried = {int(row) for trial in known for row in table.find(trial.candidate)}
    candidates = len(table) - by_rules
    patience = study.settings.patience
    is_over = any(stage.since_best >= patience for stage in study.seen.stages.values())
    return Skipped(
        candidates=candidates,
        needs_more_memory=full,
        above_what_ran=above,
        smaller=smaller,
        open=candidates - len(tried) - full - above - smaller,
        beyond_saturation=beyond,
        patience=patience if is_over else 0,
        best_micro_batches_alone=not study.space.usual_C.all(),
    )
