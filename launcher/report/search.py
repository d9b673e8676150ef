"""Sentences on a search, its repeated launches and the winner's verification run."""

from __future__ import annotations

import math
from collections.abc import Iterator

from autoconf_launch.autotuner.measurement import measured_name
from autoconf_launch.autotuner.playoff import (
    MOST_MEMORY,
    Decision,
    LackOfTime,
    LossComparison,
    MeaningVerdict,
    Obstacle,
    Refusal,
    SoakReport,
    Summary,
    TimeParts,
)
from autoconf_launch.autotuner.search import (
    Drift,
    NoRoom,
    OptimalityBound,
    Skipped,
    StopKind,
    StopReason,
)
from autoconf_launch.autotuner.space import Record
from autoconf_launch.autotuner.strategies import SATURATION_GAIN
from autoconf_launch.core import Aside, Asides, Failure, FailureKind, WentOn, encode, plural

from .cells import label, number_text, time_text

_LEVELLED_OFF = "throughput has levelled off"
_OBSTACLES = {
    Obstacle.NOT_MEASURED: "one of them was not measured",
    Obstacle.OTHER_BATCH: "their global batches are {batches[0]} and {batches[1]}",
    Obstacle.NO_LOSSES: "the script reports no finite losses",
    Obstacle.BASELINE_DIFFERS: (
        "two launches of your configuration differ by {percent:.1f} % (the script draws new data "
        "or weights each time)"
    ),
}
_WENT_ON = {
    WentOn.END: "the script ran to its end",
    WentOn.EPOCH: "its data was then cut off, as at the end of an epoch",
    WentOn.EPOCH_END: (
        "its data was then cut off, as at the end of an epoch, and the script finished normally"
    ),
}
_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (0, "B"))
_MOST_REFUSED = 2


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
        return stop_sentence(stop)
    if gain <= SATURATION_GAIN:
        most = f"{100 * SATURATION_GAIN:.0f} %"
        return f"Search complete: nothing left is expected to be more than {most} faster."
    left = f"the best of what is left is expected to gain {100 * gain:.0f} %"
    skipped = summary.skipped
    if skipped is not None and skipped.open == skipped.beyond_saturation > 0:
        return (
            f"Search complete: {_LEVELLED_OFF}, so what is left was not tried; with the noise of "
            f"the trials, {left}."
        )
    if skipped is not None and skipped.patience:
        trials = f"{plural(skipped.patience, 'trial')} in a row that were no better"
        return f"The search ended after {trials} (tuner_early_stopping); {left}."
    return f"Search complete: {left}."


def stop_document(summary: Summary) -> dict[str, object] | None:
    """Why the study ended, as a part of ``summary.json``."""
    stop = summary.stop
    if stop is None:
        return None
    sentence, log_tail = stop_sentence(stop), list(stop.log_tail)
    return {"kind": stop.kind.value, "sentence": sentence, "log_tail": log_tail}


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


def refusal_text(found: Refusal) -> str:
    """Why a configuration did not pass its verification run."""
    if found.failure:
        return f"{found.name} failed its verification run ({failure_text(found.failure)})."
    return (
        f"{found.name} used {100 * found.memory_share:.1f} % of memory in its verification run, "
        f"more than {100 * MOST_MEMORY:.0f} %."
    )


def parts_text(parts: TimeParts) -> str:
    """Time of each phase of a command."""
    after = "the final comparison and verification run"
    confirmation = f", {time_text(parts.confirmation_s)} for {after}"
    confirmation = confirmation if round(parts.confirmation_s) else ""
    return (
        f"This command took {time_text(parts.whole_s)}: {time_text(parts.profile_s)} until the "
        f"first trial, {time_text(parts.trials_s)} for trials{confirmation}."
    )


def failure_text(failure: Failure) -> str:
    """Kind and detail of a failure."""
    return f"{failure.kind.value}: {failure.detail}"


