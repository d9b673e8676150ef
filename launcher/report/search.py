"""Sentences on a search and on launches again: its end, the candidates left, the findings."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from autoconf_launch.autotuner.measurement import measured_name
from autoconf_launch.autotuner.playoff import (
    MOST_MEMORY,
    Decision,
    LossComparison,
    MeaningVerdict,
    Obstacle,
    Refusal,
    Summary,
    TimeParts,
    TimeRange,
)
from autoconf_launch.autotuner.search import (
    Drift,
    NoRoom,
    OptimalityBound,
    Skipped,
    StopKind,
    StopReason,
)
from autoconf_launch.autotuner.space import Prediction, Record, longer_budget
from autoconf_launch.autotuner.strategies import SATURATION_GAIN
from autoconf_launch.core import Candidate, Failure, MemoryUse, plural

from .cells import (
    duration_text,
    label,
    memory_text,
    number_text,
    range_text,
    seconds_text,
    table_of,
)

_LEVELLED_OFF = f"throughput has levelled off (less than {100 * SATURATION_GAIN:.0f} % expected)"
_OBSTACLES = {
    Obstacle.BASELINE_NOT_MEASURED: "your configuration was not measured",
    Obstacle.WINNER_NOT_MEASURED: "one of them was not measured",
    Obstacle.OTHER_BATCH: "their global batches are {batches[0]} and {batches[1]}",
    Obstacle.NO_LOSSES: "the script reports no finite losses",
    Obstacle.BASELINE_INFINITE: "the losses of your configuration are finite in only one launch",
    Obstacle.BASELINE_DIFFERS: (
        "two launches of your configuration differ by {percent:.1f} % (the script draws new data "
        "or weights each time)"
    ),
}
_MOST_PLANNED = 24
_PLANNED_HEADERS = ("config", "predicted", "samples/s", "memory")
_START_SHARE = 0.9
"""Share of a budget that the start of the launcher leaves for a trial."""
_ENOUGH = 3.0
"""Budget to suggest over a time that was too short."""


def bound_text(bound: OptimalityBound) -> str:
    """Number of configurations left, and their possible gain."""
    if not bound.remaining:
        return "No configuration is left to try."
    left = f"{plural(bound.remaining, 'configuration')} left"
    if bound.beaten == bound.remaining:
        return f"{left}, provably slower than the best."
    slower = f", {bound.beaten} of them provably slower" if bound.beaten else ""
    return (
        f"{left}{slower}; expected further gain {100 * bound.expected_gain:.1f} % "
        f"(at most {100 * bound.possible_gain:.1f} %)."
    )


def stop_sentence(stop: StopReason) -> str:
    """Reason for the end of a study, or its error."""
    if stop.error:
        return stop.error
    if stop.kind is StopKind.TRIALS:
        return (
            f"Stopped after {plural(stop.trials, 'trial')} besides your configuration "
            f"(tuner_num_trials is {stop.trials}); configurations worth a trial are left."
        )
    if stop.kind is StopKind.STAGE_NO_BETTER:
        best = [f"{name} ({number_text(value)} {stop.unit})" for name, value in stop.stages]
        return f"Stage {' is no better than '.join(best)}, so later stages were skipped."
    if stop.kind is StopKind.BUDGET:
        return _budget_sentence(stop.budget, stop.no_room)
    if stop.bound is not None:
        return f"Good enough: {bound_text(stop.bound)}"
    return "Only one configuration was tried." if stop.trials == 1 else "Search complete."


def _budget_sentence(budget: str, no_room: NoRoom | None) -> str:
    if no_room is None:
        return f"The budget of {budget} is spent."
    count = no_room.candidates
    whom = f"of the {count} candidates left the shortest" if count > 1 else "the one left"
    kept = f", {no_room.kept_s:.0f} s of them for the playoff and the verification run"
    kept *= no_room.shortest_s <= no_room.left_s
    return (
        f"The budget of {budget} had no room for another trial: {whom} may take "
        f"{no_room.shortest_s:.0f} s, and {no_room.left_s:.0f} s remained after the search{kept}."
    )


def stop_text(summary: Summary) -> str:
    """Reason for the end of a study, with the gain still possible if known."""
    stop, gain = summary.stop, summary.expected_gain
    if stop is None:
        return ""
    if stop.kind is not StopKind.EXPLORED or summary.alone or gain is None:
        about = _about(summary) if stop.bound is not None else ""
        return f"{stop_sentence(stop)}{about}"
    if gain <= SATURATION_GAIN:
        most = f"{100 * SATURATION_GAIN:.0f} %"
        return f"Search complete: nothing left is expected to be more than {most} faster."
    left = f"the best of what is left is expected to gain {100 * gain:.0f} %"
    if (skipped := summary.skipped) is not None and skipped.patience:
        trials = f"{plural(skipped.patience, 'trial')} in a row that were no better"
        return f"The search ended after {trials} (tuner_early_stopping); {left}."
    return f"Search complete: {left}."


def stop_document(summary: Summary) -> dict[str, object] | None:
    """Why the study ended, as a part of ``summary.json``."""
    stop = summary.stop
    if stop is None:
        return None
    about = _about(summary) if stop.bound is not None else ""
    sentence = f"{stop_sentence(stop)}{about}"
    return {"kind": stop.kind.value, "sentence": sentence, "log_tail": list(stop.log_tail)}


def certificate_text(summary: Summary) -> str | None:
    """Possible gain of the remaining candidates; None if unknown."""
    if summary.optimality_bound is None:
        return None
    return f"{bound_text(summary.optimality_bound)}{_about(summary)}"


def _about(summary: Summary) -> str:
    best = summary.decision.passed_over
    return f" (This is about {best}, the best of the search.)" if best else ""


def left_out_text(summary: Summary) -> str | None:
    """Number of configurations not tried, and reasons; None if unknown."""
    return None if summary.skipped is None else skipped_text(summary.skipped)


def skipped_text(left: Skipped) -> str:
    """Number of configurations that were skipped, and reasons."""
    rest = "left when the search ended"
    if left.patience:
        trials = f"{plural(left.patience, 'trial')} in a row that were no better"
        rest = f"left after {trials} (tuner_early_stopping)"
    elif left.best_micro_batches_alone:
        rest = "further knobs, which were tried only with the best micro-batches"
    above = "micro-batch larger than the script reached (too few samples, or its own limit)"
    counts = {
        "more memory than one that ran out of it": left.needs_more_memory,
        above: left.above_what_ran,
        "micro-batch smaller than yours, which fits": left.smaller,
        _LEVELLED_OFF: left.beyond_saturation,
        rest: left.open - left.beyond_saturation,
    }
    counts = {why: count for why, count in counts.items() if count}
    if not counts:
        return "Every configuration was tried."
    why = "; ".join(f"{why}: {count}" for why, count in counts.items())
    why = next(iter(counts)) if len(counts) == 1 else why
    skipped = f"{sum(counts.values())} of {plural(left.candidates, 'configuration')}"
    return f"{skipped} skipped: {why}."


def meaning_text(meaning: LossComparison) -> str:
    """Result of the comparison of losses with its tolerance, or the obstacle."""
    if meaning.obstacle is not None:
        reason = _OBSTACLES[meaning.obstacle].format(
            batches=meaning.batches, percent=100 * meaning.own_gap
        )
        return f"The losses of your configuration and of the winner were not compared: {reason}."
    batches = plural(meaning.steps, "global batch", "global batches")
    over = f"over the first {batches.removeprefix('1 ')}"
    how = f"{over}: only one of them is finite"
    if meaning.worst is not None:
        how = f"by at most {meaning.worst:.1e} {over} (tolerance {meaning.tolerance:g})"
    if meaning.verdict is MeaningVerdict.SAME:
        return (
            f"The winner trains the same: its losses and those of your configuration differ {how}."
        )
    return (
        f"The losses of your configuration and of the winner differ {how}; before you trust the "
        "winner, check that the script draws the same data for each global batch, however it is "
        "split."
    )


def meaning_document(meaning: LossComparison | None) -> dict[str, object] | None:
    """The comparison of losses, as a part of ``summary.json``."""
    if meaning is None:
        return None
    return {
        "verdict": meaning.verdict.value,
        "sentence": meaning_text(meaning),
        "worst": meaning.worst,
        "tolerance": meaning.tolerance,
    }


def findings(summary: Summary) -> tuple[str, ...]:
    """Sentences on the repeats of the search, then on the playoff and the verification run."""
    decision = summary.decision
    refused = decision.soak.refused if decision.soak else ()
    return (
        *drift_findings(summary.drift),
        *_playoff(decision),
        *map(refusal_text, refused),
        *filter(None, [summary.impossible]),
        *summary.notes,
    )


def labels(summary: Summary) -> dict[str, str]:
    """Readable labels by the configurations' names."""
    records = summary.drift.records
    return {record.trial.name: label(record.trial.candidate) for record in records}


