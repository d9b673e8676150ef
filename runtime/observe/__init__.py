"""Measures an external script's steps: times, memory, operations, gradient exchange."""

from .clock import Arriving, LossReader, clock_of, loss_of, sum_of
from .gradient_sync import Exchange, apart
from .memory_use import MemoryWatch, use_before_training
from .pieces import Pieces, dynamo_ran, has_compiled_part, unwrapped_model
from .step_watch import StepWatch, Storages, held_by
from .steps import Made, Meaning, StepCounter
from .timeline import PauseRule, Timeline, first_not_finite
