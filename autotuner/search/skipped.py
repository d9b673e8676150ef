"""How many candidates were not tried, and why. Not: what they could gain (optimality_bound)."""

from __future__ import annotations

from dataclasses import dataclass

from .pool import ABOVE_WHAT_RAN, BEYOND_SATURATION, NEEDS_MORE_MEMORY, SMALLER_MICRO_BATCH
from .study import Study

_INFERRED = (NEEDS_MORE_MEMORY, ABOVE_WHAT_RAN, SMALLER_MICRO_BATCH, BEYOND_SATURATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Candidates without a trial.

    Attributes:
        candidates: all that the rules allow, beside the user's configuration.
        needs_more_memory: surely more than one that ran out of it.
        above_what_ran: with a larger micro-batch than came when more was asked for.
        smaller: with a smaller micro-batch than the user's, which fits in memory.
        open: could still be tried.
        beyond_saturation: of the open ones those that curves of throughput speak against.
        patience: trials in a row that were no better, where that ended a stage; else 0.
        best_micro_batches_alone: whether further knobs were tried with the best ones only.
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
    """Count what a study has not tried so far."""
    counts = dict(study.pool.rejected)
    full, above, smaller, beyond = (counts.pop(name, 0) for name in _INFERRED)
    by_rules = sum(counts.values()) - sum(count for _, count in study.space.rejected)
    table = study.space.table
    known = [*(record.trial for record in study.records), *study.out.pending]
    tried = {int(row) for trial in known for row in table.find(trial.candidate)}
    candidates = len(table) - by_rules
    patience = study.settings.tuner_early_stopping
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
