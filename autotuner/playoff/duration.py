"""Time that a tune still takes, as a range."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..measurement import FEWEST_TIMED, NORMAL, Effort
from ..search import FEWEST_TRIALS
from ..space import Prediction

START_S = (0.3, 5.0)
"""Seconds from a launch to its first step, if none was seen: forked, or a new interpreter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """Seconds between which something is expected to end."""

    low_s: float
    high_s: float

    def __add__(self, other: TimeRange) -> TimeRange:
        return TimeRange(low_s=self.low_s + other.low_s, high_s=self.high_s + other.high_s)

    def within(self, most_s: float) -> TimeRange:
        """The range if the work is ended after ``most_s`` seconds."""
        return TimeRange(low_s=min(self.low_s, most_s), high_s=min(self.high_s, most_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOutlook:
    """State of a tune.

    Attributes:
        trial_s: duration of a trial that has not run yet.
        step_s: duration of an optimizer step of the best, in seconds.
        trials: number of trials that have ended.
        left: number of candidates that may still be tried.
        spent_s: duration of the tune so far.
        at_once: number of trials that run side by side.
        search_s: duration of the search; None until it has ended.
        steps_left: steps that the verification run still makes; None until it has begun.
    """

    trial_s: TimeRange
    step_s: float
    trials: int
    left: int
    spent_s: float = 0.0
    at_once: int = 1
    effort: Effort = NORMAL
    verifies: bool = True
    search_s: float | None = None
    steps_left: int | None = None


def playoff_s(search_s: float, effort: Effort = NORMAL) -> float:
    """Longest duration of the rounds after a search of ``search_s`` seconds."""
    return max(effort.playoff_share * search_s, min(effort.playoff_s, search_s))


def time_left(seen: TuneOutlook) -> TimeRange:
    """Time until the tune is over: a search may stop early, or try all candidates."""
    if seen.steps_left is not None:
        return verification_range(seen, seen.spent_s)
    if seen.search_s is not None:
        most_s = seen.search_s + playoff_s(seen.search_s, seen.effort) - seen.spent_s
        rounds = TimeRange(low_s=0.0, high_s=max(0.0, most_s))
        return rounds + verification_range(seen, seen.spent_s)
    fewest = min(seen.left, max(0, FEWEST_TRIALS - seen.trials))
    search = TimeRange(
        low_s=_together_s(fewest, seen.trial_s.low_s, seen.at_once),
        high_s=_together_s(seen.left, seen.trial_s.high_s, seen.at_once),
    )
    whole = TimeRange(low_s=seen.spent_s + search.low_s, high_s=seen.spent_s + search.high_s)
    rounds = TimeRange(low_s=0.0, high_s=playoff_s(whole.high_s, seen.effort))
    return search + rounds + verification_range(seen, (whole + rounds).high_s)


def verification_range(seen: TuneOutlook, elapsed_s: float) -> TimeRange:
    """Rest of the verification run of a tune that took ``elapsed_s`` seconds before it."""
    effort = seen.effort
    if not seen.verifies:
        return TimeRange(low_s=0.0, high_s=0.0)
    most_s = max(effort.verification_s, effort.verification_share * elapsed_s)
    steps = effort.verification_steps if seen.steps_left is None else seen.steps_left
    steps_s = steps * seen.step_s
    return TimeRange(
        low_s=min(effort.verification_s, steps_s),
        high_s=min(most_s, steps_s) + seen.trial_s.high_s,
    )


def predicted_outlook(
    predictions: Sequence[Prediction | None],
    effort: Effort,
    *,
    profile_s: float | None = None,
    at_once: int = 1,
    verifies: bool = True,
) -> TuneOutlook | None:
    """The outlook from predictions only, before any trial; None if a time is not predicted.

    Args:
        predictions: predictions of the baseline and of all candidates.
        effort: effort of the tune.
        profile_s: duration of the profile run, whose start is not faster than a trial's.
        at_once: trials that run side by side.
        verifies: True if there will be a verification run.
    """
    steps_s = [p.step_s for p in predictions if p is not None and p.step_s]
    if not steps_s or len(steps_s) < len(predictions):
        return None
    band = max((p.band or 0.0 for p in predictions if p), default=0.0)
    start_s = max(START_S[0], profile_s or START_S[1])
    mean_s = (1.0 + band) * sum(steps_s) / len(steps_s)
    return TuneOutlook(
        trial_s=TimeRange(
            low_s=START_S[0] + (1 + FEWEST_TIMED) * min(steps_s),
            high_s=start_s + effort.most_steps * mean_s,
        ),
        step_s=min(steps_s),
        trials=0,
        left=len(predictions),
        at_once=at_once,
        effort=effort,
        verifies=verifies,
    )


def _together_s(count: int, each_s: float, at_once: int) -> float:
    return math.ceil(count / max(1, at_once)) * each_s
