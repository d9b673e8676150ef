"""When a search is over though there are candidates left.

Of a step: that of the nearest measured candidate, times as much more as the planner says of the
two with its band. Without predictions, as its micro-batch and its accumulation are larger, with
room for steps that grow faster than their samples. Of a launch: the longest start of the latest
ones, and its steps.
Shapes: C = candidates of a table.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from autoconf_launch.core import Candidate, plural

from ..space import (
    CandidateTable,
    Floats,
    Measurement,
    PredictionTable,
    Record,
    longer_budget,
)
from . import stop
from .optimality_bound import OptimalityBound
from .stop import StopReason

FEWEST_TRIALS = 4
"""Before so many nothing is good enough. Over recorded landscapes later stops gained nothing;
after one trial 2 of the 4 certificates of bigscience_v100 were false."""


def is_gain_small(found: OptimalityBound | None, limit: float | None, trials: int) -> bool:
    """Whether no remaining candidate is worth a trial, in a live search and in a replayed one.

    Args:
        found: what could be gained; None where nothing can be said.
        limit: possible gain, a share, below which the search ends; None: it never does.
        trials: that came back, of whatever kind.
    """
    if found is None or limit is None or trials < FEWEST_TRIALS:
        return False
    return bool(found.remaining) and found.possible_gain < limit


def is_comparison(records: Sequence[Record]) -> bool:
    """Whether anything was measured beside the baseline."""
    return any(record.measurement and record.trial.number for record in records)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """What a search may cost; None where there is no limit.

    Attributes:
        seconds: end of the search, for what may end by then, once two configurations can be
            compared; playoff and verification run follow.
        whole_s: end of everything, on the same clock; None: ``seconds``.
        ending_s: the part of it at its end in which nothing may run.
        trials: most trials, the baseline included.
        least_gain: possible gain of the remaining ones, a share, below which the search ends.
    """

    seconds: float | None = None
    whole_s: float | None = None
    ending_s: float = 0.0
    trials: int | None = None
    least_gain: float | None = None

    def left_s(self, elapsed_s: float, records: Sequence[Record]) -> float:
        """Seconds that launches may still take, after these trials."""
        return self._end_s(records) - elapsed_s

    def _end_s(self, records: Sequence[Record]) -> float:
        """The search's end; that of everything until two configurations can be compared."""
        if self.seconds is None:
            return math.inf
        return self.seconds if is_comparison(records) else self._last_s(self.seconds)

    def _last_s(self, seconds: float) -> float:
        """When the last launch must have ended."""
        return seconds if self.whole_s is None else self.whole_s - self.ending_s

    def trials_in_time(
        self, trial_s: float, *, spent_s: float, most: int, at_once: int = 1
    ) -> int:
        """How many trials of ``trial_s`` seconds can be started, the baseline first.

        Args:
            trial_s: of each.
            spent_s: seconds so far.
            most: trials to make, the baseline included.
            at_once: trials that run side by side, after the baseline.
        """
        made, now_s = 0, spent_s
        while made < most and self.seconds is not None:
            until_s = self.seconds if made > 1 else self._last_s(self.seconds)
            if now_s + (MARGIN if made > 1 else 1.0) * trial_s > until_s:
                return made
            made, now_s = min(most, made + (at_once if made else 1)), now_s + trial_s
        return most

    def no_time(
        self, elapsed_s: float, records: Sequence[Record], bounds_s: Sequence[float]
    ) -> StopReason:
        """The stop where what is left to try may take longer than there is time for."""
        end_s = self._end_s(records)
        whole_s = end_s if self.whole_s is None else self.whole_s
        no_room = stop.NoRoom(
            left_s=max(0.0, whole_s - elapsed_s),
            kept_s=max(0.0, whole_s - self.ending_s - end_s),
            shortest_s=min(bounds_s) + self.ending_s,
            candidates=len(bounds_s),
        )
        return stop.no_time(f"{whole_s:.0f} s", no_room)

    def over(self, records: Sequence[Record], cut: str = "") -> StopReason:
        """The stop where time is up; ``cut``: how the last launch ended."""
        measured = any(record.measurement for record in records)
        longer = longer_budget(_ENOUGH * (self.whole_s or self.seconds or 0.0))
        error = (
            f"The budget of {self._time(records)} was spent before anything could be measured"
            f"{f': the trial was {cut}' if cut else ''}. Allow more, such as --budget {longer}."
        )
        return stop.budget_spent(self._time(records), measured=measured, error=error)

    def _time(self, records: Sequence[Record]) -> str:
        end_s, whole_s = self._end_s(records), self.whole_s
        if whole_s is None or end_s == self._last_s(end_s):
            return f"{whole_s or end_s:.0f} s"
        return f"{end_s:.0f} s for trials ({whole_s:.0f} s in all)"

    def stop_reason(self, elapsed_s: float, records: Sequence[Record]) -> StopReason | None:
        """Why nothing more may be started."""
        measured = any(record.measurement for record in records)
        if self.left_s(elapsed_s, records) <= 0.0:
            return self.over(records)
        if self.trials is not None and len(records) >= self.trials:
            return stop.budget_spent(plural(self.trials, "trial"), measured=measured)
        return None

    def room(self, told: int, running: int) -> int:
        """Trials that may be started beside those that came back and those that run."""
        return sys.maxsize if self.trials is None else max(0, self.trials - told - running)


