"""The events of a tuning run, as values for the views."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from autoconf_launch.autotuner.measurement import NORMAL, Effort
from autoconf_launch.autotuner.space import Prediction, Record, Trial
from autoconf_launch.core import ModelSpec, StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A sentence for the user; a warning if they should act.

    ``detail``: shown only at the log level ``debug``.
    """

    text: str
    warning: bool = False
    detail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfiled:
    """The profile run is over. ``wall_s`` is None if an earlier one was read again."""

    spec: ModelSpec | None
    wall_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceBuilt:
    """The searched space: all candidates, the remaining ones, and how many each rule removed."""

    considered: int
    left: int
    rejected: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneBegun:
    """The limits of a tune, before its first trial.

    Attributes:
        budget_s: of the whole command, its profile run included; None: no limit.
        trials: limit of the search, the baseline included; None: no limit.
        at_once: trials that run side by side.
        verifies: whether a verification run follows.
        spent_s: duration of the tune before this event.
    """

    effort: Effort = NORMAL
    budget_s: float | None = None
    trials: int | None = None
    at_once: int = 1
    verifies: bool = True
    spent_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted:
    """A trial was submitted to the backend."""

    trial: Trial
    prediction: Prediction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeen:
    """A rank of a running trial made a step."""

    trial: Trial
    step: StepRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFinished:
    """A trial has its outcome. ``resumed``: from the journal or adopted, not run now."""

    record: Record
    best: Record | None
    elapsed_s: float
    resumed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A configuration of the search, compared with the best in the rounds so far.

    Both numbers are logarithms of time, so that 0.05 is 5 % longer; ``width`` is half an interval.
    """

    trial: Trial
    behind: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFinished:
    """The best were measured once more in turn; the first standing is the best one's."""

    number: int
    elapsed_s: float
    standings: tuple[Standing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The study is over; ``text`` is the summary, ``winner`` the choice.

    ``folder`` has the results; ``compared`` are the winner and its rivals in the playoff, each
    with its configuration's one speed.
    """

    text: str
    winner: Record | None = None
    folder: Path | None = None
    compared: tuple[Record, ...] = ()


Event: TypeAlias = (
    Note
    | ModelProfiled
    | SpaceBuilt
    | TuneBegun
    | TrialStarted
    | StepSeen
    | TrialFinished
    | RoundFinished
    | Finished
)
Listener: TypeAlias = Callable[[Event], None]
