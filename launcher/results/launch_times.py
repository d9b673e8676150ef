"""How long launches took together: what ran side by side counts once. Not: how long each took."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class CoveredTime:
    """Stretches of one clock, merged where they meet."""

    def __init__(self) -> None:
        self.total_s = 0.0
        """Seconds that lie in one of them at least."""
        self._starts_s: list[float] = []
        self._ends_s: list[float] = []

    def add(self, start_s: float, end_s: float) -> None:
        """One stretch more."""
        first = bisect_left(self._ends_s, start_s)
        last = bisect_right(self._starts_s, end_s)
        starts_s, ends_s = self._starts_s[first:last], self._ends_s[first:last]
        known_s = sum(end - start for start, end in zip(starts_s, ends_s, strict=True))
        start_s, end_s = min([start_s, *starts_s]), max([end_s, *ends_s])
        self.total_s += end_s - start_s - known_s
        self._starts_s[first:last] = [start_s]
        self._ends_s[first:last] = [end_s]
