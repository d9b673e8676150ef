"""What a search may cost, of a request and its machine. Not: the limits' meaning (autotuner)."""

from __future__ import annotations

from autoconf_launch.autotuner.budget import SearchBudget
from autoconf_launch.autotuner.limits import SearchLimits
from autoconf_launch.core import ClusterSpec

from ..planner.price_choice import choose_price
from ..request import LaunchRequest

SEARCH_SHARE = 0.7
"""Of a budget of time or money; rounds and soak take the rest (``endgame``: 0.3 of the search and
0.1 of both, so 0.43 of it), if it is not very short."""


def search_limits(request: LaunchRequest, cluster: ClusterSpec) -> SearchLimits:
    """The search's share of the user's, money as time at the price of the machine."""
    budget, good_enough = request.budget or SearchBudget(), request.good_enough or None
    price = None if budget.usd is None else choose_price(None, cluster)
    usd_per_hour = price.usd_per_gpu_hour * len(cluster.devices) if price else None
    whole_s = budget.limit_s(usd_per_hour)
    return SearchLimits(
        seconds=None if whole_s is None else SEARCH_SHARE * whole_s,
        whole_s=whole_s,
        trials=budget.trials,
        good_enough=good_enough,
    )