_ENOUGH = 3.0
"""Times a budget in which nothing could be measured that the next one should be."""
MARGIN = 1.25
"""Bound over a measured step: launches of one configuration were seen to differ by 12 to 25 %."""
_GROWTH = 1.2
"""Power of the micro-batch: 256 times the samples took up to 800 times as long, once caches were
full."""
_OTHER_STRUCTURE = 2.0
"""Another ZeRO stage or another value of a further knob, of which nothing is predicted."""
_LATEST = 5


class LaunchBounds:
    """Upper bounds on the duration of a launch of each row, as records come."""

    def __init__(
        self, table: CandidateTable, predictions: PredictionTable | None, *, steps: int
    ) -> None:
        self._table, self._predictions, self._steps = table, predictions, steps
        self._nearest_C = np.full(len(table), np.inf)
        self._step_s_C = np.full(len(table), np.inf)
        self._band = (predictions.band if predictions is not None else None) or 0.0
        self._latest: deque[Record] = deque(maxlen=_LATEST)
        self._is_comparison = False

    def add(self, record: Record) -> None:
        """Take a trial or a repeat."""
        if record.measurement is None:
            return
        growth_C = _growth(self._table, record.trial.candidate)
        known = self._predictions
        found_C = growth_C if known is None else _predicted_growth(growth_C, known, record)
        nearer_C = growth_C < self._nearest_C
        step_s_C = MARGIN * record.measurement.mean_step_s * found_C
        self._nearest_C = np.where(nearer_C, growth_C, self._nearest_C)
        self._step_s_C = np.where(nearer_C, step_s_C, self._step_s_C)
        self._latest.append(record)
        self._is_comparison |= is_comparison([record])

    @property
    def seconds_C(self) -> Floats:
        """Upper bounds of the rows.

        Until two configurations can be compared, the expected duration: if a launch is then cut at
        the budget's end, the time had no other use.
        """
        start_s, steps_s_C = start_bound_s(self._latest), self._steps * self._step_s_C
        if self._is_comparison:
            return np.asarray(start_s + steps_s_C)
        return np.asarray((start_s + steps_s_C / (1.0 + self._band)) / MARGIN)


def start_bound_s(records: Sequence[Record]) -> float:
    """Bound on a launch's time beside its steps; 0 where no end of a launch was seen."""
    starts_s = (
        record.wall_s - record.measurement.mean_step_s * steps_made(record.measurement)
        for record in reversed(records)
        if record.measurement and record.wall_s
    )
    return MARGIN * max([0.0, *islice(starts_s, _LATEST)])


def steps_made(measured: Measurement) -> int:
    """Steps that a launch made, with those that do not count."""
    return (measured.first_step or 1) - 1 + len(measured.step_s)


def _growth(table: CandidateTable, measured: Candidate) -> Floats:
    """How many times as long a step may be, if nothing but its samples tell."""
    layout = measured.layout
    larger_C = np.maximum(1.0, table["micro_batch"] / layout.micro_batch) ** _GROWTH
    growth_C = np.maximum(1.0, larger_C * table["accumulation"] / layout.accumulation)
    alike_C = table.matches(measured, but=("micro_batch", "accumulation"))
    return np.asarray(np.where(alike_C, growth_C, _OTHER_STRUCTURE * growth_C))


def _predicted_growth(growth_C: Floats, predictions: PredictionTable, record: Record) -> Floats:
    """How many times as long a step may be, as the planner says it, where it says something."""
    predicted_s = record.prediction.step_s if record.prediction else None
    if not predicted_s:
        return growth_C
    ratio_C = predictions.step_s_C / predicted_s * (1.0 + (predictions.band or 0.0))
    return np.where(np.isnan(ratio_C), growth_C, ratio_C)
