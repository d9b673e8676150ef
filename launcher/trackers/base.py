"""The extension point Tracker, and the events of a study as entries for it.

A tracker works in its own process (outlet), so it may take its time, fail or hang. It gets the
kind of a failure and no line of any log: its entries may leave this machine.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from enum import Enum
from functools import singledispatchmethod
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeAlias

from autoconf_launch.autotuner.space import Record, Trial
from autoconf_launch.core import ConfigError, KnobValue

from ..events import Event, Finished, ModelProfiled, TrialFinished
from ..extension_points import find_reference, load_extension
from ..input_file import input_text
from ..request import LaunchRequest, TrackingChoice

Parameters: TypeAlias = tuple[tuple[str, KnobValue], ...]
"""Knobs by their canonical names; tuples are written out."""
Metrics: TypeAlias = tuple[tuple[str, float], ...]
"""Finite numbers; the unit is the last part of each name."""
CLOSING_GRACE_S = 20.0
"""Time that a tracker has to end after its last entry."""
TRACKERS = MappingProxyType(
    {
        "mlflow": "autoconf_launch.launcher.trackers.mlflow:MlflowTracker",
        "tensorboard": "autoconf_launch.launcher.trackers.tensorboard:TensorBoardTracker",
        "wandb": "autoconf_launch.launcher.trackers.wandb:WandbTracker",
    }
)
"""Name -> ``module:attribute``; others: the entry-point group ``autoconf_launch.tracker``."""
_UNITS = ((1e9, "b"), (1e6, "m"), (1e3, "k"))
_NOT_IN_NAMES = re.compile(r"[^\w.%+=-]+")


class Phase(str, Enum):
    """The reason for a trial's launch."""

    SEARCH = "search"
    AGAIN = "again"
    ROUND = "round"
    SOAK = "soak"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedStudy:
    """The common part of all runs of a study.

    Attributes:
        id: the same in each session of the study; the tracker's process sets it.
        name: of the model, with its size if it is known before the study.
        project: None: the tracker's own variable, else ``autoconf-launch``.
        folder: an absolute path, only for this tracker.
        api_key_file: its first line is the key; read it as late as possible, show it nowhere.
    """

    name: str
    project: str | None
    folder: str
    api_key_file: str | None = None
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedTrial:
    """A launch that is over, as a separate run.

    Attributes:
        run: model, size and parameters; usable as a file name.
        failure: its kind; None if the trial was measured.
    """

    key: str
    run: str
    number: int
    phase: Phase
    parameters: Parameters
    metrics: Metrics
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedBest:
    """The best so far, after ``finished`` launches of the study."""

    key: str
    finished: int
    run: str
    metrics: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedChoice:
    """The study's choice."""

    key: str
    run: str
    parameters: Parameters
    metrics: Metrics


Entry: TypeAlias = TrackedTrial | TrackedBest | TrackedChoice


class Tracker(Protocol):
    """Keeps the runs of one study; made by a factory that takes a :class:`TrackedStudy`.

    A factory in the table has ``requires``, the package that it imports when it is called. Any
    exception is a warning to the user, and the next entry is still sent.
    """

    @property
    def where(self) -> str:
        """Place of the runs: an address or a path."""

    @property
    def trouble(self) -> str | None:
        """A problem that the user should know, in one sentence."""

    def log_trial(self, trial: TrackedTrial) -> None:
        """Keep one launch."""

    def log_best(self, best: TrackedBest) -> None:
        """Keep the best so far with the study."""

    def log_choice(self, choice: TrackedChoice) -> None:
        """Keep the final choice with the study, which is then complete."""

    def close(self) -> None:
        """Flush everything; without a choice, the study was interrupted."""


def find_tracker(name: str) -> str:
    """``module:attribute`` of the tracker of this name; nothing of it is imported.

    Raises:
        ConfigError: no tracker has this name.
    """
    return find_reference(
        "tracker", TRACKERS, name, where="--report-to: tracker", further=("none",)
    )


