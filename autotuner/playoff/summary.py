"""The result of a study, as one value. Not: its printed form (launcher)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autoconf_launch.core import (
    FailureKind,
    Optimizer,
)

from ..measurement import PRIOR, Noise, estimate_noise
from ..search import Drift, OptimalityBound, Skipped, StopReason, Study, count_skipped, drift
from ..space import (
    OBJECTIVES,
    TUNING_SPACES,
    AutotuningSettings,
    Objective,
    Record,
    RejectedCounts,
)
from .decision import Decision, baseline_of, best_of, decide


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateAdvice:
    """Multiply the learning rate by ``factor``, as the global batch changed.

    ``linear``: the factor is the ratio of the batches, else its square root.
    """

    factor: float
    before: int
    after: int
    linear: bool


def learning_rate_advice(
    before: int, after: int, optimizer: Optimizer
) -> LearningRateAdvice | None:
    """Advice for a global batch that goes from ``before`` to ``after`` samples; None if equal.

    Source:
        DeepSpeed Autotuning documentation: the square root of the ratio keeps the variance of
        the gradient's expectation; linear for SGD.
    """
    if before == after:
        return None
    ratio = after / before
    linear = optimizer.scales_with_batch
    factor = ratio if linear else math.sqrt(ratio)
    return LearningRateAdvice(factor=factor, before=before, after=after, linear=linear)


GLOBAL = "global"


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow:
    """Row of a tuning space, or of all of them under ``global``.

    Attributes:
        tuning_space: ``z0`` to ``z3``, or ``global``.
        num_experiments: number of trials that ended, failed ones and second attempts included.
        best_metric_val: best value in the metric's unit; None if nothing was measured.
        failure: the most frequent kind of failure if nothing was measured.
        best_exp_name: the trial of the best value. Trials that were measured again after the
            search come first.
        search_only: True if the value is the search's, though the winner's is from later launches.
        computed: True if the value follows from the winner's and their ratio in the playoff.
    """

    tuning_space: str
    num_experiments: int
    best_metric_val: float | None
    failure: FailureKind | None
    best_exp_name: str | None
    search_only: bool = False
    computed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeParts:
    """Wall time of a command, in the order of its parts.

    Attributes:
        profile_s: time from its start to the first trial.
        trials_s: time of the search.
        confirmation_s: time of the playoff and the verification run.
    """

    profile_s: float
    trials_s: float
    confirmation_s: float

    @property
    def whole_s(self) -> float:
        """Time from its start to its results."""
        return self.profile_s + self.trials_s + self.confirmation_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The result of a study.

    Attributes:
        decision: configuration to train with, and how sure that is.
        rows: one for each space, then ``global``.
        metric: name of the optimised metric, in ``unit``.
        baseline: trial 0; None if it did not end.
        rejected: candidates that were skipped unmeasured, by the name of the rule.
        learning_rate: advice if the winner has another global batch.
        stop: reason why the study ended.
        duration_s: wall time of the tuning with its profile run and earlier sessions' launches.
        drift: findings from the repeats of the search, on its trials and the machine.
        noise: noise of launches in the search, estimated from its repeats.
        optimality_bound: bound on the gain of the remaining candidates; None if it is not known,
            or none remain.
        expected_gain: expected gain of the most promising remaining candidate, a share; None if
            it is not known.
        skipped: numbers of candidates not tried, by reason; None if nothing was measured.
        alone: True if nothing but the winner was measured.
        faster: the best trial as it was measured, if a figure of the winner is behind it; no
            sentence may then call the winner the fastest without saying why.
        notes: notes of the launching side on the launches.
        impossible: a sentence on FLOPS above the GPU's peak; empty if there are none.
        parts: duration of each part of the last command; None: not known.
    """

    decision: Decision
    rows: tuple[SummaryRow, ...]
    metric: str
    unit: str
    baseline: Record | None
    learning_rate: LearningRateAdvice | None
    stop: StopReason | None
    duration_s: float
    drift: Drift
    rejected: RejectedCounts = ()
    noise: Noise = PRIOR
    optimality_bound: OptimalityBound | None = None
    expected_gain: float | None = None
    skipped: Skipped | None = None
    alone: bool = False
    faster: Record | None = None
    notes: tuple[str, ...] = ()
    impossible: str = ""
    parts: TimeParts | None = None

    @property
    def shown(self) -> tuple[Record, ...]:
        """Trials in order, each at the speed by which its configuration was judged."""
        return _at_one_speed(self.drift.records, self.decision)


def _at_one_speed(records: Sequence[Record], decision: Decision) -> tuple[Record, ...]:
    known = decision.compared
    return tuple(known.get(r.trial.name, r) if r.measurement else r for r in records)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launches:
    """Everything that a study launched, in the order in which it came back.

    Attributes:
        records: trials of the search, as they were measured.
        repeats: repeats of trials, in the search.
        playoff: launches of the rounds after it.
        soaks: verification runs.
    """

    records: tuple[Record, ...]
    repeats: tuple[Record, ...] = ()
    playoff: tuple[Record, ...] = ()
    soaks: tuple[Record, ...] = ()