def verification_text(soak: SoakReport) -> str:
    """Course of the winner's verification run, and features that it did not exercise."""
    if not soak.passed:
        return refused_text(soak)
    asides = soak.asides or Asides()
    least = "at least " if asides.under_way and not asides.went_on else ""
    did = [f"{least}{plural(soak.steps, 'step')}"]
    if soak.memory_share is not None:
        did.append(f"peak memory {100 * soak.memory_share:.0f} %")
    if asides.went_on:
        did.append(_WENT_ON[asides.went_on])
    longest = "; the last step used the longest batch seen" if asides.longest_batch else ""
    sentences = [f"Verification run of the winner: {', '.join(did)}{longest}."]
    seen = [*filter(None, (_evaluation_text(asides), _checkpoint_text(asides)))]
    sentences += [f"Exercised: {', '.join(seen)}."] if seen else []
    if missed := _not_exercised(soak):
        sentences.append(f"Not exercised: {', '.join(missed)}.")
    if soak.as_trial:
        sentences.append(
            "A first attempt, with the script's evaluation and checkpoint moved into the run, "
            f"failed ({failure_text(soak.as_trial)})."
        )
    if _lacked_data(asides):
        sentences.append(f"The script could not continue without its data ({asides.broke}).")
    return " ".join(sentences)


def refused_text(soak: SoakReport) -> str:
    """The reason if no configuration passed."""
    if not soak.whatever:
        return crash_text(soak) or "No measured configuration passed its verification run."
    return (
        "No configuration passes its verification run: the script fails in it whatever the "
        f"configuration, yours too ({failure_text(soak.whatever)})."
    )


def soak_document(soak: SoakReport | None) -> object:
    """The report as a part of ``summary.json``, with sentences in place of values."""
    if soak is None:
        return None
    reasons = {"as_trial": soak.as_trial, "whatever": soak.whatever}
    return {
        **encode(soak),
        "refused": [refusal_text(found) for found in soak.refused],
        **{name: failure_text(found) if found else "" for name, found in reasons.items()},
    }


def _not_exercised(soak: SoakReport) -> list[str]:
    asides = soak.asides or Asides()
    missed = []
    if soak.asides is not None:
        missed += ["evaluation"] * (not asides.evaluations)
        missed += ["checkpointing"] * (not asides.checkpoints)
    if asides.went_on not in (WentOn.END, WentOn.EPOCH_END) and not asides.broke:
        last = "last epoch" if asides.went_on is WentOn.EPOCH else "steps"
        missed.append(f"what the script does after its {last}")
    return missed


def _lacked_data(asides: Asides) -> bool:
    return StopIteration.__name__ in asides.broke


def crash_text(soak: SoakReport | None) -> str:
    """The script's crash in a verification run, if no configuration got past it; else empty."""
    if soak is None:
        return ""
    steps = plural(soak.steps, "step")
    asides = soak.asides or Asides()
    if soak.passed and asides.broke and not _lacked_data(asides):
        where = f"in or after its {asides.broke_in.value}, " if asides.broke_in else ""
        return (
            f"The script crashed in its verification run, {where}after {steps}: "
            f"{asides.broke.rstrip('.')}. Fix this before you train, unless the script fails only "
            "because its data was cut off there."
        )
    refused = [found.failure for found in soak.refused if found.failure]
    if soak.passed or not refused or refused[-1].kind is not FailureKind.CRASHED:
        return ""
    return (
        f"The script crashed in the verification run of {soak.refused[-1].name}: "
        f"{refused[-1].detail.rstrip('.')}. No configuration has passed one, so fix this before "
        "you train."
    )


def _evaluation_text(asides: Asides) -> str:
    if not asides.evaluations:
        return ""
    batches = plural(asides.evaluation_batches, "batch", "batches")
    if asides.under_way is Aside.EVALUATION:
        return f"{batches} of an evaluation that did not end in its time"
    return f"{plural(asides.evaluations, 'evaluation')} ({batches})"


def _checkpoint_text(asides: Asides) -> str:
    if not asides.checkpoints:
        return ""
    if asides.under_way is Aside.CHECKPOINT:
        return "a checkpoint that did not end in its time"
    size = next(
        f"{asides.saved_bytes / (u or 1):.3g} {n}" for u, n in _SIZES if asides.saved_bytes >= u
    )
    return f"{plural(asides.checkpoints, 'checkpoint')} ({size})"


def refused_lines(soak: SoakReport | None) -> list[str]:
    """Configurations that failed their verification run, the first few with the reason."""
    refused = [refusal_text(found) for found in soak.refused] if soak else []
    more = len(refused) - _MOST_REFUSED
    rest = [f"{more} more failed their verification run."] if more > 0 else []
    return [*refused[:_MOST_REFUSED], *rest]


def lack_of_time_text(found: LackOfTime, ending_s: float = 0.0) -> str:
    """Why no configuration passed a verification run."""
    why = "it was ended within its steps"
    if found.left_s is not None:
        why = f"{found.left_s + ending_s:.0f} s remain"
    return f"The budget had no room for a verification run of {found.name}: {why}."
