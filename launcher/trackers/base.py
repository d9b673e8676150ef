"""The extension point Tracker, and what it is told.

A tracker works in a process of its own (worker), so it may take its time, fail or hang. It is
told the kind of a failure and no line of any log: what it sends may leave this machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Protocol, TypeAlias

from autoconf_launch.core import KnobValue

from ..extension_points import find_reference

Parameters: TypeAlias = tuple[tuple[str, KnobValue], ...]
"""Knobs by their canonical names; tuples are written out."""

Metrics: TypeAlias = tuple[tuple[str, float], ...]
"""Finite numbers; the unit is the last part of each name."""


class Phase(str, Enum):
    """Why a trial was launched."""

    SEARCH = "search"
    AGAIN = "again"
    ROUND = "round"
    SOAK = "soak"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedStudy:
    """What all runs of a study share.

    Attributes:
        id: the same in each session that goes on with the study; the tracker's process sets it.
        name: of the model, with its size where that is known before the study.
        project: None: the tracker's own variable, else ``autoconf-launch``.
        folder: an absolute path, the tracker's alone.
        api_key_file: its first line is the key; read it as late as possible, show it nowhere.
    """

    name: str
    project: str | None
    folder: str
    api_key_file: str | None = None
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedTrial:
    """One launch that is over, a run of its own.

    Attributes:
        key: of this launch in its study.
        run: model, size and parameters; usable as a file name.
        failure: its kind; None where the trial was measured.
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
    """What the study chose."""

    key: str
    run: str
    parameters: Parameters
    metrics: Metrics


Entry: TypeAlias = TrackedTrial | TrackedBest | TrackedChoice


class Tracker(Protocol):
    """Keeps the runs of one study; made by a factory that takes a :class:`TrackedStudy`.

    A factory in the table has ``requires``, the package that it imports when it is called.
    Any exception is a warning to the user, and the next entry comes all the same.
    """

    @property
    def where(self) -> str:
        """Where the runs can be found."""

    @property
    def trouble(self) -> str | None:
        """What is not as the user may expect, in one sentence."""

    def log_trial(self, trial: TrackedTrial) -> None:
        """Keep one launch."""

    def log_best(self, best: TrackedBest) -> None:
        """Keep the best so far with the study."""

    def log_choice(self, choice: TrackedChoice) -> None:
        """Keep the final choice with the study, which is then complete."""

    def close(self) -> None:
        """Let everything reach its place; without a choice, the study was interrupted."""


CLOSING_GRACE_S = 20.0
"""Time that a tracker has to end once it has been told everything."""

WARNING = "!"
"""Start of what the tracker's process says, if the user should act on it."""


TRACKERS = MappingProxyType(
    {
        "mlflow": "autoconf_launch.launcher.trackers.mlflow:MlflowTracker",
        "tensorboard": "autoconf_launch.launcher.trackers.tensorboard:TensorBoardTracker",
        "wandb": "autoconf_launch.launcher.trackers.wandb:WandbTracker",
    }
)
"""Name -> ``module:attribute``; others: the entry-point group ``autoconf_launch.tracker``."""


def find_tracker(name: str) -> str:
    """``module:attribute`` of the tracker of this name; nothing of it is imported.

    Raises:
        ConfigError: no tracker has this name.
    """
    return find_reference(
        "tracker", TRACKERS, name, where="--report-to: tracker", further=("none",)
    )
