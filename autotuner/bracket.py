"""The micro-batches of one ladder that are worth a trial: to the knee of throughput.

Not: which candidates are a ladder (ladders), nor other knobs.

Throughput rises ever more slowly with the logarithm of the micro-batch, until it is flat or
falls; so the line through two measured points bounds what lies beyond them. A gap between tried
values is searched while its bound promises more than the knee: what memory would still allow is
left alone where it gains nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import hypot, inf, log, log2

KNEE = 0.02
"""Gain, as a share, that is not worth a further trial."""
CLIMB = 4.0
"""Farthest jump up, as a factor: what the next trial costs then follows from the last one."""
_STEEP = 0.5
"""Logarithm of throughput over that of the micro-batch. A curve that saturates is this steep
below the half of its height, so that its knee is octaves away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A micro-batch with its throughput in any unit; None: it ran out of memory."""

    micro_batch: int
    speed: float | None


@dataclass(frozen=True, slots=True)
class Bound:
    """What no value of a gap exceeds, and how much of that may be noise of what it follows from.

    Attributes:
        log_speed: natural logarithm of the speed; infinite where nothing is known.
        doubt: standard deviation of ``log_speed``, in those of one measured logarithm.
    """

    log_speed: float
    doubt: float


@dataclass(frozen=True, slots=True)
class _Gap:
    """Untried values side by side, and what none of them exceeds."""

    values: tuple[int, ...]
    bound: Bound
    is_upward: bool
    """Above all that was tried."""


NO_BOUND = Bound(inf, 0.0)


@dataclass(frozen=True, slots=True)
class _Known:
    """What came back. ``points`` are logarithms (base 2 and e) of what ran, in order."""

    ran: tuple[int, ...]
    points: tuple[tuple[float, float], ...]
    full: float
    open_values: tuple[int, ...]


def speed_bounds(values: Sequence[int], tried: Sequence[Tried]) -> dict[int, Bound]:
    """What the speed of each untried value cannot exceed.

    A value far above all that ran counts as one twice as large as the last of them. Infinite
    where two values have not run yet; nothing is said of values from one on that was full.

    Args:
        values: that may be tried, whole numbers above 0.
        tried: what came back, in any order.
    """
    known = _known(values, tried)
    if len(known.ran) < 2:
        return dict.fromkeys(known.open_values, NO_BOUND)
    return {value: gap.bound for gap in _gaps(known) for value in gap.values}


def next_micro_batch(
    values: Sequence[int],
    tried: Sequence[Tried],
    *,
    start: int | None = None,
) -> int | None:
    """The value to try next; None where no further one is worth it.

    Args:
        values: that may be tried, whole numbers above 0 and not powers of two alone.
        tried: what came back, in any order.
        start: that is thought to be best or to fit just so; the search begins there, or climbs
            to it where a smaller one has run.
    """
    known = _known(values, tried)
    if not known.open_values:
        return None
    if not known.ran:
        return _first(known, start)
    if len(known.ran) == 1:
        return _second(known, start)
    top = max(speed for _, speed in known.points)
    gaps = [gap for gap in _gaps(known) if gap.bound.log_speed > top + KNEE]
    if not gaps:
        return None
    rises = known.points[-1][1] > known.points[-2][1] + KNEE
    best = max(gaps, key=lambda gap: (rises and gap.is_upward, gap.bound.log_speed))
    if not best.is_upward:
        return _middle(best.values)
    return _at_most(best.values, _jump(known) * known.ran[-1])


def _known(values: Sequence[int], tried: Sequence[Tried]) -> _Known:
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
    """Where the search begins: at ``start``, or in the middle; below the half of what was full."""
    if known.full < inf:
        return _at_most(known.open_values, known.full / 2)
    return _middle(known.open_values) if start is None else _at_most(known.open_values, start)


def _second(known: _Known, start: int | None) -> int:
    """Beside the only one that ran: towards ``start``, else up as nothing speaks against it."""
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
    """Gaps around and between the values that ran, with bounds by the lines beside them."""
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
    """What throughput no value between can exceed, in gap number ``gap``.

    Gap 0 is below the first point, the last one above the last point. Between two points that
    have no neighbour nothing better than them is assumed within an octave, anything beyond.
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
    """Of both ends of a line; the farther from its points, the more their noise counts."""
    parts = [(x - b[0]) / (b[0] - a[0]) for x in ends]
    return Bound(
        log_speed=max(b[1] + part * (b[1] - a[1]) for part in parts),
        doubt=max(hypot(1.0 + part, part) for part in parts),
    )


def _log_speed(bound: Bound) -> float:
    return bound.log_speed
