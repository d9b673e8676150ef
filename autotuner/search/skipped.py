"""How many candidates were not tried, and why. Not: what they could gain (certificate)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ..strategies import KNEE
from .optimality_bound import Certificate
from .pool import ABOVE_WHAT_RAN, BEYOND_THE_KNEE, NEEDS_MORE_MEMORY, SMALLER_MICRO_BATCH
from .stop import StopKind, StopReason
from .study import Study

_Reason: TypeAlias = tuple[int, str]
"""How many, and why."""
_INFERRED = (NEEDS_MORE_MEMORY, ABOVE_WHAT_RAN, SMALLER_MICRO_BATCH, BEYOND_THE_KNEE)
_LEVELLED_OFF = f"throughput has levelled off (less than {100 * KNEE:.0f} % expected)"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """Candidates without a trial.

    Attributes:
        candidates: all that the rules allow, beside the user's configuration.
        needs_more_memory: surely more than one that ran out of it.
        above_what_ran: with a larger micro-batch than came when more was asked for.
        smaller: with a smaller micro-batch than the user's, which fits in memory.
        open: could still be tried.
        beyond_the_knee: of the open ones those that curves of throughput speak against.
    """

    candidates: int
    needs_more_memory: int
    above_what_ran: int
    smaller: int
    open: int
    beyond_the_knee: int

    @property
    def sentence(self) -> str:
        """On all of them, where nothing else is said of the open ones."""
        found = _skipped(
            f" of {self.candidates} configuration{'s' * (self.candidates > 1)}",
            (
                *self._closed,
                (self.beyond_the_knee, _LEVELLED_OFF),
                (self.open - self.beyond_the_knee, "left when the search ended"),
            ),
        )
        return found or "Every configuration was tried."

    @property
    def beside(self) -> str:
        """On the others, beside a sentence on the open ones; empty where there are none."""
        return _skipped(" more", self._closed)

    @property
    def knee(self) -> str:
        """Why open ones were left out though they could gain something; empty if not for that."""
        count = self.beyond_the_knee
        return f"{count} skipped: {_LEVELLED_OFF}." if count else ""

    @property
    def _closed(self) -> tuple[_Reason, ...]:
        above = "micro-batch larger than the script reached (too few samples, or its own limit)"
        return (
            (self.needs_more_memory, "more memory needed than by one that ran out of it"),
            (self.above_what_ran, above),
            (self.smaller, "micro-batch smaller than yours, which fits"),
        )


def left_out(study: Study) -> LeftOut:
    """Of a study as far as it has got."""
    counts = dict(study.rejected)
    full, above, smaller, beyond = (counts.pop(name, 0) for name in _INFERRED)
    by_rules = sum(counts.values()) - sum(count for _, count in study.space.rejected)
    table = study.space.table
    known = [*(record.trial for record in study.records), *study.pending]
    tried = {int(row) for trial in known for row in table.find(trial.candidate)}
    candidates = len(table) - by_rules
    return LeftOut(
        candidates=candidates,
        needs_more_memory=full,
        above_what_ran=above,
        smaller=smaller,
        open=candidates - len(tried) - full - above - smaller,
        beyond_the_knee=beyond,
    )


def left_out_text(study: Study, found: Certificate | None, stop: StopReason | None) -> str:
    """For people, beside the certificate; empty where that says it all."""
    left = left_out(study)
    if found is None or not found.untried:
        return left.sentence
    explored = stop is not None and stop.kind is StopKind.EXPLORED
    doubtful = explored and found.possible_gain > KNEE
    why = (left.knee, _patience(study, left)) if doubtful else ()
    return " ".join(filter(None, (*why, left.beside)))


def _patience(study: Study, left: LeftOut) -> str:
    """Why a search was over though there were candidates that curves do not speak against."""
    if left.open == left.beyond_the_knee:
        return ""
    patience = study.settings.tuner_early_stopping
    if any(stage.since_best >= patience for stage in study.stages):
        return (
            f"The search ended after {patience} trials in a row that were no better "
            "(tuner_early_stopping)."
        )
    alone = "Further knobs were tried with the best micro-batches alone."
    return "" if study.space.usual_C.all() else alone


def _skipped(of: str, reasons: Sequence[_Reason]) -> str:
    """Empty where no reason has any."""
    found = [(count, why) for count, why in reasons if count]
    if not found:
        return ""
    why = "; ".join(f"{why}: {count}" for count, why in found)
    if len(found) == 1:
        why = found[0][1]
    return f"{sum(count for count, _ in found)}{of} skipped: {why}."
