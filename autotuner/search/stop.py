"""Reason why a study ends, as a value; only errors are sentences. Not: the decision (Study)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from ..cost import scaled_bytes
from ..space import (
    FailedTrial,
    Objective,
    PredictionTable,
    Record,
    StageProgress,
    is_out_of_memory,
)
from .optimality_bound import OptimalityBound


class StopKind(str, Enum):
    """Every way a study can end."""

    EXPLORED = "explored"
    TRIALS = "trials"
    STAGE_NO_BETTER = "stage_no_better"
    BUDGET = "budget"
    GOOD_ENOUGH = "good_enough"
    BASELINE_FAILED = "baseline_failed"
    NOTHING_FITS = "nothing_fits"
    NOTHING_MEASURED = "nothing_measured"
    METRIC_MISSING = "metric_missing"


_ERRORS = frozenset(
    {
        StopKind.BASELINE_FAILED,
        StopKind.NOTHING_FITS,
        StopKind.NOTHING_MEASURED,
        StopKind.METRIC_MISSING,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoRoom:
    """A budget that may be too short for any remaining candidate.

    Attributes:
        left_s: seconds that remain of the whole budget.
        kept_s: part of them that is kept for the playoff and the verification run.
        shortest_s: bound of the shortest candidate and of the command's end after it.
        candidates: number of remaining candidates.
    """

    left_s: float
    kept_s: float = 0.0
    shortest_s: float
    candidates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReason:
    """The end of a study.

    Attributes:
        kind: kind of the end; the other fields are set only for some kinds.
        error: a sentence if there is no configuration to train with; else empty.
        log_tail: last lines of the child that the error is about, if any.
        trials: number of configurations that were tried, or that a stage may try.
        budget: the spent budget, in words.
        no_room: reason why the rest of the budget is not used.
        stages: name and best value of the stage that is no better, and of the one before it.
        unit: unit of those values.
        bound: possible gain of the remaining candidates, which is not worth a trial.
    """

    kind: StopKind
    error: str = ""
    log_tail: tuple[str, ...] = ()
    trials: int = 0
    budget: str = ""
    no_room: NoRoom | None = None
    stages: tuple[tuple[str, float], ...] = ()
    unit: str = ""
    bound: OptimalityBound | None = None

    @property
    def is_error(self) -> bool:
        """True if the study ends without a configuration to train with."""
        return self.kind in _ERRORS


def exploration_end(
    records: Sequence[Record], predictions: PredictionTable | None, most_trials: int = 0
) -> StopReason:
    """No stage wants another trial; an error unless something was measured.

    ``most_trials``: limit of a stage, if only that limit has ended one; else 0.
    """
    if any(record.measurement for record in records):
        if most_trials:
            return StopReason(kind=StopKind.TRIALS, trials=most_trials)
        tried = len({record.trial.name for record in records})
        return StopReason(kind=StopKind.EXPLORED, trials=tried)
    others = [record for record in records if not is_out_of_memory(record)]
    return _nothing_measured(others) if others else _nothing_fits(records, predictions)


def baseline_failed(record: Record) -> StopReason:
    """The user's configuration does not run, for another reason than memory."""
    failure = record.failure
    assert failure is not None
    return StopReason(
        kind=StopKind.BASELINE_FAILED,
        error=f"The trial of your configuration ({record.trial.name}) failed: "
        f"{failure.kind.value}, {failure.detail.rstrip('.')}.",
        log_tail=failure.log_tail,
    )


def metric_missing(objective: Objective) -> StopReason:
    """The baseline ran, but its measurement lacks the metric."""
    return StopReason(
        kind=StopKind.METRIC_MISSING,
        error=f"autotuning.metric is {objective.name}, but the trial reported none; "
        "use throughput or latency.",
    )


def stage_no_better(
    stage: StageProgress, before: StageProgress, objective: Objective
) -> StopReason:
    """A stage's best is no better than the best of the one explored before it."""
    return StopReason(
        kind=StopKind.STAGE_NO_BETTER,
        stages=tuple((one.name, _best_of(one, objective)) for one in (stage, before)),
        unit=objective.unit,
    )


def _best_of(stage: StageProgress, objective: Objective) -> float:
    return (objective.metric_of(stage.best) if stage.best else None) or 0.0


def budget_spent(budget: str, *, measured: bool, error: str = "") -> StopReason:
    """The budget is spent; an error unless something was measured."""
    if measured:
        return StopReason(kind=StopKind.BUDGET, budget=budget)
    return StopReason(
        kind=StopKind.NOTHING_MEASURED,
        error=error or f"The budget of {budget} was spent before anything could be measured.",
    )


def _nothing_measured(others: Sequence[Record]) -> StopReason:
    last = others[-1]
    failure = last.failure
    assert failure is not None
    return StopReason(
        kind=StopKind.NOTHING_MEASURED,
        error="No configuration could be measured: those that fit in memory failed, "
        f"the last of them {last.trial.name} ({failure.kind.value}, {failure.detail})",
        log_tail=failure.log_tail,
    )


def _nothing_fits(records: Sequence[Record], predictions: PredictionTable | None) -> StopReason:
    runs = "the only trial" if len(records) == 1 else f"each of {len(records)} trials"
    needs = _needs_bytes(records, predictions)
    limits = [
        record.outcome.memory.limit_bytes
        for record in records
        if isinstance(record.outcome, FailedTrial) and record.outcome.memory
    ]
    parts = [f"No configuration fits in memory: {runs} ran out of memory"]
    if needs:
        parts.append(f"; the smallest predicted need is {scaled_bytes(min(needs))} per rank")
    if limits:
        parts.append(f"{',' if needs else ';'} the limit is {scaled_bytes(max(limits))}")
    return StopReason(kind=StopKind.NOTHING_FITS, error="".join(parts) + ".")


def _needs_bytes(
    records: Sequence[Record], predictions: PredictionTable | None
) -> tuple[float, ...]:
    told = (record.prediction.peak_bytes for record in records if record.prediction)
    table = () if predictions is None else predictions.peak_bytes_C.tolist()
    return tuple(need for need in (*told, *table) if need is not None and not np.isnan(need))
