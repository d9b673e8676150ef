"""Where the winner's step goes, predicted beside measured. Not: the prediction."""

from __future__ import annotations

from typing import Any

from autoconf_launch.autotuner.layouts.waterfall import (
    MEASURED_PARTS,
    PROFILED_PARTS,
    waterfall,
)
from autoconf_launch.autotuner.soak_report import SoakReport
from autoconf_launch.autotuner.trial import Record

from .waterfall_text import waterfall_text


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
        f"Where a step of {record.trial.name} goes, as predicted ({prediction.how}):\n"
        f"{waterfall_text(waterfall(prediction.parts, PROFILED_PARTS))}\n"
        f"measured {measured_s:.4g} s, {100 * abs(more):.0f} % {'more' if more > 0 else 'less'}"
        f"{_soak_text(soak)}"
    )


def step_parts_document(record: Record, soak: SoakReport | None = None) -> dict[str, Any] | None:
    """The same as a part of ``summary.json``."""
    if step_parts_text(record) is None or record.prediction is None or record.measurement is None:
        return None
    return {
        "predicted_step_s": record.prediction.step_s,
        "predicted_parts_s": dict(record.prediction.parts),
        "measured_step_s": record.measurement.mean_step_s,
        "measured_parts_s": _measured_parts(soak),
    }


def _soak_text(soak: SoakReport | None) -> str:
    parts = _measured_parts(soak)
    if not parts:
        return ""
    told = {name: MEASURED_PARTS[name] for name in MEASURED_PARTS if name in parts}
    drawn = waterfall_text(waterfall(tuple(parts.items()), told))
    return f"; measured in its verification run, one phase after the other:\n{drawn}"


def _measured_parts(soak: SoakReport | None) -> dict[str, float]:
    """Seconds by phase and what no phase explains; an exchange that cannot be told is left out."""
    if soak is None or not soak.phases:
        return {}
    parts = {name: seconds for name, seconds in soak.phases if name != "exchange" or seconds > 0}
    return {**parts, "between": max(0.0, soak.step_s - sum(parts.values()))}
