"""From a model and a configuration to an engine, in the mode that the launcher asks for.

A configuration is a mapping or a file; the launcher writes strict JSON for its ranks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, TypeAlias

from autoconf_launch.core import (
    JOB_VARIABLE,
    ConfigError,
    Mode,
    RawConfig,
    ResolvedConfig,
    real_time,
    resolve,
)

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
from .engine import Engine, Stepper
from .measure import Measured
from .trainer import Trainer

ConfigSource: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | RawConfig | ResolvedConfig
_USAGE_ERROR = 2
_AFTER_RANK_0_S = 2.0


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


def read_engine_config(source: ConfigSource, *, world_size: int) -> ResolvedConfig:
    """The configuration of a JSON file, a mapping or a document for ``world_size`` ranks.

    Raises:
        ConfigError: the file is missing or no strict JSON, or its values cannot be applied.
    """
    if isinstance(source, ResolvedConfig):
        return _for_this_world(source, world_size)
    if isinstance(source, (str, os.PathLike)):
        source = _load(Path(source))
    raw = source if isinstance(source, RawConfig) else RawConfig(source)
    return resolve(raw, world_size=world_size)


def _for_this_world(config: ResolvedConfig, world_size: int) -> ResolvedConfig:
    if config.layout.world_size != world_size:
        raise ConfigError(
            f"the configuration is for {config.layout.world_size} ranks, but {world_size} run; "
            f"resolve it with world_size={world_size}."
        )
    return config


def _load(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason}.") from error
    return _parse(path, text)


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_constant)
    except ValueError as error:
        raise ConfigError(
            f"{path} is not strict JSON: {error}. Fix it, or start the script with "
            "autoconf-launch, which reads hjson and YAML too and hands its ranks JSON."
        ) from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} holds {text.strip()[:20]!r}, but must be one object ({{…}}).")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    section = dict(pairs)
    if len(section) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key '{twice}' is given twice in one section")
    return section


def _constant(name: str) -> float:
    """Infinity, which the launcher's files may have as well; NaN is refused."""
    if name == "NaN":
        raise ValueError(f"{name} is not a JSON value")
    return float(name)
