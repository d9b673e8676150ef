"""Rows that differ in the split of one batch alone, and what came back of them: a ladder.

Not: which micro-batch of a ladder is next (bracket), nor which ladder (a strategy).
Shapes: C = candidates of a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autoconf_launch.core import Candidate

from .bracket import KNEE, NO_BOUND, Tried, next_micro_batch, speed_bounds
from .dominance import is_out_of_memory
from .noise import PRIOR, Noise
from .normal import student_quantile
from .objective import Objective
from .table import Bools, CandidateTable, Floats, Ints, concat
from .trial import Record

_SPLIT = ("micro_batch", "accumulation")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CurveGains:
    """What rows could gain over the best trial by the curves of throughput.

    Attributes:
        log_C: natural logarithms; infinite where nothing is known.
        doubt_C: their standard deviations, in those of the logarithm of one trial's time.
        noise: of the trials.
    """

    log_C: Floats
    doubt_C: Floats
    noise: Noise

    def take(self, selection: Bools | Ints) -> CurveGains:
        """Rows of a mask, or rows by number."""
        log_C, doubt_C = self.log_C[selection], self.doubt_C[selection]
        return replace(self, log_C=log_C, doubt_C=doubt_C)

    def at_most_C(self, chance: float) -> Floats:
        """What each logarithm is below with a chance, as far as noise decides."""
        widths = student_quantile(chance, self.noise.between_freedom)
        return np.asarray(self.log_C + widths * self.noise.between * self.doubt_C)


class Ladders:
    """All ladders of a table, with what is told of them."""

    def __init__(
        self, table: CandidateTable, objective: Objective, others: Sequence[Candidate] = ()
    ) -> None:
        """Start without an outcome; ``others``: candidates beside the table, as the user's."""
        self._count = len(table)
        self._table = concat((table, CandidateTable.from_candidates(others))) if others else table
        self._ladder_C = _ladders(self._table)
        self._micro_C = self._table["micro_batch"]
        self._objective = objective
        self._rows: dict[Candidate, int | None] = {}
        self.forget()

    def forget(self) -> None:
        """What was told is to be told anew."""
        self._tried: dict[int, dict[int, Tried]] = {}
        self._stale: set[int] = set()
        self._bound_C = np.full(len(self._table), np.inf)
        self._doubt_C = np.zeros(len(self._table))
        self._best = -np.inf
        self._best_micro: int | None = None
        self._best_ladder = -1

    @property
    def gain_C(self) -> Floats:
        """Logarithm of what each row could gain over the best one; infinite where unknown."""
        self._bring_up_to_date()
        return self._bound_C[: self._count] - self._best

    @property
    def beyond_C(self) -> Bools:
        """Rows beyond the knee of their ladder, or of one that is no match for the best."""
        return np.asarray(self.gain_C <= KNEE, np.bool_)

    def gains(self, noise: Noise = PRIOR) -> CurveGains:
        """Of each row, with the noise of its ladder's trials and of the best one."""
        log_C = self.gain_C
        doubt_C = np.hypot(self._doubt_C[: self._count], 1.0)
        return CurveGains(log_C=log_C, doubt_C=doubt_C, noise=noise)

    def tell(self, record: Record) -> None:
        """Take an outcome; one of a candidate that is not in the table says nothing."""
        cost_s = cost_of(record, self._objective)
        row = self._row(record.trial.candidate)
        if cost_s is not None and row is not None:
            self.assume(row, cost_s)
            self._stale.add(int(self._ladder_C[row]))

    def next_rows(self, order: Ints, likely_C: Bools | None, busy: Sequence[int] = ()) -> Ints:
        """Of these rows those that the bracket of their ladder takes next, the best ladder first.

        A ladder begins with the micro-batch that was best in another one, as far as that is
        likely to fit, and climbs from there.

        Args:
            order: rows that may be tried; their order is kept.
            likely_C: whether each row of the table rather fits; None where nothing is known.
            busy: rows that run now; their ladders wait for them.
        """
        waiting = set(self._ladder_C[list(busy)].tolist())
        chosen: dict[int, int | None] = {}
        places = np.argsort(self._ladder_C[order], kind="stable")
        edges = np.flatnonzero(np.diff(self._ladder_C[order][places])) + 1
        for here in np.split(order[places], edges) if len(order) else ():
            ladder = int(self._ladder_C[here[0]])
            if ladder not in waiting:
                values = self._micro_C[here].tolist()
                start = self._start(ladder, here, likely_C)
                chosen[ladder] = next_micro_batch(values, self._known(ladder), start=start)
        taken = [chosen.get(ladder) for ladder in self._ladder_C[order].tolist()]
        mask = np.array([x is not None for x in taken], np.bool_)
        mask[mask] &= self._micro_C[order][mask] == [x for x in taken if x is not None]
        found = order[mask]
        return found[np.argsort(self._ladder_C[found] != self._best_ladder, kind="stable")]

    def assume(self, row: int, cost_s: float) -> None:
        """What a row costs, those of ``others`` after the table's; infinite: it was too large."""
        ladder = int(self._ladder_C[row])
        known = self._tried.setdefault(ladder, {})
        micro = int(self._micro_C[row])
        before = known.get(micro)
        speed = max(1.0 / cost_s, (before.speed or 0.0) if before else 0.0)
        known[micro] = Tried(micro_batch=micro, speed=speed or None)
        if speed and np.log(speed) > self._best:
            self._best, self._best_micro, self._best_ladder = np.log(speed), micro, ladder

    def _row(self, candidate: Candidate) -> int | None:
        """The first one of a candidate, which is looked for once."""
        if candidate not in self._rows:
            found = self._table.find(candidate)
            self._rows[candidate] = int(found[0]) if len(found) else None
        return self._rows[candidate]

    def _bring_up_to_date(self) -> None:
        """Bounds of the ladders that were told of something since."""
        for ladder in self._stale:
            here = np.flatnonzero(self._ladder_C == ladder)
            micros = self._micro_C[here].tolist()
            bounds = speed_bounds(micros, self._known(ladder))
            found = [bounds.get(micro, NO_BOUND) for micro in micros]
            self._bound_C[here] = [bound.log_speed for bound in found]
            self._doubt_C[here] = [bound.doubt for bound in found]
        self._stale.clear()

    def _start(self, ladder: int, rows: Ints, likely_C: Bools | None) -> int | None:
        if ladder not in self._tried and self._best_micro is not None:
            likely = self._micro_C[rows if likely_C is None else rows[likely_C[rows]]]
            return min(self._best_micro, int(likely.max(initial=1)))
        if likely_C is None:
            return None
        return int(self._micro_C[rows[likely_C[rows]]].max(initial=0))

    def _known(self, ladder: int) -> tuple[Tried, ...]:
        return tuple(self._tried.get(ladder, {}).values())