class Feed:
    """Takes events in order; ``model`` and ``size`` begin the name of each run.

    ``size`` is, for example, ``5b``; None: counted by the profile run.
    """

    def __init__(self, model: str, size: str | None = None) -> None:
        self._model = model
        self._size = size
        self._finished = 0

    @property
    def study(self) -> str:
        parts = (self._model, self._size)
        return _NOT_IN_NAMES.sub("_", "_".join(part for part in parts if part))

    @singledispatchmethod
    def take(self, event: Event) -> tuple[Entry, ...]:
        """The entries of an event; mostly none."""
        return ()

    @take.register
    def _(self, event: ModelProfiled) -> tuple[Entry, ...]:
        if event.spec is not None and event.spec.parameters and self._size is None:
            self._size = size_name(event.spec.parameters)
        return ()

    @take.register
    def _(self, event: TrialFinished) -> tuple[Entry, ...]:
        self._finished += 1
        record, best = event.record, event.best
        trial = record.trial
        phase = phase_of(trial)
        done = TrackedTrial(
            key=f"{trial.name} {phase.value} {trial.attempt}",
            run=self._run(trial),
            number=trial.number,
            phase=phase,
            parameters=parameters_of(trial),
            metrics=metrics_of(record),
            failure=record.failure.kind.value if record.failure else None,
        )
        if best is None or phase is not Phase.SEARCH:
            return (done,)
        so_far = TrackedBest(
            key=f"best {self._finished}",
            finished=self._finished,
            run=self._run(best.trial),
            metrics=metrics_of(best),
        )
        return done, so_far

    @take.register
    def _(self, event: Finished) -> tuple[Entry, ...]:
        if event.winner is None:
            return ()
        run = self._run(event.winner.trial, launch=False)
        return (
            TrackedChoice(
                key=f"choice {run}",
                run=run,
                parameters=parameters_of(event.winner.trial),
                metrics=metrics_of(event.winner),
            ),
        )

    def _run(self, trial: Trial, *, launch: bool = True) -> str:
        begins = f"{self.study}_"  # the runs of a search have both in their names
        name = trial.name if trial.name.startswith(begins) else f"{begins}{trial.name}"
        phase = phase_of(trial)
        if not launch:
            return name
        if phase is Phase.ROUND:
            return f"{name}_round{trial.attempt}"
        if phase is Phase.AGAIN:
            return f"{name}{trial.attempt}"
        return f"{name}_again" if trial.attempt > 1 else name


def feed_of(request: LaunchRequest) -> Feed:
    """Named by the script, the only known name of a model before it runs."""
    name = request.script.rpartition(".")[2] if request.kind == "module" else request.script
    return Feed(Path(name).stem)


def size_name(parameters: float) -> str:
    """``5b``, ``126m``, ``12.3k``: a count of parameters as in names of models."""
    for unit, letter in _UNITS:
        if float(f"{parameters:.3g}") >= unit:
            return f"{parameters / unit:.3g}{letter}"
    return f"{parameters:.0f}"


def phase_of(trial: Trial) -> Phase:
    """The reason for its launch."""
    if trial.is_soak:
        return Phase.SOAK
    if trial.again:
        return Phase.AGAIN
    return Phase.ROUND if trial.final else Phase.SEARCH


def parameters_of(trial: Trial) -> Parameters:
    """Every knob of the candidate, and the tuning space."""
    layout = trial.candidate.layout
    knobs = ((field.name, getattr(layout, field.name)) for field in fields(layout))
    named = (*knobs, *trial.candidate.extras, ("tuning_space", trial.space))
    return tuple((name, _plain(value)) for name, value in named)


def metrics_of(record: Record) -> Metrics:
    """Predicted and measured values, as far as they are known."""
    return tuple(
        (name, float(value))
        for name, value in (
            *_predictions(record),
            *_measurements(record),
            ("wall_s", record.wall_s),
        )
        if value is not None and math.isfinite(value)
    )


def _predictions(record: Record) -> Iterable[tuple[str, float | None]]:
    prediction = record.prediction
    if prediction is None:
        return ()
    return (
        ("predicted_step_s", prediction.step_s),
        ("predicted_peak_bytes", prediction.peak_bytes),
    )


def _measurements(record: Record) -> Iterable[tuple[str, float | None]]:
    memory, measured = record.outcome.memory, record.measurement
    peak = ("peak_bytes", memory.peak_bytes if memory else None)
    if measured is None:
        return (peak,)
    return (
        ("step_s", measured.mean_step_s),
        ("throughput_samples_per_s", measured.throughput_per_s),
        ("flops_per_gpu_per_s", measured.flops_per_gpu_per_s),
        peak,
    )


def _plain(value: object) -> KnobValue:
    if isinstance(value, Enum):
        return str(value.value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return ".".join(map(str, value)) if isinstance(value, tuple) else str(value)


def check_tracking(choice: TrackingChoice) -> None:
    """Check that every tracker can be made, before anything is launched.

    Raises:
        ConfigError: no tracker has this name, its library is missing, or the file of the key has
            none.
    """
    for name in choice.trackers:
        reference = find_tracker(name)
        if name in TRACKERS:
            _require(name, reference)
    if "wandb" in choice.trackers and choice.wandb_key_file is not None:
        read_key(choice.wandb_key_file)


def read_key(path: str) -> str:
    """The key on the first line of a file.

    Raises:
        ConfigError: the file cannot be read, or its first line is empty.
    """
    try:
        lines = input_text(Path(path).expanduser()).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a text file"
        raise ConfigError(
            f"{path} for the Weights & Biases key cannot be read: {reason}; give the path of a "
            "file that has the key on its first line."
        ) from error
    if not lines or not lines[0].strip():
        raise ConfigError(f"{path} must have the Weights & Biases key on its first line.")
    return lines[0].strip()


def _require(name: str, reference: str) -> None:
    package = load_extension("tracker", reference, attrgetter("requires"))
    found = find_spec(package)
    if found is None or found.origin is None:  # a folder of that name is no library
        raise ConfigError(
            f"--report-to {name} needs the package {package}, which is not installed; "
            f"pip install 'autoconf-launch[{name}]', or remove {name}."
        )
