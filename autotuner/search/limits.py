"""The end of a search that has candidates left, and upper bounds on the duration of launches.

Bound of a step: the nearest measured step, scaled by the predicted ratio plus the error band; if
there is no prediction, by the larger micro-batch and accumulation, with room for steps that grow
faster than their samples. Bound of a launch: the longest start of the latest launches, plus its
steps.
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
from .stop import NoRoom, StopKind, StopReason

FEWEST_TRIALS = 4
"""Trials before a small gain may end a search. Over recorded landscapes later stops gained
nothing; after one trial 2 of the 4 certificates of bigscience_v100 were false."""
_ENOUGH = 3.0
"""Next budget to suggest over a budget in which nothing could be measured."""
MARGIN = 1.25
"""Bound over a measured step: launches of one configuration were seen to differ by 12 to 25 %."""
_GROWTH = 1.2
"""Power of the micro-batch: 256 times the samples took up to 800 times as long, once caches were
full."""
_OTHER_STRUCTURE = 2.0
"""Factor for a different ZeRO stage or value of another knob, without a prediction."""
_LATEST = 5


def is_gain_small(found: OptimalityBound | None, limit: float | None, trials: int) -> bool:
    """True if no remaining candidate is worth a trial, in a live or a replayed search.

    Args:
        found: bound on the possible gain; None if it is not known.
        limit: possible gain, a share, below which the search ends; None: it never does.
        trials: number of trials so far, failed ones included.
    """
    if found is None or limit is None or trials < FEWEST_TRIALS:
        return False
    return bool(found.remaining) and found.possible_gain < limit


def is_comparison(records: Sequence[Record]) -> bool:
    """True if anything was measured besides the baseline."""
    return any(record.measurement and record.trial.number for record in records)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """Limits on the cost of a search; a limit of None does not apply.

    Attributes:
        seconds: end of the search, for launches that may end by then, once two configurations
            can be compared; playoff and verification run follow.
        whole_s: end of everything, on the same clock; None: ``seconds``.
        ending_s: time before that end in which nothing may run.
        trials: largest number of trials, the baseline included.
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
        """End of the search; until two configurations can be compared, end of everything."""
        if self.seconds is None:
            return math.inf
        return self.seconds if is_comparison(records) else self._last_s(self.seconds)

    def _last_s(self, seconds: float) -> float:
        """Time by which the last launch must have ended."""
        return seconds if self.whole_s is None else self.whole_s - self.ending_s

    def trials_in_time(
        self, trial_s: float, *, spent_s: float, most: int, at_once: int = 1
    ) -> int:
        """Number of trials of ``trial_s`` seconds that can be started, the baseline first.

        Args:
            trial_s: duration of each trial.
            spent_s: seconds so far.
            most: number of trials to make, the baseline included.
            at_once: number of trials that run side by side, after the baseline.
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
        """Stop reason: each remaining candidate may take longer than the time that is left."""
        end_s = self._end_s(records)
        whole_s = end_s if self.whole_s is None else self.whole_s
        no_room = NoRoom(
            left_s=max(0.0, whole_s - elapsed_s),
            kept_s=max(0.0, whole_s - self.ending_s - end_s),
            shortest_s=min(bounds_s) + self.ending_s,
            candidates=len(bounds_s),
        )
        return StopReason(kind=StopKind.BUDGET, budget=f"{whole_s:.0f} s", no_room=no_room)

    def over(self, records: Sequence[Record], cut: str = "") -> StopReason:
        """Stop reason: time is up; ``cut``: how the last launch ended."""
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
        """The reason why no more trials may start; None if they may."""
        measured = any(record.measurement for record in records)
        if self.left_s(elapsed_s, records) <= 0.0:
            return self.over(records)
        if self.trials is not None and len(records) >= self.trials:
            return stop.budget_spent(plural(self.trials, "trial"), measured=measured)
        return None

    def room(self, told: int, running: int) -> int:
        """Number of trials that may still start, besides ended and running ones."""
        return sys.maxsize if self.trials is None else max(0, self.trials - told - running)


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
    """Bound on a launch's time besides its steps; 0 if no launch was measured to its end."""
    starts_s = (
        record.wall_s - record.measurement.mean_step_s * steps_made(record.measurement)
        for record in reversed(records)
        if record.measurement and record.wall_s
    )
    return MARGIN * max([0.0, *islice(starts_s, _LATEST)])


def steps_made(measured: Measurement) -> int:
    """Number of steps that a launch made, warm-up included."""
    return (measured.first_step or 1) - 1 + len(measured.step_s)


def _growth(table: CandidateTable, measured: Candidate) -> Floats:
    """Bound on each row's step over the measured step, from its samples only."""
    layout = measured.layout
    larger_C = np.maximum(1.0, table["micro_batch"] / layout.micro_batch) ** _GROWTH
    growth_C = np.maximum(1.0, larger_C * table["accumulation"] / layout.accumulation)
    alike_C = table.matches(measured, but=("micro_batch", "accumulation"))
    return np.asarray(np.where(alike_C, growth_C, _OTHER_STRUCTURE * growth_C))


def _predicted_growth(growth_C: Floats, predictions: PredictionTable, record: Record) -> Floats:
    """Predicted step of each row over the measured one, plus the band; else ``growth_C``."""
    predicted_s = record.prediction.step_s if record.prediction else None
    if not predicted_s:
        return growth_C
    ratio_C = predictions.step_s_C / predicted_s * (1.0 + (predictions.band or 0.0))
    return np.where(np.isnan(ratio_C), growth_C, ratio_C)
