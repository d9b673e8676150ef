"""Reliability of measurements: noise, the end of a trial, thresholds."""

from .noise import (
    AGAIN_SUFFIX,
    CORRELATION,
    FINAL_SUFFIX,
    PRIOR,
    CostRatio,
    Noise,
    NoiseTally,
    SpeedUp,
    chance_below,
    compare_trials,
    estimate_noise,
    expected_excess,
    measured_name,
    of_student,
    relative_error,
    t_quantile,
)
from .presets import EFFORTS, NORMAL, Effort
from .stop_rule import FEWEST_TIMED, StopRule, as_fast_s
