"""When a search is over though there are candidates left. Not: how long a single trial runs."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from . import stop
from .certificate import Certificate, certify
from .noise import NoiseTally
from .objective import Objective
from .pool import Pool
from .stop import StopReason
from .table import CandidateTable, PredictionTable
from .trial import Record

FEWEST_TRIALS = 4
"""Before so many nothing is good enough. Over recorded landscapes later stops gained nothing;
after one trial 2 of the 4 certificates of bigscience_v100 were false."""


def is_good_enough(found: Certificate | None, limit: float | None, trials: int) -> bool:
    """Whether no untried candidate is worth a trial, in a live search and in a replayed one.

    Args:
        found: what could be gained; None where nothing can be said.
        limit: possible gain, a share, below which the search ends; None: it never does.
        trials: that came back, of whatever kind.
    """
    if found is None or limit is None or trials < FEWEST_TRIALS:
        return False
    return bool(found.untried) and found.possible_gain < limit


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """What a search may cost; None where there is no limit.

    Attributes:
        seconds: after which nothing new is started, nor what may not have ended by then.
        whole_s: the budget that ``seconds`` are the search's share of; None: there is no more.
        trials: the same, the baseline included.
        good_enough: possible gain of the untried ones, a share, below which the search ends.
    """

    seconds: float | None = None
    whole_s: float | None = None
    trials: int | None = None
    good_enough: float | None = None

    def is_late(self, elapsed_s: float) -> bool:
        """Whether nothing at all may be started."""
        return self.seconds is not None and elapsed_s >= self.seconds

    def left_s(self, elapsed_s: float) -> float:
        """Seconds that launches may still take."""
        return math.inf if self.seconds is None else self.seconds - elapsed_s

    def no_time(self, elapsed_s: float, bounds_s: Sequence[float]) -> StopReason:
        """That what is left to try may take longer than there is time for."""
        left_s = max(0.0, self.left_s(elapsed_s))
        return stop.no_time(self._time, left_s, min(bounds_s), len(bounds_s))

    def over(self, records: Sequence[Record]) -> StopReason:
        """That time is up."""
        return stop.budget_spent(
            self._time, measured=any(record.measurement for record in records)
        )

    @property
    def _time(self) -> str:
        whole = f" ({self.whole_s:.0f} s with rounds and soak)" if self.whole_s else ""
        return f"{self.seconds:.0f} s{whole}"

    def spent(self, elapsed_s: float, records: Sequence[Record]) -> StopReason | None:
        """Why nothing more may be started."""
        measured = any(record.measurement for record in records)
        if self.is_late(elapsed_s):
            return self.over(records)
        if self.trials is not None and len(records) >= self.trials:
            trials = "1 trial" if self.trials == 1 else f"{self.trials} trials"
            return stop.budget_spent(trials, measured=measured)
        return None

    def room(self, told: int, running: int) -> int:
        """Trials that may be started beside those that came back and those that run."""
        return sys.maxsize if self.trials is None else max(0, self.trials - told - running)


class Prospects:
    """What the candidates that were not tried could still gain, asked as often as one likes."""

    def __init__(
        self,
        table: CandidateTable,
        predictions: PredictionTable | None,
        objective: Objective,
        limits: SearchLimits,
    ) -> None:
        self._table, self._predictions = table, predictions
        self._objective, self._limits = objective, limits
        self._found: Certificate | None = None
        self.forget()

    def forget(self) -> None:
        """Records that were told are others now."""
        self._at = -1
        self._tally = NoiseTally()

    def certificate(
        self, pool: Pool, small_too: bool, records: Sequence[Record]
    ) -> Certificate | None:
        """Of the rows that are open; None where nothing was predicted or measured."""
        if self._predictions is None:
            return None
        if self._at != len(records):
            self._at = len(records)
            rows = pool.open_rows(small_too=small_too)
            self._found = certify(
                self._table.take(rows),
                self._predictions.take(rows),
                records,
                self._objective,
                curves=pool.gains_of(rows, self._tally.of(records)),
            )
        return self._found

    def good_enough(
        self, pool: Pool, small_too: bool, records: Sequence[Record]
    ) -> StopReason | None:
        """That no untried candidate is worth a trial."""
        limit = self._limits.good_enough
        if limit is None or len(records) < FEWEST_TRIALS:
            return None
        found = self.certificate(pool, small_too, records)
        if found is None or not is_good_enough(found, limit, len(records)):
            return None
        return stop.good_enough(found.sentence)
