"""Reliability of measurements: noise, the end of a trial, thresholds."""

from .noise import (
    AGAIN_SUFFIX,
    CORRELATION,
    FINAL_SUFFIX,
    PRIOR,
    Noise,
    NoiseTally,
    SpeedUp,
    chance_below,
    estimate_noise,
    expected_excess,
    interval,
    is_tie,
    measured_name,
    of_both,
    of_student,
    relative_error,
    speed_up,
    t_quantile,
)
from .presets import EFFORTS, NORMAL, Effort
from .stop_rule import FEWEST_TIMED, StopRule, as_fast_s
