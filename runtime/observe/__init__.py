"""Measures an external script's steps: times, memory, operations, gradient exchange."""

from .memory_use import MemoryWatch, use_before_training
from .pieces import Pieces, dynamo_ran, has_compiled_part, unwrapped_model
from .step_watch import Exchange, StepWatch, Storages, apart, held_by
from .steps import Made, Meaning, StepCounter
from .timeline import (
    Arriving,
    LossReader,
    PauseRule,
    Timeline,
    clock_of,
    first_not_finite,
    loss_of,
    sum_of,
)
