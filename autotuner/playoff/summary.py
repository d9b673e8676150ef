"""What a study found, as one value. Not: how it is printed or written (launcher)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from autoconf_launch.core import (
    FailureKind,
    Optimizer,
)

from ..measurement import PRIOR, Noise, SpeedUp, estimate_noise, speed_up, without_drift
from ..search import OptimalityBound, Skipped, StopReason, Study, count_skipped
from ..space import OBJECTIVES, AutotuningSettings, Objective, Record, RejectedCounts, is_better
from .contenders import may_be_best
from .meaning import LossComparison
from .resolution import Resolution
from .soak_report import SoakReport


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRateAdvice:
    """Multiply the learning rate by ``factor``, as the global batch changed.

    ``linear``: the factor is the ratio of the batches, else its square root. ``by_script``: by
    what the script was seen to multiply its own, 1 where it kept it; None where nobody could tell.
    """

    factor: float
    before: int
    after: int
    linear: bool
    by_script: float | None = None


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
    """One tuning space, or all of them under ``global``.

    Attributes:
        tuning_space: ``z0`` to ``z3``, or ``global``.
        num_experiments: trials that came back, failed ones and second attempts included.
        best_metric_val: in the metric's unit; None where nothing was measured.
        failure: the most frequent kind where nothing was measured.
        best_exp_name: the trial of the best value.
    """

    tuning_space: str
    num_experiments: int
    best_metric_val: float | None
    failure: FailureKind | None
    best_exp_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """The result of a study.

    Attributes:
        rows: one for each space, then ``global``.
        metric: name of what was optimised, in ``unit``.
        winner: the best record; None where nothing was measured.
        baseline: trial 0; None where it did not come back.
        speed_up: of the winner over the baseline, where both were measured; None where the
            winner is the baseline.
        paired: whether that is from rounds in which both were launched, and met.
        rounds: how many there were.
        in_turn: whether launches of a round lived side by side and took their steps in turn.
        ties: names of other trials that noise does not tell from the winner; where the winner was
            in rounds, of those that were in them with it.
        near: where there were rounds, what was not in them and what the search does not rule out.
        resolution: the difference that the rounds resolve, where something is a tie after them.
        rejected: candidates that were skipped unmeasured, by the name of the rule.
        learning_rate: advice where the winner has another global batch.
        stop: why the study ended.
        duration_s: wall time of the tuning, earlier sessions included.
        meaning: whether the winner's losses are the baseline's; None where it is the baseline.
        soak: the winner's longer launch; None where there was none.
        noise: of launches in the search; what was measured again tells.
        optimality_bound: what the remaining candidates could still gain; None where that is not
            known, or there are none.
        expected_gain: what the most promising remaining candidate is expected to gain, a share;
            None where nothing can be said.
        skipped: how many were not tried, and why; None where nothing was measured.
        passed_over: name of the best of the search, which ``stop`` and ``optimality_bound`` are
            about, where another one won after it; else empty.
        alone: whether nothing but the winner was measured.
        findings: sentences on what launches again show and trials did not.
    """

    rows: tuple[SummaryRow, ...]
    metric: str
    unit: str
    winner: Record | None
    baseline: Record | None
    speed_up: SpeedUp | None
    ties: tuple[str, ...]
    rejected: RejectedCounts
    learning_rate: LearningRateAdvice | None
    stop: StopReason | None
    duration_s: float
    paired: bool = False
    rounds: int = 0
    in_turn: bool = False
    near: tuple[str, ...] = ()
    resolution: Resolution | None = None
    meaning: LossComparison | None = None
    soak: SoakReport | None = None
    noise: Noise = PRIOR
    optimality_bound: OptimalityBound | None = None
    expected_gain: float | None = None
    skipped: Skipped | None = None
    passed_over: str = ""
    findings: tuple[str, ...] = ()
    alone: bool = False


def summarise(study: Study, *, duration_s: float, optimizer: Optimizer | None = None) -> Summary:
    """Sum up a study.

    Args:
        study: as far as it has got.
        duration_s: wall time of the tuning, earlier sessions included.
        optimizer: tells which advice on the learning rate is right.
    """
    summary = summarise_records(
        study.records,
        study.settings,
        duration_s=duration_s,
        optimizer=optimizer,
        repeats=study.repeats,
        stop=study.stop_reason(),
    )
    found = study.optimality_bound
    return replace(
        summary,
        rejected=study.rejected,
        expected_gain=found.expected_gain if found else None,
        optimality_bound=found if found and found.untried else None,
        skipped=count_skipped(study) if summary.winner else None,
    )


def summarise_records(
    records: Sequence[Record],
    settings: AutotuningSettings,
    *,
    duration_s: float,
    optimizer: Optimizer | None = None,
    repeats: Sequence[Record] = (),
    stop: StopReason | None = None,
) -> Summary:
    """Sum up trials, a journal's for example, in the order in which they came back.

    ``repeats`` of them: they are compared, and shown, as if all were measured at one time.
    """
    objective = OBJECTIVES[settings.metric]
    noise = estimate_noise((*records, *repeats))
    records = without_drift(records, repeats)
    winner = best_of(records, objective)
    baseline = baseline_of(records)
    spaces = sorted({record.trial.space for record in records})
    by_space = [(s, [r for r in records if r.trial.space == s]) for s in spaces]
    return Summary(
        rows=tuple(_row(name, part, objective) for name, part in (*by_space, (GLOBAL, records))),
        metric=objective.name,
        unit=objective.unit,
        winner=winner,
        baseline=baseline,
        speed_up=_speed_up(baseline, winner, objective, noise),
        ties=tuple(r.trial.name for r in records if _ties(r, winner, objective, noise)),
        rejected=(),
        noise=noise,
        learning_rate=learning_rate_of(baseline, winner, optimizer or Optimizer()),
        stop=stop,
        duration_s=duration_s,
        alone=len({record.trial.name for record in records if record.measurement}) == 1,
    )


def best_of(records: Iterable[Record], objective: Objective) -> Record | None:
    """The best measured record; the earlier one where two are equal."""
    best: Record | None = None
    for record in records:
        best = record if is_better(record, best, objective) else best
    return best


def baseline_of(records: Sequence[Record]) -> Record | None:
    """The last outcome of trial 0, which may have had two attempts."""
    return next((record for record in reversed(records) if record.trial.number == 0), None)


def _row(name: str, records: Sequence[Record], objective: Objective) -> SummaryRow:
    best = best_of(records, objective)
    kinds = Counter(record.failure.kind for record in records if record.failure)
    return SummaryRow(
        tuning_space=name,
        num_experiments=len(records),
        best_metric_val=objective.of(best) if best else None,
        failure=kinds.most_common(1)[0][0] if kinds and best is None else None,
        best_exp_name=best.trial.name if best else None,
    )


def _speed_up(
    baseline: Record | None, winner: Record | None, objective: Objective, noise: Noise
) -> SpeedUp | None:
    if baseline is None or winner is None or winner.trial.number == 0:
        return None
    if baseline.measurement is None or winner.measurement is None:
        return None
    return speed_up(baseline.measurement, winner.measurement, objective, noise)


def _ties(record: Record, winner: Record | None, objective: Objective, noise: Noise) -> bool:
    if winner is None or record is winner:
        return False
    return may_be_best(record, winner, objective, noise)


def learning_rate_of(
    baseline: Record | None, winner: Record | None, optimizer: Optimizer
) -> LearningRateAdvice | None:
    """Advice where the winner has another global batch than the baseline."""
    if baseline is None or winner is None:
        return None
    before = baseline.trial.candidate.layout.global_batch
    advice = learning_rate_advice(before, winner.trial.candidate.layout.global_batch, optimizer)
    return advice and replace(advice, by_script=_scaled_by_script(baseline, winner, advice))


def _scaled_by_script(
    baseline: Record, winner: Record, advice: LearningRateAdvice
) -> float | None:
    """What the script multiplied its learning rate by; None: unknown, or a schedule moved it."""
    both = [record.measurement and record.measurement.applied for record in (baseline, winner)]
    rates = [applied.learning_rate for applied in both if applied and applied.learning_rate]
    if len(rates) < len(both):
        return None
    seen, ratio = rates[1] / rates[0], advice.after / advice.before
    known = (1.0, ratio, math.sqrt(ratio))
    return next((one for one in known if math.isclose(seen, one, rel_tol=0.01)), None)
