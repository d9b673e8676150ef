"""The difference that rounds of a given time resolve, and what more would."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..measurement import PairedEstimate, expected_width
from ..space import Record

_MOST_ROUNDS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """Said of what was not told from the winner.

    Attributes:
        rounds: that both were in.
        round_s: wall time of one.
        width: half the width of the interval of the logarithm of their ratio.
        wanted: the same, as it should be.
        further: rounds more until then; None where they would be too many to say.
    """

    rounds: int
    round_s: float
    width: float
    wanted: float
    further: int | None


def resolution(
    found: PairedEstimate, alpha: float, *, round_s: float, wanted: float
) -> Resolution:
    """What the rounds so far resolve of one pair, and how many more it takes."""
    counts = range(found.count, found.count + _MOST_ROUNDS)
    enough = (n for n in counts if expected_width(found, n, alpha) <= wanted)
    until = next(enough, None)
    return Resolution(
        rounds=found.count,
        round_s=round_s,
        width=found.width,
        wanted=wanted,
        further=None if until is None else until - found.count,
    )


def round_times_s(records: Iterable[Record]) -> tuple[float, ...]:
    """Wall time of each round that these launches are of."""
    by_round: dict[int, list[Record]] = {}
    for record in records:
        by_round.setdefault(record.trial.attempt, []).append(record)
    return tuple(_together_s(launches) for launches in by_round.values())


def _together_s(launches: Sequence[Record]) -> float:
    """Seconds of launches beside each other, or one after the other."""
    beside = all(record.trial.turn for record in launches)
    return (max if beside else sum)(record.wall_s for record in launches)
