"""A fixed part and a part for each sample, from few points. Not: any meaning of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ..space import Floats, Ints


def broadcast_sum(arrays: Iterable[Floats]) -> Floats:
    """Their sum; small ones are added first, so that few additions run over the whole grid.

    Arrays of one shape are added in their order.
    """
    total: Floats | float = 0.0
    for array in sorted(arrays, key=np.size):
        total = total + array
    return np.asarray(total, np.float64)


@dataclass(frozen=True, slots=True)
class Line:
    """``fixed + each * x``, neither of them negative."""

    fixed: float
    each: float

    def at(self, x_C: Ints | Floats) -> Floats:
        """Values at several places."""
        return np.asarray(self.fixed + self.each * x_C, np.float64)


def fit_line(points: Sequence[tuple[int, float]]) -> Line:
    """Least squares with both parts kept from below zero, where noise would put them.

    One place alone gives a line through the origin.
    """
    x, y = np.array(points, dtype=np.float64).T
    through_origin = Line(0.0, float(x @ y / (x @ x)))
    if len(set(x)) < 2:
        return through_origin
    from_mean = x - x.mean()
    each = float(from_mean @ y / (from_mean @ from_mean))
    fixed = float(y.mean() - each * x.mean())
    if each < 0:
        return Line(float(y.mean()), 0.0)
    return Line(fixed, each) if fixed >= 0 else through_origin


_SIZES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def scaled_bytes(count_bytes: float) -> str:
    """``134 MB``, ``2.56 TB``: a size in an error, with three digits."""
    size, name = next((one for one in _SIZES if count_bytes >= 0.9995 * one[0]), (1.0, "B"))
    return f"{count_bytes / size:.3g} {name}"