def summarise(
    study: Study,
    *,
    duration_s: float,
    optimizer: Optimizer | None = None,
    playoff: tuple[Record, ...] = (),
    soaks: tuple[Record, ...] = (),
) -> Summary:
    """Sum up a study.

    ``duration_s``: wall time of the tuning, earlier sessions included. ``optimizer``: optimizer of
    the configuration, which decides the learning rate's factor.
    """
    launches = Launches(records=study.records, repeats=study.repeats, playoff=playoff, soaks=soaks)
    summary = summarise_launches(
        launches,
        study.settings,
        duration_s=duration_s,
        optimizer=optimizer,
        stop=study.stop_reason(),
    )
    found = study.optimality_bound
    return replace(
        summary,
        rejected=study.pool.rejected,
        expected_gain=found.expected_gain if found else None,
        optimality_bound=found if found and found.remaining else None,
        skipped=count_skipped(study) if study.best else None,
    )


def summarise_launches(
    launches: Launches,
    settings: AutotuningSettings,
    *,
    duration_s: float,
    optimizer: Optimizer | None = None,
    stop: StopReason | None = None,
) -> Summary:
    """Sum up launches, a journal's for example; trials are shown as they are compared."""
    objective = OBJECTIVES[settings.metric]
    noise = estimate_noise((*launches.records, *launches.repeats))
    drifted = drift(launches.records, launches.repeats)
    records = drifted.records
    decision = decide(records, launches.playoff, launches.soaks, settings, noise)
    winner, baseline = decision.winner, baseline_of(records)
    spaces = sorted({record.trial.space for record in records}, key=_space_order)
    shown = _at_one_speed(records, decision)
    parts = [*((s, [r for r in shown if r.trial.space == s]) for s in spaces), (GLOBAL, shown)]
    return Summary(
        decision=decision,
        rows=tuple(_row(name, part, decision, objective) for name, part in parts),
        metric=objective.name,
        unit=objective.unit,
        baseline=baseline,
        drift=drifted,
        noise=noise,
        learning_rate=learning_rate_of(baseline, winner, optimizer or Optimizer()),
        stop=stop,
        duration_s=duration_s,
        alone=len({record.trial.name for record in records if record.measurement}) == 1,
        faster=_faster_trial(launches.records, records, decision, objective),
    )


def _faster_trial(
    measured: Sequence[Record],
    compared: Sequence[Record],
    decision: Decision,
    objective: Objective,
) -> Record | None:
    """The best other trial, if it is ahead of any figure that is reported of the winner."""
    if decision.winner is None:
        return None
    name = decision.winner.trial.name
    records = (*measured, *compared, *decision.compared.values())
    own = [record for record in records if record.trial.name == name]
    values = [value for record in own if (value := objective.of(record)) is not None]
    best = best_of([record for record in records if record.trial.name != name], objective)
    value = objective.of(best) if best else None
    if value is None:
        return None
    return best if any(objective.better(value, other) for other in values) else None


def _space_order(name: str) -> tuple[int, str]:
    return (TUNING_SPACES.index(name), "") if name in TUNING_SPACES else (len(TUNING_SPACES), name)


def _row(
    name: str, records: Sequence[Record], decision: Decision, objective: Objective
) -> SummaryRow:
    winner = decision.winner.trial.name if decision.winner else None
    played = {record.trial.name for record in decision.played}
    again = [record for record in records if record.trial.name in played]
    first = next((record for record in records if record.trial.name == winner), None)
    best = first or best_of(again or records, objective)
    if name == GLOBAL and first is None:
        best = None
    kinds = Counter(record.failure.kind for record in records if record.failure)
    return SummaryRow(
        tuning_space=name,
        num_experiments=len(records),
        best_metric_val=objective.metric_of(best) if best else None,
        failure=kinds.most_common(1)[0][0] if kinds and best is None else None,
        best_exp_name=best.trial.name if best else None,
        search_only=best is not None and bool(played) and best.trial.name not in played,
        computed=best is not None and best.trial.name in decision.computed,
    )


def learning_rate_of(
    baseline: Record | None, winner: Record | None, optimizer: Optimizer
) -> LearningRateAdvice | None:
    """Advice if the winner has another global batch than the baseline.

    ``optimizer`` is the configuration's; if that has none, the optimizer of the baseline counts.
    """
    if baseline is None or winner is None:
        return None
    applied = baseline.measurement and baseline.measurement.applied
    if optimizer.name is None and applied:
        optimizer = Optimizer.from_name(applied.optimizer)
    before = baseline.trial.candidate.layout.global_batch
    return learning_rate_advice(before, winner.trial.candidate.layout.global_batch, optimizer)
