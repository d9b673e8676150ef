"""From a model and a configuration to the engine that a training script holds.

The launcher asks for its mode. A configuration is a mapping or a file; the launcher writes strict
JSON for its ranks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from autoconf_launch.core import (
    JOB_VARIABLE,
    AppliedStrategy,
    ConfigError,
    Layout,
    Mode,
    RawConfig,
    ResolvedConfig,
    real_time,
    resolve,
)

from ..model import (
    Batch,
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
from .checkpoints import Trained
from .measure import Measured
from .trainer import Trainer

ConfigSource: TypeAlias = str | os.PathLike[str] | Mapping[str, Any] | RawConfig | ResolvedConfig
_USAGE_ERROR = 2
_AFTER_RANK_0_S = 2.0


class Stepper(Protocol):
    """Takes optimizer steps in a mode of a rank."""

    @property
    def module(self) -> nn.Module:
        """The model as the script may look at it."""

    @property
    def applied(self) -> AppliedStrategy | None:
        """The strategy that was seen to run."""

    @property
    def trained(self) -> Trained | None:
        """The state that a checkpoint holds; None if nothing is trained."""

    def step(self, batch: Batch) -> Tensor:
        """Make an optimizer step and return its loss."""

    def evaluate(self, batch: Batch) -> Tensor:
        """The loss without an update."""


class Engine:
    """A model that trains as its configuration says; made by ``initialize``."""

    def __init__(self, stepper: Stepper, ranks: Ranks, layout: Layout) -> None:
        self._stepper = stepper
        self._ranks = ranks
        self._layout = layout

    def step(self, batch: Batch) -> Tensor:
        """Train on this rank's share of one optimizer step.

        Args:
            batch: a tensor, or tuples, lists and dicts of tensors, whose first dimension is
                ``samples_per_step``: the part ``share`` of the global batch. It is moved to the
                device by micro-batches.

        Returns:
            The mean loss over the global batch, the same on all ranks, before the update: a
            tensor without dimensions on the device. Reading its value waits for the device.

        Raises:
            ConfigError: the batch has another number of samples.
        """
        return self._stepper.step(batch)

    def evaluate(self, batch: Batch) -> Tensor:
        """The mean loss over a global batch, in evaluation mode, without an update.

        To be called on all ranks, each with its ``share``, as ``step`` is.

        Raises:
            ConfigError: the batch has another number of samples.
        """
        return self._stepper.evaluate(batch)

    def save(self, folder: str | os.PathLike[str], *, consolidated: bool = False) -> None:
        """Write weights, optimizer, schedule and loss scale; to be called on all ranks.

        ``consolidated`` writes only whole weights, by rank 0: what ``from_pretrained`` loads
        for a model of transformers, ``pytorch_model.bin`` for another.
        """
        trained = self._stepper.trained
        if trained is not None:
            (trained.save_weights if consolidated else trained.save)(folder)

    def load(self, folder: str | os.PathLike[str]) -> None:
        """Resume from a checkpoint of ``save``, under any layout; call it on all ranks.

        The configuration's own learning rate and schedule count; the schedule goes on from the
        step that was saved.

        Raises:
            ConfigError: there is no checkpoint, or it is of another model or optimizer.
        """
        if (trained := self._stepper.trained) is not None:
            trained.load(folder)

    @property
    def samples_per_step(self) -> int:
        """Samples of this rank in one optimizer step: its micro-batch times accumulation."""
        return self._layout.samples_of(self._layout.data_rank(self._ranks.rank))

    @property
    def global_batch(self) -> int:
        """Samples of all ranks in one optimizer step."""
        return self._layout.global_batch

    @property
    def share(self) -> slice:
        """The samples of each global batch that this rank loads: ``samples[engine.share]``.

        Ranks that train one copy of the model together load the same.
        """
        return self._layout.share(self._layout.data_rank(self._ranks.rank))

    @property
    def module(self) -> nn.Module:
        """The model, wrapped if the layout needs it."""
        return self._stepper.module

    @property
    def device(self) -> torch.device:
        """Device on which this rank computes."""
        return self._ranks.device

    @property
    def rank(self) -> int:
        """This rank's number, from 0."""
        return self._ranks.rank

    @property
    def world_size(self) -> int:
        """Ranks of the launch."""
        return self._ranks.world_size

    @property
    def applied(self) -> AppliedStrategy | None:
        """The strategy found by looking at the live model; None before the first step."""
        return self._stepper.applied


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
        stepper = _STEPPERS[task.mode](recipe, ranks, report)
        CompileTime(task).watch()  # a compiled model has loaded the compiler by now
        return Engine(stepper, ranks, recipe.config.layout)


@contextmanager
def _say_in_one_line() -> Iterator[None]:
    """End a rank of our launcher with its configuration's error, without a traceback.

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
        if source.layout.world_size != world_size:
            raise ConfigError(
                f"the configuration is for {source.layout.world_size} ranks, but {world_size} "
                f"run; resolve it with world_size={world_size}."
            )
        return source
    if isinstance(source, (str, os.PathLike)):
        source = _load(Path(source))
    raw = source if isinstance(source, RawConfig) else RawConfig(source)
    return resolve(raw, world_size=world_size)


def _load(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        document = json.loads(text, object_pairs_hook=_unique, parse_constant=_constant)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason}.") from error
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
