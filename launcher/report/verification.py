"""Sentences on the winner's verification run, on refusals, and on the parts of its step."""

from __future__ import annotations

from typing import Any

from autoconf_launch.autotuner.playoff import LackOfTime, SoakReport
from autoconf_launch.autotuner.space import Prediction, Record
from autoconf_launch.core import Aside, Asides, FailureKind, WentOn, encode, plural

from .cells import label, number_text
from .columns import WaterfallStep, step_waterfall, waterfall_text
from .search import failure_text, refusal_text

_WENT_ON = {
    WentOn.END: "the script ran to its end",
    WentOn.EPOCH: "its data was then cut off, as at the end of an epoch",
    WentOn.EPOCH_END: (
        "its data was then cut off, as at the end of an epoch, and the script finished normally"
    ),
}
_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (0, "B"))
_MOST_REFUSED = 2
PROFILED_PARTS = {
    "samples": "samples",
    "launch": "launch floor",
    "recompute": "recompute",
    "bubble": "bubble",
    "communication": "exposed communication",
    "update": "update",
}
"""Parts of a step of a profiled model: kinds of work on its samples are not distinguished, and
only a pipeline has a bubble."""
MEASURED_PARTS = {
    "forward": "forward",
    "backward": "backward",
    "exchange": "exposed communication",
    "update": "update",
    "between": "between steps",
}
"""Parts of a step that a rank measured: recompute is within its backward."""


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
    sentences += [_few_steps(soak)] if soak.few_steps else []
    return " ".join(sentences)


def refused_text(soak: SoakReport) -> str:
    """The reason if no configuration passed."""
    if not soak.whatever:
        return crash_text(soak) or "No measured configuration passed its verification run."
    return (
        "No configuration passes its verification run: the script fails in it whatever the "
        f"configuration, yours too ({failure_text(soak.whatever)})."
    )


def _few_steps(soak: SoakReport) -> str:
    few = soak.few_steps
    if few is None:
        return ""
    count = plural(few.steps, "optimizer step")
    return f"At a global batch of {few.global_batch} an epoch has only {count}."


def soak_document(soak: SoakReport | None) -> object:
    """The report as a part of ``summary.json``, with sentences in place of values."""
    if soak is None:
        return None
    reasons = {"as_trial": soak.as_trial, "whatever": soak.whatever}
    return {
        **encode(soak),
        "refused": [refusal_text(found) for found in soak.refused],
        "few_steps": _few_steps(soak),
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
    """Why no configuration passed a verification run.

    Args:
        found: with the time that launches had.
        ending_s: seconds of the budget after these.
    """
    why = "it was ended within its steps"
    if found.left_s is not None:
        why = f"{found.left_s + ending_s:.0f} s remain"
    return f"The budget had no room for a verification run of {found.name}: {why}."


def step_parts_text(record: Record, soak: SoakReport | None = None) -> str | None:
    """Waterfalls of the prediction and of the verification run's steps; None without parts.

    The trials' own steps are not taken apart, as that slows them.
    """
    prediction, measurement = record.prediction, record.measurement
    if prediction is None or measurement is None or not prediction.step_s or not prediction.parts:
        return None
    measured_s = measurement.mean_step_s
    more = measured_s / prediction.step_s - 1.0
    return (
        f"Where a step of {label(record.trial.candidate)} goes, as predicted ({prediction.how}):\n"
        f"{waterfall_text(predicted_waterfall(prediction))}\n"
        f"measured {number_text(measured_s)} s, "
        f"{100 * abs(more):.0f} % {'more' if more > 0 else 'less'}"
        f"{_soak_text(soak)}"
    )


def step_parts_document(record: Record, soak: SoakReport | None = None) -> dict[str, Any] | None:
    """Parts of a step for ``summary.json``."""
    if step_parts_text(record) is None or record.prediction is None or record.measurement is None:
        return None
    return {
        "predicted_step_s": record.prediction.step_s,
        "predicted_parts_s": dict(record.prediction.parts),
        "measured_step_s": record.measurement.mean_step_s,
        "measured_parts_s": _measured_parts(soak),
    }


def _soak_text(soak: SoakReport | None) -> str:
    if not (steps := measured_waterfall(soak)):
        return ""
    drawn = waterfall_text(steps)
    return f"; measured in its verification run, one phase after the other:\n{drawn}"


def predicted_waterfall(prediction: Prediction | None) -> tuple[WaterfallStep, ...]:
    """Parts of a predicted step; empty if the model has none."""
    return step_waterfall(prediction.parts if prediction else (), PROFILED_PARTS)


def measured_waterfall(soak: SoakReport | None) -> tuple[WaterfallStep, ...]:
    """Phases of a step of the verification run; empty if it was not taken apart."""
    return step_waterfall(tuple(_measured_parts(soak).items()), MEASURED_PARTS)


def _measured_parts(soak: SoakReport | None) -> dict[str, float]:
    if soak is None or not soak.phases:
        return {}
    parts = {name: seconds for name, seconds in soak.phases if name != "exchange" or seconds > 0}
    return {**parts, "between": max(0.0, soak.step_s - sum(parts.values()))}
