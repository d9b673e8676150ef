"""Why a study ends, as a value with one sentence for the user. Not: when it does (Study)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from ..space import (
    FailedTrial,
    Objective,
    PredictionTable,
    Record,
    StageProgress,
    is_out_of_memory,
)


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
class StopReason:
    """The end of a study. ``log_tail``: last lines of the child that it is about, if any."""

    kind: StopKind
    sentence: str
    log_tail: tuple[str, ...] = ()

    @property
    def is_error(self) -> bool:
        """Whether the study ends without a configuration to train with."""
        return self.kind in _ERRORS


def explored(
    records: Sequence[Record], predictions: PredictionTable | None, most_trials: int = 0
) -> StopReason:
    """No stage wants another trial; an error unless something was measured.

    ``most_trials``: of a stage, where that number alone has ended one; otherwise 0.
    """
    if any(record.measurement for record in records):
        if most_trials:
            return _trials_spent(most_trials)
        tried = len({record.trial.name for record in records})
        how = "Search complete." if tried > 1 else "Only one configuration was tried."
        return StopReason(kind=StopKind.EXPLORED, sentence=how)
    others = [record for record in records if not is_out_of_memory(record)]
    return _nothing_measured(others) if others else _nothing_fits(records, predictions)


def baseline_failed(record: Record) -> StopReason:
    """What the user gave does not run, for another reason than memory."""
    failure = record.failure
    assert failure is not None
    return StopReason(
        kind=StopKind.BASELINE_FAILED,
        sentence=f"Your own configuration ({record.trial.name}) failed, so nothing was tuned: "
        f"{failure.kind.value}, {failure.detail}",
        log_tail=failure.log_tail,
    )


def metric_missing(objective: Objective) -> StopReason:
    """The baseline ran, but its measurement lacks what is optimised."""
    return StopReason(
        kind=StopKind.METRIC_MISSING,
        sentence=f"autotuning.metric is {objective.name}, but the trial reported none; "
        "use throughput or latency.",
    )


def stage_no_better(
    stage: StageProgress, before: StageProgress, objective: Objective
) -> StopReason:
    """A stage's best against the best of the one explored before it."""
    return StopReason(
        kind=StopKind.STAGE_NO_BETTER,
        sentence=f"Stage {_best_of(stage, objective)} is no better than "
        f"{_best_of(before, objective)}, so later stages were skipped.",
    )


def _best_of(stage: StageProgress, objective: Objective) -> str:
    value = objective.of(stage.best) if stage.best else None
    return f"{stage.name} ({value or 0:.4g} {objective.unit})"


def good_enough(sentence: str) -> StopReason:
    """What is left is not worth a trial."""
    return StopReason(kind=StopKind.GOOD_ENOUGH, sentence=f"Good enough: {sentence}")


def budget_spent(budget: str, *, measured: bool) -> StopReason:
    """Time is up; an error unless something was measured."""
    if measured:
        sentence = f"The budget of {budget} is spent."
        return StopReason(kind=StopKind.BUDGET, sentence=sentence)
    return StopReason(
        kind=StopKind.NOTHING_MEASURED,
        sentence=f"The budget of {budget} was spent before anything could be measured.",
    )


def no_time(budget: str, left_s: float, shortest_s: float, count: int) -> StopReason:
    """What is left to try may take longer than the budget has room for."""
    whom = f"of the {count} candidates left the shortest" if count > 1 else "the one left"
    return StopReason(
        kind=StopKind.BUDGET,
        sentence=f"The budget of {budget} has no room for another trial: {whom} may take "
        f"{shortest_s:.0f} s, and {left_s:.0f} s remain.",
    )


def _trials_spent(most: int) -> StopReason:
    return StopReason(
        kind=StopKind.TRIALS,
        sentence=f"Stopped after {most} trials beside your configuration (tuner_num_trials is "
        f"{most}); configurations worth a trial are left.",
    )


def _nothing_measured(others: Sequence[Record]) -> StopReason:
    last = others[-1]
    failure = last.failure
    assert failure is not None
    return StopReason(
        kind=StopKind.NOTHING_MEASURED,
        sentence="No configuration could be measured: those that fit in memory failed, "
        f"{last.trial.name} at last ({failure.kind.value}, {failure.detail})",
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
    parts = [f"No configuration fits in memory: {runs} ran out of it"]
    if needs:
        parts.append(f"; the smallest predicted need is {_size(min(needs))} per rank")
    if limits:
        parts.append(f"{',' if needs else ';'} the limit is {_size(max(limits))}")
    return StopReason(kind=StopKind.NOTHING_FITS, sentence="".join(parts) + ".")


def _needs_bytes(
    records: Sequence[Record], predictions: PredictionTable | None
) -> tuple[float, ...]:
    told = (record.prediction.peak_bytes for record in records if record.prediction)
    table = () if predictions is None else predictions.peak_bytes_C.tolist()
    return tuple(need for need in (*told, *table) if need is not None and not np.isnan(need))


def _size(size_bytes: float) -> str:
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes < 1e8 else f"{size_bytes / 1e9:.2f} GB"
