from typing import Any

import pytest

from autoconf_launch.core import ConfigError
from autoconf_launch.launcher.asked import Goal, TrainingBudget
from autoconf_launch.launcher.estimates import PlanRequest, parse_plan

WORK = ("--model", "gpt2", "--cluster", "8xH100", "--seq", "1024", "--global-batch", "64")


def parse(*flags: str) -> PlanRequest:
    return parse_plan([*WORK, *flags])


@pytest.mark.parametrize(
    ("text", "count"), [("15T", 15 * 10**12), ("300b", 3 * 10**11), ("1.5M", 1_500_000)]
)
def test_tokens_are_counted_in_thousands_of_thousands(text: str, count: int) -> None:
    assert parse("--tokens", text).budget.tokens == count


@pytest.mark.parametrize(
    ("text", "seconds"), [("5d", 432_000), ("12h", 43_200), ("1.5h", 5400), ("2w", 1_209_600)]
)
def test_a_deadline_has_a_unit(text: str, seconds: float) -> None:
    assert parse("--deadline", text, "--tokens", "1T").budget.deadline_s == seconds


def test_no_number_to_show_means_all() -> None:
    assert (parse("--top", "0").top, parse().top) == (None, 10)


def test_what_is_not_given_has_a_default() -> None:
    request: Any = parse()
    assert (request.objective, request.explain, request.training.json) == (Goal.TIME, False, False)
    assert (request.budget, request.csv) == (TrainingBudget(), None)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--deadline", "5d"), "give its --tokens too"),
        (("--max-cost", "5"), "give its --tokens too"),
        (("--deadline", "5", "--tokens", "1T"), "must be a time with its unit"),
        (("--tokens", "many"), "must be tokens"),
        (("--tokens", "0"), "must be tokens"),
        (("--max-cost", "-5", "--tokens", "1T"), "must be an amount in USD"),
        (("--usd-per-gpu-hour", "free"), "must be a number above 0"),
        (("--objective", "tim"), "did you mean 'time'?"),
        (("--top", "-1"), "must be a whole number from 0"),
        (("--expain",), "did you mean '--explain'?"),
    ],
)
def test_wrong_values_are_refused_with_what_is_right(flags: tuple[str, ...], says: str) -> None:
    with pytest.raises(ConfigError, match=says.replace("?", r"\?")):
        parse(*flags)


@pytest.mark.parametrize(("text", "usd"), [("250000", 250e3), ("$5M", 5e6), ("1.5k", 1500.0)])
def test_money_may_be_short(text: str, usd: float) -> None:
    assert parse("--max-cost", text, "--tokens", "1T").budget.max_cost_usd == usd
