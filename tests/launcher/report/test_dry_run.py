from __future__ import annotations

import pytest

from autoconf_launch.autotuner.playoff import TimeRange
from autoconf_launch.autotuner.space import Prediction
from autoconf_launch.core import Candidate
from autoconf_launch.launcher.report import planned_tune_text

from .fixed import trial

WHOLE = TimeRange(low_s=60.0, high_s=1800.0)


def plan(*steps_s: float | None) -> list[tuple[Candidate, Prediction | None]]:
    """Configurations with these predicted steps; the first one is the user's."""
    return [
        (
            trial(number, 0, number % 16 + 1).candidate,
            Prediction(peak_bytes=500_000_000, step_s=step_s, band=0.2, how="fixed")
            if step_s
            else None,
        )
        for number, step_s in enumerate(steps_s)
    ]


def say(*steps_s: float | None, usd_per_hour: float | None = None) -> list[str]:
    whole = WHOLE if all(steps_s) else None
    text = planned_tune_text(plan(*steps_s), 10**9, whole, usd_per_hour=usd_per_hour)
    return text.splitlines()


def test_the_users_own_is_first_and_the_others_follow_by_what_is_predicted() -> None:
    lines = say(0.4, 0.3, 0.1, 0.2)
    micros = [line.split(" · ")[1] for line in lines if "ZeRO" in line]
    assert micros == ["micro 1", "micro 3", "micro 4", "micro 2"]
    assert "(yours)" in lines[3]
    assert lines[3].split()[-6:] == ["s", "80.00", "0.50", "GB", "(50", "%)"]


def test_many_candidates_are_counted_beyond_the_first_ones() -> None:
    lines = say(*([0.1] * 36))
    assert sum("ZeRO" in line for line in lines) == 25
    assert "and 11 more" in lines


@pytest.mark.parametrize(
    ("steps_s", "usd_per_hour", "said"),
    [
        ((0.4, 0.3), None, ": 60 s to 30 minutes."),
        ((0.4, 0.3), 12.0, ": 60 s to 30 minutes, $0.20 to $6.00 at $12.00 per hour."),
        ((None, None), None, "no step times are predicted"),
    ],
)
def test_the_duration_is_said_with_money_where_a_price_is_known(
    steps_s: tuple[float | None, ...], usd_per_hour: float | None, said: str
) -> None:
    first, *others = say(*steps_s, usd_per_hour=usd_per_hour)
    assert first.startswith("Dry run: 2 configurations to try")
    (line,) = [one for one in others if one.startswith("Expected duration of the tune")]
    assert said in line
