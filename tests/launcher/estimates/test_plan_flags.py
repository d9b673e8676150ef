from typing import Any

import pytest

from autoconf_launch.launcher.asked import Goal, TrainingBudget
from autoconf_launch.launcher.estimates import PlanRequest, parse_plan

WORK = ("--model", "gpt2", "--cluster", "8xH100", "--seq", "1024", "--global-batch", "64")


def parse(*flags: str) -> PlanRequest:
    return parse_plan([*WORK, *flags])


@pytest.mark.parametrize(
    ("flag", "text", "value"),
    [
        ("--tokens", "15T", 15 * 10**12),
        ("--tokens", "300b", 3 * 10**11),
        ("--tokens", "1.5M", 1_500_000),
        ("--deadline", "5d", 432_000),
        ("--deadline", "12h", 43_200),
        ("--deadline", "1.5h", 5400),
        ("--deadline", "2w", 1_209_600),
        ("--max-cost", "250000", 250e3),
        ("--max-cost", "$5M", 5e6),
        ("--max-cost", "1.5k", 1500.0),
    ],
)
def test_tokens_times_and_money_are_read_with_their_units(
    flag: str, text: str, value: float
) -> None:
    more = () if flag == "--tokens" else ("--tokens", "1T")
    budget = parse(flag, text, *more).budget
    assert value in (budget.tokens, budget.deadline_s, budget.max_cost_usd)


def test_what_is_not_given_has_a_default() -> None:
    request: Any = parse()
    assert (request.objective, request.explain, request.training.json) == (Goal.TIME, False, False)
    assert (request.budget, request.csv, request.top) == (TrainingBudget(), None, 10)
    assert parse("--top", "0").top is None