def drift_findings(drift: Drift) -> tuple[str, ...]:
    """A sentence on each repeat that failed or counts instead of its trial, and on the machine."""
    failed = (
        f"{measured_name(record.trial.name)} failed when it was re-measured "
        f"({failure_text(record.failure)}); its first measurement counts."
        for record in drift.failed
        if record.failure
    )
    doubted = (
        f"{label(trial.trial.candidate)} took {_milliseconds(trial)} per step in its trial, "
        f"{_milliseconds(repeat)} re-measured; the latter counts."
        for trial, repeat in drift.doubted
    )
    return (*failed, *doubted, *_machine(drift.now))


def _machine(level: float) -> tuple[str, ...]:
    if not level:
        return ()
    slower = f"{_percent(level)} {'slower' if level > 0.0 else 'faster'}"
    return (
        f"The machine was about {slower} at the end of the search than at its start, as a repeat "
        "of the baseline showed.",
    )


def _percent(level: float) -> str:
    """The size of a change of time, from its logarithm."""
    return f"{100.0 * abs(math.expm1(level)):.0f} %"


def _milliseconds(record: Record) -> str:
    return f"{number_text(record.measurement.latency_ms)} ms" if record.measurement else "-"


def _playoff(decision: Decision) -> Iterator[str]:
    for record in decision.failed:
        if record.failure:
            name = measured_name(record.trial.name)
            why = failure_text(record.failure)
            yield f"{name} failed in the playoff ({why}) and was eliminated."


