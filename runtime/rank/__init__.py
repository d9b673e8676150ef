"""A rank among others: its place, memory, failures, turns, and its result file."""

from .failures import (
    NonFiniteLossError,
    asked_bytes,
    classify,
    is_allocation_failure,
    is_device_lost,
    is_of_weights,
    last_words,
)
from .memory import CpuMeter, CudaMeter, start_meter
from .phase_clock import (
    BACKWARD,
    FEWEST_MADE,
    FORWARD,
    PASSES,
    UPDATE,
    CompileTime,
    PhaseClock,
    StepCutter,
    autocast_format,
    device_now_s,
)
from .ranks import Ranks, join, open_store, rank_number, world_size
from .report import (
    Report,
    announced_end,
    leave,
    shown_json,
    task_from_environment,
    write_sign,
    write_whole,
)
from .turns import Turns
