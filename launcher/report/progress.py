"""A tune before and while it runs: its plan, its budget, one line for each event, failures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from autoconf_launch.autotuner.playoff import TimeRange
from autoconf_launch.autotuner.space import Prediction, Record, Trial, longer_budget
from autoconf_launch.core import (
    Candidate,
    FailureKind,
    Grade,
    MemoryUse,
    ModelSpec,
    StepRecord,
    plural,
)

from ..events import RoundFinished, SpaceBuilt, Standing, TrialFinished
from .cells import (
    amount,
    count_text,
    label,
    launch_label,
    memory_text,
    minutes_text,
    percent,
    range_text,
    seconds_text,
    size_text,
    table_of,
    time_text,
)

_TOO_WIDE = math.log(2.5)
"""Half-width of an interval, as a logarithm, from which its mean is not shown."""
_SHOWN_LOG_LINES = 6
_MOST_PLANNED = 24
_PLANNED_HEADERS = ("config", "predicted", "samples/s", "memory")
_START_SHARE = 0.9
"""Share of a budget that the start of the launcher leaves for a trial."""
_ENOUGH = 3.0
"""Budget to suggest over a time that was too short."""


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
    behind = ", ".join(f"{label(other.trial.candidate)} {_behind_text(other)}" for other in others)
    leads = f"{label(first.trial.candidate)} leads"
    when = f"[{minutes_text(event.elapsed_s)}] playoff round {event.number}"
    when = f"{when:<23s}"
    return f"{when} {leads}; {behind}" if others else f"{when} {leads}"


def _behind_text(standing: Standing) -> str:
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


def clock_text(
    whole_s: float, left: TimeRange | None, session_s: float, budget_s: float | None
) -> str:
    """``1:15 · 4 to 25 s left · 75 % of the budget (1:40)``."""
    parts = [minutes_text(whole_s)]
    if left is not None:
        parts.append(f"{range_text(left)} left")
    if budget_s is not None:
        share = min(1.0, session_s / budget_s)
        parts.append(f"{percent(share)} of the budget ({minutes_text(budget_s)})")
    return " · ".join(parts)


def best_text(best: Candidate, samples_per_s: float | None, *, so_far: bool) -> str:
    """``best so far: ZeRO 1 · micro 8 · accum 2, 500.00 samples/s``."""
    speed = "" if samples_per_s is None else f", {samples_per_s:.2f} samples/s"
    return f"best{' so far' if so_far else ''}: {label(best)}{speed}"


def phase_text(phase: str, done: int, total: int | None) -> str:
    """``search 5/28``, ``playoff 2``."""
    return f"{phase} {done}{'' if total is None else f'/{total}'}"


def hidden_rows_text(count: int) -> str:
    """Number of rows for which the terminal has no room."""
    return f"({plural(count, 'more trial')} {'comes' if count == 1 else 'come'} at the end)"


def standing_text(standing: Standing, *, is_first: bool, is_over: bool) -> str:
    """``leads``, ``10.5 % slower (+5.1 to +16.2 %)``."""
    if is_first:
        return "best" if is_over else "leads"
    return _behind_text(standing).removeprefix("is ")


def started_line(trial: Trial) -> str:
    """A launch that has begun."""
    return f"{launch_label(trial)} {label(trial.candidate)} started"


def step_line(step: StepRecord) -> str:
    """A step of a rank."""
    return f"  rank {step.rank} step {step.step}: {step.wall_s:.4f} s"


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


def planned_tune_text(
    planned: Sequence[tuple[Candidate, Prediction | None]],
    limit_bytes: int,
    whole: TimeRange | None,
    *,
    usd_per_hour: float | None,
) -> str:
    """Candidates, duration and cost of a tune."""
    first, *others = planned
    ordered = sorted(others, key=lambda pair: _predicted_sample_s(*pair))
    rows = [_planned_row(*pair, limit_bytes) for pair in (first, *ordered[:_MOST_PLANNED])]
    rows[0] = (f"{rows[0][0]} (yours)", *rows[0][1:])
    more = len(ordered) - _MOST_PLANNED
    is_known = any(prediction and prediction.step_s for _, prediction in planned)
    order = ", the fastest by prediction first" if is_known else ""
    table = table_of(rows, _PLANNED_HEADERS, ("left", "right", "right", "right"))
    return "\n".join(
        (
            f"Dry run: {plural(len(planned), 'configuration')} to try{order}.",
            table,
            *([f"and {more} more"] if more > 0 else ()),
            _planned_time(whole, usd_per_hour),
            "No trial was run; the same command without --dry-run starts with this profile.",
        )
    )


def _planned_row(
    candidate: Candidate, prediction: Prediction | None, limit_bytes: int
) -> tuple[str, ...]:
    step_s = prediction.step_s if prediction else None
    peak = prediction.peak_bytes if prediction else None
    speed = f"{candidate.layout.global_batch / step_s:.2f}" if step_s else "-"
    use = (
        MemoryUse(free_before_bytes=0, peak_bytes=peak, limit_bytes=limit_bytes) if peak else None
    )
    return label(candidate), seconds_text(step_s) if step_s else "-", speed, memory_text(use)


def _predicted_sample_s(candidate: Candidate, prediction: Prediction | None) -> float:
    step_s = prediction.step_s if prediction else None
    return math.inf if not step_s else step_s / candidate.layout.global_batch


def _planned_time(whole: TimeRange | None, usd_per_hour: float | None) -> str:
    if whole is None:
        return (
            "Expected duration of the tune: not known, as no step times are predicted for this "
            "script; --budget limits it."
        )
    money = ""
    if usd_per_hour is not None:
        low, high = (seconds / 3600.0 * usd_per_hour for seconds in (whole.low_s, whole.high_s))
        money = f", ${low:.2f} to ${high:.2f} at ${usd_per_hour:.2f} per hour"
    return f"Expected duration of the tune: {range_text(whole)}{money}."


def profile_cut_text(
    budget_s: float, folder: Path, *, first_step_s: float | None, timeout_s: float
) -> str:
    """The deadline came within the profile run, perhaps after its first step."""
    seen = ""
    if first_step_s is not None:
        seen = (
            f" It needs two optimizer steps of the script; the first ended after "
            f"{time_text(first_step_s)}, and the second had not ended when the run was stopped."
        )
    return (
        f"The profile run did not end within the budget of {time_text(budget_s)}, so nothing was "
        f"measured.{seen} How long it takes is not known: allow more, such as --budget "
        f"{longer_budget(_ENOUGH * budget_s)}, or leave --budget out, which gives each launch "
        f"{time_text(timeout_s)}. Its output is in {folder}."
    )


def no_second_profile_text(profile_s: float, spent_s: float, budget_s: float) -> str:
    """The budget is too short for a profile run with another micro-batch."""
    enough = longer_budget(_ENOUGH * (spent_s + profile_s))
    return (
        f"The budget of {time_text(budget_s)} has no room for a second profile run of about "
        f"{time_text(profile_s)} (--budget {enough} has), so it is not known whether the script "
        "keeps its global batch with another micro-batch."
    )


def no_time_for_ranks_text(ranks: int, profile_s: float, budget_s: float) -> str:
    """The budget is too short to profile a script again with the ranks that it starts."""
    return (
        f"The script starts {plural(ranks, 'rank')} by itself, and the budget of "
        f"{time_text(budget_s)} has no room to profile it with them: the first profile run took "
        f"{time_text(profile_s)}. Use --budget {longer_budget(_ENOUGH * 2.0 * profile_s)}."
        f"{_going_on(profile_s, budget_s)}"
    )


def _going_on(trial_s: float, budget_s: float) -> str:
    is_enough = _START_SHARE * budget_s > trial_s
    return " The same command goes on from this profile run." if is_enough else ""


def no_trial_text(
    trial_s: float, *, profile_s: float | None, budget_s: float, enough_s: float
) -> str:
    """The budget is too short for the trial of the user's own configuration."""
    profile = "" if profile_s is None else f"the profile run took {time_text(profile_s)}, and "
    return (
        f"The budget of {time_text(budget_s)} has no room for a trial: {profile}a trial may take "
        f"{time_text(trial_s)}. Use --budget {longer_budget(enough_s)} for two trials."
        f"{_going_on(trial_s, budget_s)}"
    )


def room_text(trial_s: float, *, room: int, trials: int, budget_s: float, enough_s: float) -> str:
    """Number of trials that the budget has room for; ``enough_s`` would cover all."""
    budget = time_text(budget_s)
    takes = f"A trial takes about {time_text(trial_s)}; the budget of {budget} has room for"
    if room == trials:
        return f"{takes} {'all of ' if trials > 1 else ''}{plural(trials, 'trial')}."
    which = ", your own configuration" if room == 1 else ""
    longer = longer_budget(enough_s)
    return f"{takes} {room} of {trials}{which}; --budget {longer} would cover them."
