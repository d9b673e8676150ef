"""How far measurements can be trusted: noise, drift of the machine, sequential comparison."""

from .machine_drift import (
    Drift,
    at_last_level,
    at_level,
    counts_instead,
    drift,
    in_place_of,
    machine_level,
    without_drift,
)
from .noise import (
    AGAIN_SUFFIX,
    FINAL_SUFFIX,
    MAX_USEFUL_LOG_HALF_WIDTH,
    PRIOR,
    Noise,
    NoiseTally,
    SpeedUp,
    chance_below,
    correct_noise,
    estimate_noise,
    expected_excess,
    interval,
    is_tie,
    measured_name,
    of_both,
    relative_error,
    speed_up,
    t_quantile,
)
from .presets import EFFORTS, NORMAL, Effort
from .sequential_test import (
    Expected,
    PairedEstimate,
    estimate_difference,
    expect_apart,
    expect_in_turn,
    expected_width,
)
from .stop_rule import (
    FEWEST_TIMED,
    Pace,
    StopRule,
    steps_apart,
    steps_of_turn,
    time_apart_s,
    turn_time_s,
    turns_of_round,
    without_wake_ups,
)
