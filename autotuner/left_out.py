"""How many candidates were not tried, and why. Not: what they could gain (certificate)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from .bracket import KNEE
from .certificate import Certificate
from .pool import ABOVE_WHAT_RAN, BEYOND_THE_KNEE, NEEDS_MORE_MEMORY, SMALLER_MICRO_BATCH
from .stop import StopKind, StopReason
from .study import Study

_Reason: TypeAlias = tuple[int, str, str]
"""How many, and what is said of several and of one."""
_INFERRED = (NEEDS_MORE_MEMORY, ABOVE_WHAT_RAN, SMALLER_MICRO_BATCH, BEYOND_THE_KNEE)
_CURVES = "curves of throughput through the trials, noise aside, promise no more than"
_KNEE = f"{100 * KNEE:.0f} %"


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
        where = f"where {_CURVES} {_KNEE}"
        left = "left when the search ended"
        found = _not_tried(
            f"of {self.candidates} candidate{'s' * (self.candidates > 1)}",
            (
                *self._closed,
                (self.beyond_the_knee, f"lie {where}", f"lies {where}"),
                (self.open - self.beyond_the_knee, f"were {left}", f"was {left}"),
            ),
        )
        return found or "Every candidate was tried."

    @property
    def beside(self) -> str:
        """On the others, beside a sentence on the open ones; empty where there are none."""
        return _not_tried("more", self._closed)

    @property
    def knee(self) -> str:
        """Why open ones were left out though they could gain something; empty if not for that."""
        count = self.beyond_the_knee
        who = f"{count} of the untried {'were' if count > 1 else 'was'}"
        if count == self.open:
            who = f"The {count} untried were" if count > 1 else "The untried one was"
        return f"{who} left out, as {_CURVES} {_KNEE} there." if count else ""

    @property
    def _closed(self) -> tuple[_Reason, ...]:
        more = "more memory than one that ran out of it"
        above = (
            "a larger micro-batch than the script reached (too few samples, or a limit of its own)"
        )
        smaller = "a smaller micro-batch than yours, which fits"
        return (
            (self.needs_more_memory, f"need {more}", f"needs {more}"),
            (self.above_what_ran, f"have {above}", f"has {above}"),
            (self.smaller, f"have {smaller}", f"has {smaller}"),
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


def _not_tried(of: str, reasons: Sequence[_Reason]) -> str:
    """Empty where no reason has any."""
    given = [reason for reason in reasons if reason[0]]
    count = sum(reason[0] for reason in given)
    if not given:
        return ""
    why = ", ".join(f"{n} {several if n > 1 else one}" for n, several, one in given)
    if len(given) == 1:
        why = f"they {given[0][1]}" if count > 1 else f"it {given[0][2]}"
    return f"{count} {of} {'were' if count > 1 else 'was'} not tried: {why}."
