"""Which real runs narrow a prediction most for their money.

The first row of a belief is the chosen layout, the next ones are its near rivals, and the rest are
runs that could be made. A run is worth what it takes from the variance of the chosen layout's time
and from the variance of how much slower each rival is, weighed by the chance that this rival is
the faster one; so a run that may change the choice is worth more than one that cannot.
Shapes: R = rows of the belief, T = targets (weighed sums of rows), P = runs of the pool.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..cost import ErrorBelief
from ..measurement import chance_below
from ..space import Bools, Floats, Ints

_LEAST_GAIN = 0.02
"""Share of the targets' variance below which a further run is not worth its trouble."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunPool:
    """Runs to choose from.

    Attributes:
        belief: of the chosen layout, its rivals and the runs, in this order.
        log_slower_V: logarithm of each rival's predicted seconds over the chosen layout's.
        usd_P: money of each run, above 0.
    """

    belief: ErrorBelief
    log_slower_V: Floats
    usd_P: Floats

    @property
    def first_run(self) -> int:
        """Row of the pool's first run."""
        return 1 + len(self.log_slower_V)

    def targets(self) -> Floats:
        """A row of weights for each target, (T, R)."""
        covariance_RR, mean_R = self.belief.covariance_RR, self.belief.mean_R
        targets_TR = np.zeros((self.first_run, len(mean_R)))
        targets_TR[0, 0] = 1.0
        for rival, log_slower in enumerate(self.log_slower_V, start=1):
            apart = np.zeros(len(mean_R))
            apart[[0, rival]] = -1.0, 1.0
            spread = np.sqrt(max(float(apart @ covariance_RR @ apart), 1e-12))
            gap = float(log_slower + apart @ mean_R)
            targets_TR[rival] = np.sqrt(chance_below(np.array(-gap / spread))) * apart
        return targets_TR


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the runs may take: a number of them, or money; None where the other one bounds it."""

    runs: int | None = None
    usd: float | None = None


def variance(belief: ErrorBelief, targets_TR: Floats) -> float:
    """All targets' variance together."""
    return float(np.einsum("tr,rs,ts->", targets_TR, belief.covariance_RR, targets_TR))


def fall(pool: RunPool, runs: Ints) -> float:
    """By how much some runs of the pool reduce the targets' variance, whatever they measure."""
    targets_TR = pool.targets()
    rows = pool.first_run + runs
    after = pool.belief.after(rows, pool.belief.mean_R[rows])
    return variance(pool.belief, targets_TR) - variance(after, targets_TR)


def choose_runs(pool: RunPool, bounds: Bounds) -> Ints:
    """Numbers of runs, the one with the largest fall for its money first.

    Where money bounds them, the better of two choices: by the fall for the money, and by the fall
    alone (Leskovec et al. 2007, "Cost-effective outbreak detection in networks").
    """
    by_money = _choose(pool, bounds, lambda fall_P: fall_P / pool.usd_P)
    if bounds.usd is None:
        return by_money
    by_fall = _choose(pool, bounds, lambda fall_P: fall_P)
    return max(by_money, by_fall, key=lambda runs: fall(pool, runs))


def _choose(pool: RunPool, bounds: Bounds, worth: Callable[[Floats], Floats]) -> Ints:
    belief, targets_TR, chosen = pool.belief, pool.targets(), list[int]()
    least = _LEAST_GAIN * variance(belief, targets_TR)
    while (bounds.runs is None or len(chosen) < bounds.runs) and len(chosen) < len(pool.usd_P):
        fall_P = _falls(belief, targets_TR)[pool.first_run :]
        is_open_P = _affordable(pool, bounds, chosen) & (fall_P >= least)
        if not is_open_P.any():
            break
        chosen.append(int(np.where(is_open_P, worth(fall_P), -np.inf).argmax()))
        row = np.array([pool.first_run + chosen[-1]])
        belief = belief.after(row, belief.mean_R[row])
    return np.array(chosen, np.int64)


def _affordable(pool: RunPool, bounds: Bounds, chosen: list[int]) -> Bools:
    left = np.inf if bounds.usd is None else bounds.usd - float(pool.usd_P[chosen].sum())
    is_open_P = pool.usd_P <= left + 1e-9
    is_open_P[chosen] = False
    return np.asarray(is_open_P)


def _falls(belief: ErrorBelief, targets_TR: Floats) -> Floats:
    """By how much a run of each row alone reduces the targets' variance."""
    shared_TR = targets_TR @ belief.covariance_RR
    own_R = np.diag(belief.covariance_RR) + belief.noise**2
    return np.asarray(np.square(shared_TR).sum(axis=0) / own_R)
