"""The micro-batch that is worth a look next: to the knee of throughput. Not: other knobs.

Throughput rises ever more slowly with the logarithm of the micro-batch, until it is flat or
falls; so the line through two measured points bounds what lies beyond them. A gap between tried
values is searched while its bound promises more than the knee: what memory would still allow is
left alone where it gains nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log, log2

KNEE = 0.02
"""Gain, as a share, that is not worth a further trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """A micro-batch with its throughput, at one global batch; None: it ran out of memory."""

    micro_batch: int
    samples_per_s: float | None


@dataclass(frozen=True, slots=True)
class _Gap:
    """Untried values side by side, and what the best of them could gain."""

    values: tuple[int, ...]
    gain: float
    upward: bool


def next_micro_batch(
    values: Sequence[int],
    tried: Sequence[Tried],
    *,
    predicted_largest: int | None = None,
    knee: float = KNEE,
) -> int | None:
    """The value to try next; None where no further one is worth it.

    Args:
        values: that may be tried, whole numbers above 0 and not powers of two alone.
        tried: what came back, in any order.
        predicted_largest: that should fit; the search starts there.
        knee: share by which a value must promise to be better.
    """
    full = min((one.micro_batch for one in tried if one.samples_per_s is None), default=inf)
    known = {one.micro_batch for one in tried}
    open_values = [value for value in sorted(set(values)) if value < full and value not in known]
    ran = sorted((x.micro_batch, log(x.samples_per_s)) for x in tried if x.samples_per_s)
    if not open_values:
        return None
    if not ran:
        limit = (predicted_largest or inf) if full is inf else full / 2
        return _at_most(open_values, limit)
    if len(ran) == 1:
        below = [value for value in open_values if value < ran[0][0]]
        return _at_most(below or open_values, (0.5 if below else 2.0) * ran[0][0])
    gaps = [gap for gap in _gaps(open_values, ran, full) if gap.gain > knee]
    if not gaps:
        return None
    best = max(gaps, key=lambda gap: gap.gain)
    if best.upward:
        return _at_most(best.values, 2.0 * ran[-1][0])
    return best.values[len(best.values) // 2]


def _at_most(values: Sequence[int], limit: float) -> int:
    """The largest value up to a limit, or the smallest one."""
    return max((value for value in values if value <= limit), default=min(values))


def _gaps(open_values: Sequence[int], ran: Sequence[tuple[int, float]], full: float) -> list[_Gap]:
    """All gaps around and between the values that ran, with bounds by the lines beside them."""
    top = max(speed for _, speed in ran)
    points = [(log2(value), speed) for value, speed in ran]
    edges = [0.0, *(float(value) for value, _ in ran), inf]
    found = []
    for i in range(len(edges) - 1):
        inside = tuple(value for value in open_values if edges[i] < value < edges[i + 1])
        if inside:
            upward = i == len(points) and full is inf
            far = log2(min(inside[-1], _at_most(inside, 2.0 * edges[i]) if upward else inf))
            bound = _bound(points, i, log2(inside[0]), far)
            found.append(_Gap(inside, bound - top, upward))
    return found


def _bound(points: Sequence[tuple[float, float]], gap: int, near: float, far: float) -> float:
    """Logarithm of throughput that no value between can exceed, in gap number ``gap``.

    Gap 0 is below the first point, the last one above the last point. Between two points that
    have no neighbour nothing better than them is assumed.
    """
    bounds = []
    if gap >= 2:
        bounds.append(max(_line(points[gap - 2], points[gap - 1], x) for x in (near, far)))
    if gap <= len(points) - 2:
        bounds.append(max(_line(points[gap], points[gap + 1], x) for x in (near, far)))
    return min(bounds, default=max(speed for _, speed in points))


def _line(a: tuple[float, float], b: tuple[float, float], x: float) -> float:
    slope = (b[1] - a[1]) / (b[0] - a[0])
    return b[1] + slope * (x - b[0])
