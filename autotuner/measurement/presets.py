"""Thresholds and time shares of a study, as three named efforts. Not: limits that a user gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Time that a study spends, and the smallest difference that it resolves.

    Times are in seconds, widths are half of an interval of a logarithm, the rest are shares.

    ``quick`` measures again only for an expected gain of 3 %: the search ends at a possible gain
    of 5 % and does not repeat the baseline, and a playoff of two and the verification run take
    half as long. ``normal`` goes on for 1 %: the playoff takes up to 30 % of the search's time and
    the verification run 10 % of both.
    ``thorough`` goes on for 0.3 %: the search ends only if nothing could gain 0.5 %, and the
    playoff takes up to 70 % of its time.

    Attributes:
        good_enough: possible gain of the remaining candidates below which the search ends.
        search_share: share of the budget for the search; playoff and verification take the rest.
        trial_precision: sufficient width of the interval of a trial.
        most_steps: largest number of steps of a trial.
        repeats_baseline: the baseline is measured once more at the end of the search; a playoff
            measures it anyway.
        contenders: number of configurations in the playoff, besides the baseline.
        playoff_share: duration of the playoff, as a share of the time of the search.
        playoff_s: duration always allowed for the playoff, if the search took as long.
        equal: difference below which configurations count as equal.
        worth: expected gain, a share, below which a configuration is not measured again.
        verification_share: share of the time of the study for the verification run's steps.
        verification_s: duration always allowed for these steps.
        verification_steps: default for the largest number of these steps.
        pause_share: share of the study that an evaluation or a checkpoint may take.
        fewest_pause_s: duration always allowed for it.
        most_pause_s: longest duration allowed for it.
    """

    good_enough: float = 0.02
    search_share: float = 0.7
    trial_precision: float = 0.03
    most_steps: int = 14
    repeats_baseline: bool = True
    contenders: int = 3
    playoff_share: float = 0.3
    playoff_s: float = 8.0
    equal: float = 0.02
    worth: float = 0.01
    verification_share: float = 0.1
    verification_s: float = 4.0
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
    repeats_baseline=False,
    contenders=2,
    playoff_share=0.15,
    playoff_s=4.0,
    equal=0.03,
    worth=0.03,
    verification_share=0.05,
    verification_s=2.0,
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
    worth=0.003,
    verification_share=0.2,
    verification_s=15.0,
    verification_steps=100,
    most_pause_s=600.0,
)
EFFORTS: Mapping[str, Effort] = MappingProxyType(
    {"quick": QUICK, "normal": NORMAL, "thorough": THOROUGH}
)
"""Efforts by the names that a user writes."""
