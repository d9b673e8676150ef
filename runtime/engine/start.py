"""From a model and a configuration to an engine, in the mode that the launcher asks for."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import TracebackType
from typing import NoReturn

from autoconf_launch.core import JOB_VARIABLE, ConfigError, Mode, real_time

from ..model import (
    LossFunction,
    MakeOptimizer,
    ModelSource,
    TrainingParts,
    held_bytes,
    model_loss,
    optimizer_maker,
)
from ..profile import Profiler
from ..rank import (
    CompileTime,
    PhaseClock,
    Ranks,
    Report,
    join,
    leave,
    rank_number,
    start_meter,
    task_from_environment,
    world_size,
)
from .config_file import ConfigSource, read_engine_config
from .engine import Engine, Stepper
from .measure import Measured
from .trainer import Trainer


def initialize(
    model: ModelSource,
    config: ConfigSource,
    *,
    loss_fn: LossFunction | None = None,
    optimizer: MakeOptimizer | None = None,
) -> Engine:
    """Meet the other ranks and lay the model out as the configuration says.

    Args:
        model: a module, or a function that builds one (then a profile can look at it without
            building it). All ranks start with the weights of rank 0.
        config: the path of a strict JSON file, a mapping or a ResolvedConfig.
        loss_fn: from model and micro-batch to the mean loss over it; by default the model is
            called with the micro-batch (tuples and dicts spread) and returns the loss.
        optimizer: from trainable parameters to a torch optimizer; wins over the configuration.

    Raises:
        ConfigError: the configuration cannot be read or applied.
        HardwareError: there are fewer GPUs than local ranks.
    """
    task = task_from_environment()
    if task is None:
        with _say_in_one_line() if JOB_VARIABLE in os.environ else nullcontext():
            recipe, ranks = _prepare(model, config, loss_fn, optimizer)
            return Engine(Trainer(recipe, ranks), ranks, recipe.config.layout)
    report = Report(task, rank=rank_number(), world_size=world_size())
    with report.guard():
        recipe, ranks = _prepare(model, config, loss_fn, optimizer)
        report.install()
        CompileTime(task).watch()
        stepper = _STEPPERS[task.mode](recipe, ranks, report)
        return Engine(stepper, ranks, recipe.config.layout)


@contextmanager
def _say_in_one_line() -> Iterator[None]:
    """End a rank of our launcher by what is wrong with its configuration, without a traceback.

    After it that holds of what the script does not catch: a step's batch, a checkpoint's folder.
    """
    try:
        yield
    except ConfigError as error:
        _end_by(error)
    previous = sys.excepthook  # torch's, which comes with the process group

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, ConfigError):
            _end_by(error)
        previous(kind, error, trace)

    sys.excepthook = hook


def _end_by(error: ConfigError) -> NoReturn:
    """The launcher ends the others with the first one, so that the sentence comes once."""
    real_time.sleep(_AFTER_RANK_0_S * (rank_number() > 0))
    sys.stderr.write(f"autoconf-launch: {error}\n")
    sys.stderr.flush()
    leave(_USAGE_ERROR)


_USAGE_ERROR = 2
_AFTER_RANK_0_S = 2.0


def _prepare(
    model: ModelSource,
    config: ConfigSource,
    loss_fn: LossFunction | None,
    optimizer: MakeOptimizer | None,
) -> tuple[TrainingParts, Ranks]:
    resolved = read_engine_config(config, world_size=world_size())
    recipe = TrainingParts(
        model=model,
        config=resolved,
        loss=loss_fn or model_loss,
        make_optimizer=optimizer or optimizer_maker(resolved.optimizer),
    )
    return recipe, join()


def _measuring_stepper(recipe: TrainingParts, ranks: Ranks, report: Report) -> Stepper:
    limit = report.task.memory_limit_bytes
    report.meter = start_meter(ranks.device, limit, held_bytes(recipe.model))
    report.meter.enforce()
    clock = PhaseClock(ranks) if report.task.soak else None
    return Measured(Trainer(recipe, ranks, clock), report, ranks, clock)


_STEPPERS: dict[Mode, Callable[[TrainingParts, Ranks, Report], Stepper]] = {
    Mode.MEASURE: _measuring_stepper,
    Mode.PROFILE: Profiler,
}
