"""Thresholds and time shares of a study, as three named efforts. Not: limits that a user gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much time a study spends to find how small a difference.

    Times are in seconds, widths are half of an interval of a logarithm, the rest are shares.

    ``quick`` resolves 6 %: the search ends where 5 % could be gained, and the playoff of two and
    the verification run take half as long. ``normal`` resolves 3 %: the playoff takes 30 % of the
    search's time and the verification run 10 % of both. ``thorough`` resolves 1.5 %: the search
    ends only where nothing could gain 0.5 %, and the playoff takes 70 % of its time.

    Attributes:
        good_enough: possible gain of the remaining candidates below which the search ends.
        search_share: of a budget of time; playoff and verification run take the rest.
        trial_precision: width of a trial's own interval that is narrow enough.
        most_steps: no trial makes more.
        contenders: of the search in the playoff, the baseline not counted.
        playoff_share: of the time of the search.
        playoff_s: the playoff may take as long in any case, if the search took as long.
        most_rounds: of a playoff; the sequential test holds for 40.
        equal: configurations that surely differ by less are equal.
        precision: width of the interval of two that may be equal that is narrow enough.
        distance: the same for a baseline that is surely slower.
        verification_share: of the time of the study, for the steps of the verification run.
        verification_s: as many seconds in any case.
        verification_steps: at most, where the user says nothing.
        pause_share: an evaluation or a checkpoint may take this share of the study.
        fewest_pause_s: but as many seconds in any case.
        most_pause_s: and never more.
    """

    good_enough: float = 0.02
    search_share: float = 0.7
    trial_precision: float = 0.03
    most_steps: int = 14
    contenders: int = 3
    playoff_share: float = 0.3
    playoff_s: float = 15.0
    most_rounds: int = 40
    equal: float = 0.02
    precision: float = 0.03
    distance: float = 0.05
    verification_share: float = 0.1
    verification_s: float = 10.0
    verification_steps: int = 50
    pause_share: float = 0.2
    fewest_pause_s: float = 20.0
    most_pause_s: float = 120.0


NORMAL = Effort()
QUICK = Effort(
    good_enough=0.05,
    search_share=0.82,
    trial_precision=0.05,
    most_steps=8,
    contenders=2,
    playoff_share=0.15,
    playoff_s=8.0,
    most_rounds=10,
    equal=0.03,
    precision=0.06,
    distance=0.1,
    verification_share=0.05,
    verification_s=5.0,
    verification_steps=20,
)
THOROUGH = Effort(
    good_enough=0.005,
    search_share=0.49,
    trial_precision=0.015,
    most_steps=30,
    playoff_share=0.7,
    playoff_s=60.0,
    equal=0.01,
    precision=0.015,
    distance=0.03,
    verification_share=0.2,
    verification_s=30.0,
    verification_steps=100,
    most_pause_s=600.0,
)
EFFORTS: Mapping[str, Effort] = MappingProxyType(
    {"quick": QUICK, "normal": NORMAL, "thorough": THOROUGH}
)
"""By the names that a user writes."""
