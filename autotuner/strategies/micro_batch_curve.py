"""Throughput over the micro-batch, for rows that differ only in the split of one batch.

Throughput rises ever more slowly with the logarithm of the micro-batch, until it is flat or falls;
so the line through two measured points bounds the values beyond them. A gap between tried values
is searched while its bound is above ``SATURATION_GAIN``. Shapes: C = candidates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import hypot, inf, log, log2

import numpy as np

from autoconf_launch.core import Candidate

from ..measurement import PRIOR, Noise, t_quantile
from ..space import (
    Bools,
    CandidateTable,
    Floats,
    Ints,
    Objective,
    Record,
    concat,
    is_out_of_memory,
)

SATURATION_GAIN = 0.02
"""Gain, as a share, that is not worth another trial."""
CLIMB = 4.0
"""Farthest jump up, as a factor: what the next trial costs then follows from the last one."""
_STEEP = 0.5
"""Logarithm of throughput over logarithm of micro-batch. A curve that saturates is this steep
below the half of its height, so that its saturation point is octaves away."""
_SPLIT = ("micro_batch", "accumulation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A micro-batch with its throughput in any unit; None: it ran out of memory."""

    micro_batch: int
    speed: float | None


@dataclass(frozen=True, slots=True)
class Bound:
    """Upper bound of a gap, and its noise.

    Attributes:
        log_speed: natural logarithm of the speed; infinite if nothing is known.
        doubt: standard deviation of ``log_speed``, in standard deviations of one measured
            logarithm.
    """

    log_speed: float
    doubt: float


@dataclass(frozen=True, slots=True)
class _Gap:
    """Adjacent remaining values, and their upper bound."""

    values: tuple[int, ...]
    bound: Bound
    is_upward: bool
    """Above all that was tried."""


NO_BOUND = Bound(inf, 0.0)


@dataclass(frozen=True, slots=True)
class _Known:
    """Results so far; ``points`` are logarithms (base 2 and e) of values that ran, in order."""

    ran: tuple[int, ...]
    points: tuple[tuple[float, float], ...]
    full: float
    open_values: tuple[int, ...]


def speed_bounds(values: Sequence[int], tried: Sequence[Tried]) -> dict[int, Bound]:
    """Upper bound of the speed of each remaining value.

    A value far above all that ran counts as twice as large as the last of them. Infinite until two
    values have run; values from the first that was full on have no bound.

    Args:
        values: candidates, whole numbers above 0.
        tried: results, in any order.
    """
    known = _known_speeds(values, tried)
    if len(known.ran) < 2:
        return dict.fromkeys(known.open_values, NO_BOUND)
    return {value: gap.bound for gap in _gaps(known) for value in gap.values}


def next_micro_batch(
    values: Sequence[int],
    tried: Sequence[Tried],
    *,
    start: int | None = None,
) -> int | None:
    """The value to try next; None if no other is worth it.

    Args:
        values: candidates, whole numbers above 0, not only powers of two.
        tried: results, in any order.
        start: likely best or largest value that fits; the search begins there, or climbs to it if
            a smaller value has run.
    """
    known = _known_speeds(values, tried)
    if not known.open_values:
        return None
    if not known.ran:
        return _first(known, start)
    if len(known.ran) == 1:
        return _second(known, start)
    top = max(speed for _, speed in known.points)
    gaps = [gap for gap in _gaps(known) if gap.bound.log_speed > top + SATURATION_GAIN]
    if not gaps:
        return None
    rises = known.points[-1][1] > known.points[-2][1] + SATURATION_GAIN
    best = max(gaps, key=lambda gap: (rises and gap.is_upward, gap.bound.log_speed))
    if not best.is_upward:
        return _middle(best.values)
    return _at_most(best.values, _jump(known) * known.ran[-1])


def _known_speeds(values: Sequence[int], tried: Sequence[Tried]) -> _Known:
    full = min((one.micro_batch for one in tried if one.speed is None), default=inf)
    seen = {one.micro_batch for one in tried}
    ran = sorted((one.micro_batch, one.speed) for one in tried if one.speed)
    return _Known(
        ran=tuple(value for value, _ in ran),
        points=tuple((log2(value), log(speed)) for value, speed in ran),
        full=full,
        open_values=tuple(v for v in sorted(set(values)) if v < full and v not in seen),
    )


def _first(known: _Known, start: int | None) -> int:
    """First value: ``start``, or the middle; below half of a value that was full."""
    if known.full < inf:
        return _at_most(known.open_values, known.full / 2)
    return _middle(known.open_values) if start is None else _at_most(known.open_values, start)


def _second(known: _Known, start: int | None) -> int:
    """Next to the only value that ran: towards ``start``, else up."""
    here = known.ran[0]
    above = tuple(value for value in known.open_values if value > here)
    below = tuple(value for value in known.open_values if value < here)
    if above and known.full < inf:
        return _middle(above)
    if above and (start is None or here < start or not below):
        return _at_most(above, min(max(start or 0, 2 * here), CLIMB * here))
    return _at_most(below, here / 2)