def _ladders(table: CandidateTable) -> Ints:
    """A number for each row, equal where rows differ in micro-batch and accumulation alone.

    A micro-batch with several accumulations is in several ladders, the largest ones in the first.
    """
    found = np.zeros(len(table), np.int64)
    for name, column in table.columns:
        if name not in _SPLIT:
            found = _with(found, column.codes)
    return _with(found, _rank(_with(found, table["micro_batch"]), table["accumulation"]))


def _with(numbers: Ints, codes: Ints) -> Ints:
    """A number for each pair."""
    if not len(codes) or not np.ptp(codes):
        return numbers
    codes = codes - codes.min()
    pairs = numbers * (codes.max() + 1) + codes
    return np.asarray(np.unique(pairs, return_inverse=True)[1], np.int64)


def _rank(group_C: Ints, value_C: Ints) -> Ints:
    """How many larger values there are in the group of each row."""
    order = np.lexsort((-value_C, group_C))
    starts = np.diff(group_C[order], prepend=-1) != 0
    place = np.cumsum(starts | (np.diff(value_C[order], prepend=-1) != 0))
    rank = np.empty_like(place)
    rank[order] = place - np.maximum.accumulate(np.where(starts, place, 0))
    return rank


def cost_of(record: Record, objective: Objective) -> float | None:
    """Seconds; infinite where it ran out of memory, None where it failed for another reason."""
    if record.measurement is None:
        return np.inf if is_out_of_memory(record) else None
    samples = record.trial.candidate.layout.global_batch
    return objective.cost_s(record.measurement.mean_step_s, samples)
