"""The time that a command may take: one clock from its start and one deadline for every stage."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from autoconf_launch.core import ClusterSpec, NothingFeasibleError

from ..estimates import choose_price
from ..request import LaunchRequest


class BudgetSpentError(NothingFeasibleError):
    """The budget ended, or has no room for the next step, before anything was measured."""


_ENDING_S, _ENDING_SHARE = 3.0, 0.05
"""Time that is kept for ending launches and writing results, at most this share of a budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBudget:
    """The whole command counts: profile runs, trials, playoff, verification.

    Attributes:
        whole_s: from the command's start to its end, in seconds; infinite without a limit.
        began_s: the command's start on ``clock``.
    """

    whole_s: float = math.inf
    began_s: float = field(default_factory=time.monotonic)
    clock: Callable[[], float] = time.monotonic

    @property
    def spent_s(self) -> float:
        return self.clock() - self.began_s

    @property
    def ending_s(self) -> float:
        """Seconds that are kept after all launches."""
        return min(_ENDING_S, _ENDING_SHARE * self.whole_s)

    @property
    def end_s(self) -> float:
        """Seconds since the command's start at which any launch is ended."""
        return self.whole_s - self.ending_s

    @property
    def deadline_s(self) -> float:
        """The same time on ``clock``."""
        return self.began_s + self.end_s

    @property
    def left_s(self) -> float:
        """Seconds that launches may still take."""
        return self.end_s - self.spent_s


def read_time_budget(
    request: LaunchRequest, cluster: ClusterSpec, began_s: float | None = None
) -> TimeBudget:
    """The user's time; money as time at the price of the machine.

    Raises:
        ConfigError: money is limited, but the machine has no price.
    """
    budget = request.limits
    price = None if budget.usd is None else choose_price(None, cluster)
    usd_per_hour = price.usd_per_gpu_hour * len(cluster.devices) if price else None
    whole_s = budget.limit_s(usd_per_hour)
    return TimeBudget(
        whole_s=math.inf if whole_s is None else whole_s,
        began_s=time.monotonic() if began_s is None else began_s,
    )