def planned_tune_text(
    planned: Sequence[tuple[Candidate, Prediction | None]],
    limit_bytes: int,
    whole: TimeRange | None,
    *,
    usd_per_hour: float | None,
) -> str:
    """Candidates, duration and cost of a tune.

    Args:
        planned: the user's own configuration, then all candidates.
        limit_bytes: memory of a rank.
        whole: time from the first trial to the end; None without predicted times.
        usd_per_hour: price of the machine; None if unknown.
    """
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


def refusal_text(found: Refusal) -> str:
    """Why a configuration did not pass its verification run."""
    if found.failure:
        return f"{found.name} failed its verification run ({failure_text(found.failure)})."
    return (
        f"{found.name} used {100 * found.memory_share:.1f} % of memory in its verification run, "
        f"more than {100 * MOST_MEMORY:.0f} %."
    )


def _time(seconds: float) -> str:
    """A time in words: ``60 s``, ``20 minutes``."""
    return f"{seconds:.0f} s" if seconds < 120.0 else duration_text(seconds)


def profile_cut_text(
    budget_s: float, folder: Path, *, first_step_s: float | None, timeout_s: float
) -> str:
    """The deadline came within the profile run, perhaps after its first step."""
    seen = ""
    if first_step_s is not None:
        seen = (
            f" It needs two optimizer steps of the script; the first ended after "
            f"{_time(first_step_s)}, and the second had not ended when the run was stopped."
        )
    return (
        f"The profile run did not end within the budget of {_time(budget_s)}, so nothing was "
        f"measured.{seen} How long it takes is not known: allow more, such as --budget "
        f"{longer_budget(_ENOUGH * budget_s)}, or leave --budget out, which gives each launch "
        f"{_time(timeout_s)}. Its output is in {folder}."
    )


def no_second_profile_text(profile_s: float, spent_s: float, budget_s: float) -> str:
    """The budget is too short for a profile run with another micro-batch."""
    enough = longer_budget(_ENOUGH * (spent_s + profile_s))
    return (
        f"The budget of {_time(budget_s)} has no room for a second profile run of about "
        f"{_time(profile_s)} (--budget {enough} has), so it is not known whether the script "
        "keeps its global batch with another micro-batch."
    )


def no_time_for_ranks_text(ranks: int, profile_s: float, budget_s: float) -> str:
    """The budget is too short to profile a script again with the ranks that it starts."""
    return (
        f"The script starts {plural(ranks, 'rank')} by itself, and the budget of "
        f"{_time(budget_s)} has no room to profile it with them: the first profile run took "
        f"{_time(profile_s)}. Use --budget {longer_budget(_ENOUGH * 2.0 * profile_s)}."
        f"{_going_on(profile_s, budget_s)}"
    )


def _going_on(trial_s: float, budget_s: float) -> str:
    is_enough = _START_SHARE * budget_s > trial_s
    return " The same command goes on from this profile run." if is_enough else ""


def no_trial_text(
    trial_s: float, *, profile_s: float | None, budget_s: float, enough_s: float
) -> str:
    """The budget is too short for the trial of the user's own configuration.

    Args:
        trial_s: longest duration of the trial.
        profile_s: duration of this command's profile run; None if an earlier profile was read.
        budget_s: budget of the whole command.
        enough_s: the budget that has room for two trials.
    """
    profile = "" if profile_s is None else f"the profile run took {_time(profile_s)}, and "
    return (
        f"The budget of {_time(budget_s)} has no room for a trial: {profile}a trial may take "
        f"{_time(trial_s)}. Use --budget {longer_budget(enough_s)} for two trials."
        f"{_going_on(trial_s, budget_s)}"
    )


def room_text(trial_s: float, *, room: int, trials: int, budget_s: float, enough_s: float) -> str:
    """Number of trials that the budget has room for; ``enough_s`` would cover all."""
    takes = f"A trial takes about {_time(trial_s)}; the budget of {_time(budget_s)} has room for"
    if room == trials:
        return f"{takes} {'all of ' if trials > 1 else ''}{plural(trials, 'trial')}."
    which = ", your own configuration" if room == 1 else ""
    longer = longer_budget(enough_s)
    return f"{takes} {room} of {trials}{which}; --budget {longer} would cover them."


def parts_text(parts: TimeParts) -> str:
    """Time of each phase of a command."""
    after = "the final comparison and verification run"
    confirmation = f", {_time(parts.confirmation_s)} for {after}"
    confirmation = confirmation if round(parts.confirmation_s) else ""
    return (
        f"This command took {_time(parts.whole_s)}: {_time(parts.profile_s)} until the first "
        f"trial, {_time(parts.trials_s)} for trials{confirmation}."
    )


def failure_text(failure: Failure) -> str:
    """Kind and detail of a failure."""
    return f"{failure.kind.value}: {failure.detail}"
