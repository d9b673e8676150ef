"""How far off a predicted step may be. Not: the prediction, nor the band of memory."""

from __future__ import annotations

from autoconf_launch.core import Architecture, Layout, Offload

STEP_TIME_BAND = 0.16
"""Nine of ten of the 1065 timed settings in the published tables that the model was fitted on lie
within it (``benchmarks/planner_accuracy.py``; models that were left out of the fit are about one
point worse)."""
UNMEASURED_BAND = 2 * STEP_TIME_BAND
"""A guess for what no table has: experts, and states in host memory."""


def time_band(architecture: Architecture, layout: Layout) -> float:
    """Relative error of a predicted step that nine of ten layouts like this one stay within."""
    unmeasured = architecture.experts is not None or layout.offload is not Offload.NONE
    return UNMEASURED_BAND if unmeasured else STEP_TIME_BAND
