"""What of a budget is the search's; what limits mean: autotuner/search/test_limits.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoconf_launch.autotuner.measurement.presets import EFFORTS, NORMAL, Effort
from autoconf_launch.autotuner.search.limits import SearchLimits
from autoconf_launch.autotuner.space.budget import SearchBudget
from autoconf_launch.core import ClusterSpec
from autoconf_launch.launcher.request import LaunchRequest
from autoconf_launch.launcher.tuning.job import search_limits
from autoconf_launch.tuning_spaces.clusters import parse_cluster

ONE = parse_cluster("8xH100")
PRICED = ClusterSpec(nodes=tuple(replace(node, usd_per_hour=90.0) for node in ONE.nodes))


def limits(budget: SearchBudget, effort: Effort = NORMAL) -> SearchLimits:
    return search_limits(LaunchRequest(script="train.py", budget=budget), PRICED, effort)


@pytest.mark.parametrize("effort", EFFORTS.values(), ids=EFFORTS)
@pytest.mark.parametrize("budget", [SearchBudget(seconds=600.0), SearchBudget(usd=15.0)])
def test_rounds_and_soak_find_room_in_what_was_given(budget: SearchBudget, effort: Effort) -> None:
    found = limits(budget, effort)
    assert found.seconds is not None
    with_rounds_s = found.seconds * (1.0 + effort.playoff_share)
    assert with_rounds_s * (1.0 + effort.verification_share) == pytest.approx(600.0, rel=0.015)


def test_the_whole_budget_is_said_too() -> None:
    reason = limits(SearchBudget(seconds=600.0)).stop_reason(420.0, ())
    assert reason is not None
    assert "The budget of 420 s (600 s with playoff and verification run)" in reason.error


def test_trials_are_all_of_the_search() -> None:
    found = limits(SearchBudget(trials=5))
    assert (found.trials, found.seconds, found.whole_s) == (5, None, None)
