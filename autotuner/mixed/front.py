"""Time against money over the parts of a mixed cluster: which of them to take, and how safely.

A part is paid whole while it trains, so that its fastest layout is its cheapest one, and the best
row of each part is enough. Money is linear in prices, so this is exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from ..planner import Planned
from .kinds import MachineKind, usd_per_hour

_BEYOND = 1e-9


class ChoiceRule(str, Enum):
    """Criterion for a row within the limits."""

    FASTEST = "fastest"
    CHEAPEST = "cheapest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Criterion and limits of a choice.

    Attributes:
        longest_s: the longest step that a deadline allows.
        most_usd: the dearest step that a budget allows.
    """

    rule: ChoiceRule
    longest_s: float = math.inf
    most_usd: float = math.inf

    def allows(self, row: Planned) -> bool:
        """True if a row is within the limits; without a price money is not bounded."""
        usd = 0.0 if row.usd_per_step is None else row.usd_per_step
        return row.step_s <= self.longest_s and usd <= self.most_usd

    def order(self, row: Planned) -> tuple[float, float]:
        """Sort key of a row, best first."""
        usd = math.inf if row.usd_per_step is None else row.usd_per_step
        return (usd, row.step_s) if self.rule is ChoiceRule.CHEAPEST else (row.step_s, usd)

    def rank(self, rows: Sequence[Planned]) -> tuple[Planned, ...]:
        """The rows within the limits, the best one first."""
        return tuple(sorted(filter(self.allows, rows), key=self.order))


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceRange:
    """Prices of a node of one kind, all others as they are, between which a choice stays.

    Attributes:
        kind: its number.
        low, high: USD an hour; 0 and infinity if no price on that side changes it.
        below, above: the row that is chosen beyond that price; None if none is.
    """

    kind: int
    low: float
    high: float
    below: Planned | None = None
    above: Planned | None = None

    def holds(self, price: float, change: float) -> bool:
        """True if the choice stays if the price falls or rises by a share of it."""
        return self.low <= price * (1 - change) and price * (1 + change) <= self.high


def price_range(
    rows: Sequence[Planned], choice: Choice, kinds: Sequence[MachineKind], kind: int
) -> PriceRange | None:
    """Prices of a kind of node between which the first row of a choice stays the first.

    ``kinds``: of nodes, all with prices. ``kind``: number of the kind whose price moves.

    Returns:
        None if nothing is within the limits.
    """
    ranked = choice.rank(rows)
    if not ranked:
        return None
    turns = list(_turns(rows, ranked[0], choice, kinds, kind))
    now = kinds[kind].usd_per_hour or 0.0
    low = max((price for price in turns if price < now), default=0.0)
    high = min((price for price in turns if price > now), default=math.inf)

    def first_at(price: float) -> Planned | None:
        moved = reprice(rows, with_price(kinds, kind, price))
        return next(iter(choice.rank(moved)), None)

    return PriceRange(
        kind=kind,
        low=max(low, 0.0),
        high=high,
        below=first_at(low * (1 - _BEYOND)) if low > 0 else None,
        above=first_at(high * (1 + _BEYOND)) if math.isfinite(high) else None,
    )


def _turns(
    rows: Sequence[Planned],
    chosen: Planned,
    choice: Choice,
    kinds: Sequence[MachineKind],
    kind: int,
) -> Iterator[float]:
    """Prices at which another row overtakes the chosen one, or it becomes too dear itself."""
    fixed, each = _line(chosen, kinds, kind)
    if each:
        yield (choice.most_usd - fixed) / each
    for row in rows:
        other_fixed, other_each = _line(row, kinds, kind)
        if row.step_s > choice.longest_s:
            continue
        if choice.rule is ChoiceRule.CHEAPEST and other_each != each:
            yield (other_fixed - fixed) / (each - other_each)
        if choice.rule is ChoiceRule.FASTEST and other_each and row.step_s < chosen.step_s:
            yield (choice.most_usd - other_fixed) / other_each


def _line(row: Planned, kinds: Sequence[MachineKind], kind: int) -> tuple[float, float]:
    """Money of a step without a kind's nodes, and for each USD per hour of such a node."""
    hours = row.step_s / 3600
    others = usd_per_hour(with_price(kinds, kind, 0.0), row.counts) or 0.0
    return others * hours, row.counts[kind] * hours


def with_price(kinds: Sequence[MachineKind], kind: int, price: float) -> tuple[MachineKind, ...]:
    """The kinds, with another price for kind number ``kind``."""
    return tuple(
        replace(one, usd_per_hour=price) if number == kind else one
        for number, one in enumerate(kinds)
    )


def reprice(rows: Sequence[Planned], kinds: Sequence[MachineKind]) -> tuple[Planned, ...]:
    """Rows with the prices of some kinds."""
    return tuple(replace(row, usd_per_hour=usd_per_hour(kinds, row.counts)) for row in rows)


def rivals(rows: Sequence[Planned], choice: Choice, band: float) -> tuple[Planned, ...]:
    """Rows that would come first if they were faster, and the first one slower, by a band."""
    ranked = choice.rank(rows)
    if not ranked:
        return ()
    first, *others = ranked
    slower = choice.order(replace(first, step_s=first.step_s * (1 + band)))
    return tuple(
        row
        for row in others
        if choice.order(replace(row, step_s=row.step_s * (1 - band))) < slower
    )
