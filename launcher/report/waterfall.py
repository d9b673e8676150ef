"""The parts of a step as a drawing: what is lost one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autoconf_launch.autotuner.playoff import SoakReport
from autoconf_launch.autotuner.space import Prediction, Record

from .cells import label, number_text

_WIDTH = 48
PARTS = {
    "ideal": "ideal",
    "samples": "samples",
    "kernels": "kernel efficiency",
    "launch": "launch floor",
    "compute": "stages at work, in the mean",
    "bubble": "bubble",
    "communication": "exposed communication",
    "sends": "first micro-batch on its way",
    "gradients": "exposed gradient sums and update",
    "embeddings": "sum of tied embeddings",
    "recompute": "recompute",
    "update": "update",
    "host": "host",
    "frozen": "frozen models",
}
"""Parts of a predicted step in the order of the drawing, and what people call them. On nodes that
differ a step is taken apart by its stages."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class WaterfallStep:
    """One loss: it starts where the ones before it end."""

    name: str
    start_s: float
    seconds: float


def step_waterfall(
    parts: Sequence[tuple[str, float]], names: Mapping[str, str] = PARTS
) -> tuple[WaterfallStep, ...]:
    """The parts of a step in the order in which they are lost."""
    given = dict(parts)
    found, start_s = [], 0.0
    for part, name in names.items():
        if part in given:
            seconds = max(given[part], 0.0)  # -4e-16 is a rounded 0
            found.append(WaterfallStep(name=name, start_s=start_s, seconds=seconds))
            start_s += seconds
    return tuple(found)


def waterfall_text(steps: Sequence[WaterfallStep]) -> str:
    """A line for each loss: seconds, share of the step, a bar from where the last one ended."""
    total_s = sum(step.seconds for step in steps)
    names = max(len(step.name) for step in steps)
    unit = (1.0, "s") if total_s >= _SHORT_S else (1e-3, "ms")
    lines = [_line(step, total_s, names, unit) for step in steps]
    total = f"{number_text(total_s / unit[0]):>9} {unit[1]}"
    return "\n".join([*lines, f"{'step':<{names}}  {total}  100 %  {'=' * _WIDTH}"])


_SHORT_S = 0.1
"""Steps below it are drawn in milliseconds."""


def _line(step: WaterfallStep, total_s: float, names: int, unit: tuple[float, str]) -> str:
    first = round(_WIDTH * step.start_s / total_s)
    last = round(_WIDTH * (step.start_s + step.seconds) / total_s)
    bar = " " * first + ("#" * (last - first) or ("|" if step.seconds > 0 else ""))
    share = 100 * step.seconds / total_s
    size = f"{number_text(step.seconds / unit[0]):>9} {unit[1]}"
    return f"{step.name:<{names}}  {size}  {share:3.0f} %  {bar}".rstrip()


def step_parts_text(record: Record, soak: SoakReport | None = None) -> str | None:
    """A waterfall of the prediction and one of the soak's steps; None where there are no parts.

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
    """Where a step's time goes, as a part of ``summary.json``."""
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
    """Parts of a predicted step; empty where the model has none."""
    return step_waterfall(prediction.parts if prediction else (), PROFILED_PARTS)


def measured_waterfall(soak: SoakReport | None) -> tuple[WaterfallStep, ...]:
    """Phases of a step of the verification run; empty where it was not taken apart."""
    return step_waterfall(tuple(_measured_parts(soak).items()), MEASURED_PARTS)


def _measured_parts(soak: SoakReport | None) -> dict[str, float]:
    """Seconds by phase and what no phase explains; an exchange that cannot be told is skipped."""
    if soak is None or not soak.phases:
        return {}
    parts = {name: seconds for name, seconds in soak.phases if name != "exchange" or seconds > 0}
    return {**parts, "between": max(0.0, soak.step_s - sum(parts.values()))}