def _jump(known: _Known) -> float:
    """Factor to go up by: the farther, the less the curve has bent."""
    (before, low), (last, high) = known.points[-2:]
    return CLIMB if high - low > _STEEP * log(2) * (last - before) else 2.0


def _middle(values: Sequence[int]) -> int:
    return values[len(values) // 2]


def _at_most(values: Sequence[int], limit: float) -> int:
    """The largest value up to a limit, or the smallest one."""
    return max((value for value in values if value <= limit), default=min(values))


def _gaps(known: _Known) -> list[_Gap]:
    """Gaps around and between the values that ran, with bounds by the lines next to them."""
    edges = [0.0, *(float(value) for value in known.ran), inf]
    found = []
    for i in range(len(edges) - 1):
        inside = tuple(v for v in known.open_values if edges[i] < v < edges[i + 1])
        if inside:
            is_upward = i == len(known.points) and known.full == inf
            reach = _at_most(inside, 2.0 * edges[i]) if is_upward else inside[-1]
            bound = _bound(known.points, i, log2(inside[0]), log2(reach))
            found.append(_Gap(inside, bound, is_upward))
    return found


def _bound(points: Sequence[tuple[float, float]], gap: int, near: float, far: float) -> Bound:
    """Upper bound of throughput in gap number ``gap``.

    Gap 0 is below the first point, the last one above the last point. Between two points without a
    neighbour the better of them is the bound within an octave; a wider gap has none.
    """
    bounds = []
    if gap >= 2:
        bounds.append(_line(points[gap - 2], points[gap - 1], (near, far)))
    if gap <= len(points) - 2:
        bounds.append(_line(points[gap], points[gap + 1], (near, far)))
    if bounds:
        return min(bounds, key=_log_speed)
    wide = 0 < gap < len(points) and points[gap][0] - points[gap - 1][0] > 1.0
    return NO_BOUND if wide else Bound(max(speed for _, speed in points), 1.0)


def _line(a: tuple[float, float], b: tuple[float, float], ends: Sequence[float]) -> Bound:
    """Bound at both ends of a line; the farther from its points, the more their noise counts."""
    parts = [(x - b[0]) / (b[0] - a[0]) for x in ends]
    return Bound(
        log_speed=max(b[1] + part * (b[1] - a[1]) for part in parts),
        doubt=max(hypot(1.0 + part, part) for part in parts),
    )


def _log_speed(bound: Bound) -> float:
    return bound.log_speed


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CurveGains:
    """Possible gains over the best trial by the curves of throughput.

    Attributes:
        log_C: natural logarithms; infinite if nothing is known.
        doubt_C: their standard deviations, in standard deviations of one trial's log time.
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
        """Upper bound of each logarithm that holds with a chance."""
        widths = t_quantile(chance, self.noise.between_freedom)
        return np.asarray(self.log_C + widths * self.noise.between * self.doubt_C)


class MicroBatchCurves:
    """All curves of a table, with their results."""

    def __init__(
        self, table: CandidateTable, objective: Objective, others: Sequence[Candidate] = ()
    ) -> None:
        """Start without an outcome; ``others``: candidates besides the table, as the user's."""
        self._count = len(table)
        self._table = concat((table, CandidateTable.from_candidates(others))) if others else table
        self._curve_C = _curves(self._table)
        self._micro_C = self._table["micro_batch"]
        self._objective = objective
        self._rows: dict[Candidate, int | None] = {}
        self.forget()

    def forget(self) -> None:
        """Discard all results."""
        self._tried: dict[int, dict[int, Tried]] = {}
        self._stale: set[int] = set()
        self._bound_C = np.full(len(self._table), np.inf)
        self._doubt_C = np.zeros(len(self._table))
        self._best = -np.inf
        self._best_micro: int | None = None
        self._best_curve = -1

    @property
    def gain_C(self) -> Floats:
        """Logarithm of each row's possible gain over the best; infinite if unknown."""
        self._bring_up_to_date()
        return self._bound_C[: self._count] - self._best

    @property
    def beyond_C(self) -> Bools:
        """Rows beyond the saturation point of their curve, or of a curve far below the best."""
        return np.asarray(self.gain_C <= SATURATION_GAIN, np.bool_)

    def gains(self, noise: Noise = PRIOR) -> CurveGains:
        """Gain of each row, with the noise of its curve's trials and of the best one."""
        log_C = self.gain_C
        doubt_C = np.hypot(self._doubt_C[: self._count], 1.0)
        return CurveGains(log_C=log_C, doubt_C=doubt_C, noise=noise)

    def tell(self, record: Record) -> None:
        """Record an outcome; candidates outside the table are skipped."""
        cost_s = cost_of(record, self._objective)
        row = self._row(record.trial.candidate)
        if cost_s is not None and row is not None:
            self.assume(row, cost_s)
            self._stale.add(int(self._curve_C[row]))

    def next_rows(self, order: Ints, likely_C: Bools | None, busy: Sequence[int] = ()) -> Ints:
        """The rows that the line search on their curve takes next, the best curve first.

        A curve begins with the micro-batch that was best in another one, as far as that is
        likely to fit, and climbs from there.

        Args:
            order: rows that may be tried; their order is kept.
            likely_C: rows of the table that probably fit; None if nothing is known.
            busy: rows that run now; their curves wait for them.
        """
        waiting = set(self._curve_C[list(busy)].tolist())
        chosen: dict[int, int | None] = {}
        places = np.argsort(self._curve_C[order], kind="stable")
        edges = np.flatnonzero(np.diff(self._curve_C[order][places])) + 1
        for here in np.split(order[places], edges) if len(order) else ():
            curve = int(self._curve_C[here[0]])
            if curve not in waiting:
                values = self._micro_C[here].tolist()
                start = self._start(curve, here, likely_C)
                chosen[curve] = next_micro_batch(values, self._tried_of(curve), start=start)
        taken = [chosen.get(curve) for curve in self._curve_C[order].tolist()]
        mask = np.array([x is not None for x in taken], np.bool_)
        mask[mask] &= self._micro_C[order][mask] == [x for x in taken if x is not None]
        found = order[mask]
        return found[np.argsort(self._curve_C[found] != self._best_curve, kind="stable")]

    def assume(self, row: int, cost_s: float) -> None:
        """Record a row's cost, ``others`` after the table's rows; infinite: out of memory."""
        curve = int(self._curve_C[row])
        known = self._tried.setdefault(curve, {})
        micro = int(self._micro_C[row])
        before = known.get(micro)
        speed = max(1.0 / cost_s, (before.speed or 0.0) if before else 0.0)
        known[micro] = Tried(micro_batch=micro, speed=speed or None)
        if speed and np.log(speed) > self._best:
            self._best, self._best_micro, self._best_curve = np.log(speed), micro, curve

    def _row(self, candidate: Candidate) -> int | None:
        if candidate not in self._rows:
            found = self._table.find(candidate)
            self._rows[candidate] = int(found[0]) if len(found) else None
        return self._rows[candidate]

    def _bring_up_to_date(self) -> None:
        for curve in self._stale:
            here = np.flatnonzero(self._curve_C == curve)
            micros = self._micro_C[here].tolist()
            bounds = speed_bounds(micros, self._tried_of(curve))
            found = [bounds.get(micro, NO_BOUND) for micro in micros]
            self._bound_C[here] = [bound.log_speed for bound in found]
            self._doubt_C[here] = [bound.doubt for bound in found]
        self._stale.clear()

    def _start(self, curve: int, rows: Ints, likely_C: Bools | None) -> int | None:
        if curve not in self._tried and self._best_micro is not None:
            likely = self._micro_C[rows if likely_C is None else rows[likely_C[rows]]]
            return min(self._best_micro, int(likely.max(initial=1)))
        if likely_C is None:
            return None
        return int(self._micro_C[rows[likely_C[rows]]].max(initial=0))

    def _tried_of(self, curve: int) -> tuple[Tried, ...]:
        return tuple(self._tried.get(curve, {}).values())


def _curves(table: CandidateTable) -> Ints:
    """A number for each row, equal if rows differ only in micro-batch and accumulation.

    A micro-batch with several accumulations is in several curves, largest first.
    """
    found = np.zeros(len(table), np.int64)
    for name, column in table.columns:
        if name not in _SPLIT:
            found = _with(found, column.codes)
    return _with(found, _rank(_with(found, table["micro_batch"]), table["accumulation"]))


def _with(numbers: Ints, codes: Ints) -> Ints:
    if not len(codes) or not np.ptp(codes):
        return numbers
    codes = codes - codes.min()
    pairs = numbers * (codes.max() + 1) + codes
    return np.asarray(np.unique(pairs, return_inverse=True)[1], np.int64)


def _rank(group_C: Ints, value_C: Ints) -> Ints:
    """Number of larger values in the group of each row."""
    order = np.lexsort((-value_C, group_C))
    starts = np.diff(group_C[order], prepend=-1) != 0
    place = np.cumsum(starts | (np.diff(value_C[order], prepend=-1) != 0))
    rank = np.empty_like(place)
    rank[order] = place - np.maximum.accumulate(np.where(starts, place, 0))
    return rank


def cost_of(record: Record, objective: Objective) -> float | None:
    """Seconds; infinite if it ran out of memory, None if it failed for another reason."""
    if record.measurement is None:
        return np.inf if is_out_of_memory(record) else None
    samples = record.trial.candidate.layout.global_batch
    return objective.cost_s(record.measurement.mean_step_s, samples)
