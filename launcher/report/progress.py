"""A tune while it runs: one line for each event, and the reasons of failures."""

from __future__ import annotations

import math

from autoconf_launch.autotuner.space import Prediction, Record
from autoconf_launch.core import FailureKind, Grade, MemoryUse, ModelSpec, plural

from ..events import RoundFinished, SpaceBuilt, Standing, TrialFinished
from .cells import amount, count_text, label, launch_label, minutes_text, size_text

_TOO_WIDE = math.log(2.5)
"""Half-width of an interval, as a logarithm, from which its mean is not shown."""
_SHOWN_LOG_LINES = 6


def profile_line(spec: ModelSpec | None, wall_s: float | None) -> str:
    """Findings of the profile run."""
    when = "read from an earlier run" if wall_s is None else f"{wall_s:.1f} s"
    if spec is None:
        return f"profile ({when}): the model is unknown, so nothing is predicted"
    weights = (
        f"profile ({when}): {count_text(spec.parameters)} parameters "
        f"({count_text(spec.trainable_parameters)} trainable), "
    )
    if spec.grade is Grade.OPAQUE:
        return f"{weights}activations and FLOPs unknown"
    activations = f"{size_text(spec.activation_bytes_per_sample)} of activations"
    if not spec.forward_flops_per_sample:
        return (
            f"{weights}{activations} per sample [{spec.grade.value}], FLOPs could not be counted"
        )
    return (
        f"{weights}{activations} and "
        f"{amount(spec.forward_flops_per_sample)}FLOP forward per sample [{spec.grade.value}]"
    )


def space_line(event: SpaceBuilt) -> str:
    """The number of candidates, and the rules that skip others."""
    taken = ", ".join(f"{count} by {rule}" for rule, count in event.rejected if count)
    without = f" (skipped: {taken})" if taken else ""
    considered = plural(event.considered, "candidate")
    return f"search: {event.left} of {considered} besides the baseline{without}"


def trial_line(event: TrialFinished) -> str:
    """Elapsed, trial, configuration, predicted, measured, memory, and a mark if it is the best."""
    record = event.record
    is_best = event.best is not None and event.best.trial == record.trial
    best = "  best so far" if is_best and not record.trial.is_soak else ""
    again = " (resumed)" if event.resumed else ""
    return (
        f"[{minutes_text(event.elapsed_s)}] "
        f"{launch_label(record.trial):<16s} {label(record.trial.candidate):<29s} "
        f"predicted {_prediction(record.prediction):<9s} {_result(record)}{best}{again}"
    )


def round_line(event: RoundFinished) -> str:
    """Elapsed, round, the best configuration, and the slowdown of the others."""
    first, *others = event.standings
    behind = ", ".join(f"{label(other.trial.candidate)} {behind_text(other)}" for other in others)
    leads = f"{label(first.trial.candidate)} leads"
    when = f"[{minutes_text(event.elapsed_s)}] playoff round {event.number}"
    when = f"{when:<23s}"
    return f"{when} {leads}; {behind}" if others else f"{when} {leads}"


def behind_text(standing: Standing) -> str:
    """Slowdown of a configuration against the leader, with the interval."""
    if standing.width > max(_TOO_WIDE, abs(standing.behind)):
        return "inconclusive so far"
    low, high = standing.behind - standing.width, standing.behind + standing.width
    if standing.behind > math.log(2.0):
        behind, low, high = (math.exp(x) for x in (standing.behind, low, high))
        return f"is {behind:.3g}x slower ({low:.3g} to {high:.3g}x)"
    behind, low, high = (100.0 * math.expm1(x) for x in (standing.behind, low, high))
    how = "slower" if behind >= 0.0 else "faster"
    return f"is {abs(behind):.1f} % {how} ({low:+.1f} to {high:+.1f} %)"


def failure_lines(record: Record) -> list[str]:
    """Cause of a trial's failure with the child's last lines; empty if it ran out of memory."""
    failure = record.failure
    if failure is None or failure.kind is FailureKind.OUT_OF_MEMORY:
        return []
    trial = record.trial
    what = f"{launch_label(trial)} {label(trial.candidate)} {failure.kind.value}: {failure.detail}"
    return [f"{what} (its folder is {trial.name})", *log_lines(record)]


def _prediction(prediction: Prediction | None) -> str:
    if prediction is None or prediction.step_s is None:
        return "-"
    return f"{prediction.step_s:.3f} s"


def _result(record: Record) -> str:
    measurement = record.measurement
    if measurement is None:
        failure = record.failure
        return f"{failure.kind.value}: {failure.detail}" if failure else "-"
    memory = _memory(measurement.memory)
    made = measurement.extrapolated_from
    how = "measured"
    if made is not None:
        how = f"extrapolated from {plural(made, 'micro-batch', 'micro-batches')}"
    return (
        f"{how} {measurement.mean_step_s:.3f} s  "
        f"{measurement.throughput_per_s:8.2f} samples/s  memory {memory}"
    )


def _memory(memory: MemoryUse | None) -> str:
    return f"{size_text(memory.peak_bytes)} of {size_text(memory.limit_bytes)}" if memory else "-"


def log_lines(record: Record) -> list[str]:
    """The end of the child's log: all that is known of a launch that may end the tune."""
    failure, trial = record.failure, record.trial
    if failure is None or failure.kind is FailureKind.OUT_OF_MEMORY:
        return []
    may_end = trial.number == 0 or trial.is_soak
    return [f"  | {line}" for line in failure.log_tail[0 if may_end else -_SHOWN_LOG_LINES :]]
