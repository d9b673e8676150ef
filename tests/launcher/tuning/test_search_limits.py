"""A budget becomes limits of the search; their meaning: autotuner/search/test_limits.py."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autoconf_launch.autotuner.measurement import EFFORTS, NORMAL, Effort
from autoconf_launch.autotuner.search import SearchLimits
from autoconf_launch.autotuner.space import SearchBudget
from autoconf_launch.core import ClusterSpec
from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.launcher.tuning import TimeBudget, search_limits
from autoconf_launch.launcher.tuning.running import read_time_budget
from autoconf_launch.tuning_spaces import parse_cluster

ONE = parse_cluster("8xH100")
PRICED = ClusterSpec(nodes=tuple(replace(node, usd_per_hour=90.0) for node in ONE.nodes))


def limits(budget: SearchBudget, effort: Effort = NORMAL, spent_s: float = 0.0) -> SearchLimits:
    request = LaunchRequest(script="train.py", budget=budget)
    whole_s = read_time_budget(request, PRICED).whole_s
    clock = TimeBudget(whole_s=whole_s, began_s=0.0, clock=lambda: spent_s)
    return search_limits(request, clock, effort)


@pytest.mark.parametrize("effort", EFFORTS.values(), ids=EFFORTS)
@pytest.mark.parametrize("budget", [SearchBudget(seconds=600.0), SearchBudget(usd=15.0)])
def test_rounds_and_soak_find_room_in_what_was_given(budget: SearchBudget, effort: Effort) -> None:
    found = limits(budget, effort)
    assert found.seconds is not None
    with_rounds_s = found.seconds * (1.0 + effort.playoff_share)
    assert with_rounds_s * (1.0 + effort.verification_share) == pytest.approx(600.0, rel=0.015)


def test_the_profile_run_counts_and_the_search_has_a_share_of_what_is_left() -> None:
    found = limits(SearchBudget(seconds=600.0), spent_s=100.0)
    assert found.seconds == pytest.approx(450.0)
    assert found.whole_s == 600.0


def test_the_whole_budget_is_said() -> None:
    reason = limits(SearchBudget(seconds=600.0)).stop_reason(600.0, ())
    assert reason is not None
    assert reason.error == (
        "The budget of 600 s was spent before anything could be measured. Allow more, such as "
        "--budget 30m."
    )


def test_trials_are_all_of_the_search() -> None:
    found = limits(SearchBudget(trials=5))
    assert (found.trials, found.seconds, found.whole_s) == (5, None, None)


def test_without_a_limit_of_time_no_deadline_comes() -> None:
    request = LaunchRequest(script="train.py", budget=SearchBudget(trials=5))
    assert math.isinf(read_time_budget(request, PRICED).left_s)
