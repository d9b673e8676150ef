"""What happens in a tuning run, as values for the views."""

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
    """One sentence for the user; a warning where they should act.

    ``detail``: shown at the log level ``debug`` alone.
    """

    text: str
    warning: bool = False
    detail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfiled:
    """The profile run is over. ``wall_s`` is None where an earlier one was read again."""

    spec: ModelSpec | None
    wall_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceBuilt:
    """What will be searched: candidates in all, those left, and how many each rule took."""

    considered: int
    left: int
    rejected: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneBegun:
    """What a tune may take, said before its first trial.

    Attributes:
        budget_s: of the whole command, its profile run included; None: no limit.
        trials: that the search may make, the baseline included; None: as many as there are.
        at_once: trials that run side by side.
        verifies: whether a verification run follows.
        spent_s: of the tune before anybody looked.
    """

    effort: Effort = NORMAL
    budget_s: float | None = None
    trials: int | None = None
    at_once: int = 1
    verifies: bool = True
    spent_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStarted:
    """A trial was handed to the backend."""

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
    """A configuration, as the search tried it, beside the best in the rounds so far.

    Both are logarithms of time, so that 0.05 is 5 % longer; ``width`` is half an interval's.
    """

    trial: Trial
    behind: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFinished:
    """The best were measured once more in turn; the first standing is the best one's.

    ``rounds_in_time``: how many rounds there is time for, if each takes as long.
    """

    number: int
    rounds_in_time: int
    elapsed_s: float
    standings: tuple[Standing, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The study is over; ``text`` is the summary and what was found, ``winner`` was chosen.

    ``folder`` has the results; ``compared`` are the winner and what met it in the playoff, each
    at its configuration's one speed.
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
