"""Where the winner's step goes, predicted beside measured. Not: the prediction."""

from __future__ import annotations

from typing import Any

from autoconf_launch.autotuner.layouts.waterfall import PROFILED_PARTS, waterfall
from autoconf_launch.autotuner.trial import Record

from .waterfall_text import waterfall_text


def step_parts_text(record: Record) -> str | None:
    """A waterfall of the prediction, then the measured step; None where there are no parts.

    The parts of the measured step cannot be told apart without slowing it.
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
    )


def step_parts_document(record: Record) -> dict[str, Any] | None:
    """The same as a part of ``summary.json``."""
    if step_parts_text(record) is None or record.prediction is None or record.measurement is None:
        return None
    return {
        "predicted_step_s": record.prediction.step_s,
        "predicted_parts_s": dict(record.prediction.parts),
        "measured_step_s": record.measurement.mean_step_s,
    }
