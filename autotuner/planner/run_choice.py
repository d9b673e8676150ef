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

from autoconf_launch.core import Layout

from ..cost import ErrorBelief, LayoutColumns
from ..measurement import chance_below
from ..space import Bools, Floats, Ints
from .own_runs import OwnRuns
from .search import Planned, Training
from .smaller_runs import SmallerRun, smaller_runs

_MOST_RIVALS = 4
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCosts:
    """What a run takes beside its steps.

    Attributes:
        start_s: from its start to its first step.
        usd_per_gpu_hour: whole nodes are paid; None where no price is known.
        memory_bytes: that a rank has.
    """

    start_s: float
    usd_per_gpu_hour: float | None
    memory_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyingRun:
    """A run that narrows the prediction of the chosen layout.

    Attributes:
        usd: None where no price is known.
        narrowing: spread of the chosen layout's error expected after this run and those before
            it, over the spread without any run.
    """

    run: SmallerRun
    usd: float | None
    narrowing: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The runs in the order in which they are worth their money.

    Attributes:
        narrowing: as above, now.
        pool: different runs that could be made.
        cheapest_usd: of the cheapest of these; None where there is none, or no price.
    """

    narrowing: float
    runs: tuple[VerifyingRun, ...]
    pool: int
    cheapest_usd: float | None


def verifying_runs(
    training: Training, layouts: tuple[Planned, ...], costs: RunCosts, bounds: Bounds
) -> Verification:
    """The runs that narrow the prediction of the first layout most for their money.

    Args:
        training: with the runs that are measured already, or :meth:`OwnRuns.none`.
        layouts: the chosen one, then its near rivals.
        costs: of a run.
        bounds: money only where there is a price.
    """
    assert training.runs is not None
    names = [one.layout for one in layouts]
    every = smaller_runs(training, names, costs.memory_bytes, costs.start_s)
    runs = _cheapest_alike(training, training.runs, every)
    hourly = costs.usd_per_gpu_hour or 1.0
    each = training.machine.gpus_per_node
    usd_P = np.array([hourly * each * run.nodes * run.seconds / 3600 for run in runs])
    belief = _belief(training, training.runs, [*names, *(run.layout for run in runs)])
    first, *rivals = (one.step_s / one.correction for one in layouts)
    pool = RunPool(
        belief=belief, log_slower_V=np.log(np.array(rivals, np.float64) / first), usd_P=usd_P
    )
    chosen = choose_runs(pool, bounds)
    has_price = costs.usd_per_gpu_hour is not None
    return Verification(
        narrowing=layouts[0].narrowing,
        runs=tuple(
            VerifyingRun(
                run=runs[number],
                usd=float(usd_P[number]) if has_price else None,
                narrowing=layouts[0].narrowing * left,
            )
            for number, left in zip(chosen, _spreads_left(pool, chosen), strict=True)
        ),
        pool=len(runs),
        cheapest_usd=float(usd_P.min()) if has_price and len(runs) else None,
    )


def near_rivals(layouts: tuple[Planned, ...], error: float) -> tuple[Planned, ...]:
    """Layouts after the first one that its error band cannot tell from it, a few at most."""
    slowest_s = layouts[0].step_s * (1.0 + error)
    return tuple(one for one in layouts[1:] if one.step_s <= slowest_s)[:_MOST_RIVALS]


def _cheapest_alike(
    training: Training, known: OwnRuns, runs: tuple[SmallerRun, ...]
) -> tuple[SmallerRun, ...]:
    """The first of those that say the same by the model of errors."""
    if not runs:
        return ()
    columns = LayoutColumns.from_layouts([run.layout for run in runs])
    alike = known.likeness(columns, training.workload, training.machine)
    shared = np.column_stack([alike.levels_RL, alike.are_over_nodes_R, alike.places_RD])
    first = np.unique(shared[: len(runs)], axis=0, return_index=True)[1]
    return tuple(runs[number] for number in np.sort(first))


def _belief(training: Training, known: OwnRuns, layouts: list[Layout]) -> ErrorBelief:
    """What is known of layouts, without the rows of the runs that are measured already."""
    columns = LayoutColumns.from_layouts(layouts)
    belief = known.belief(columns, training.workload, training.machine)
    count = len(layouts)
    return ErrorBelief(
        mean_R=belief.mean_R[:count],
        covariance_RR=belief.covariance_RR[:count, :count],
        noise=belief.noise,
    )


def _spreads_left(pool: RunPool, chosen: Ints) -> list[float]:
    """Spread of the chosen layout's error after each run, over the one now."""
    now, belief = pool.belief.spread(0), pool.belief
    left: list[float] = []
    for number in chosen.tolist():
        row = np.array([pool.first_run + number])
        belief = belief.after(row, belief.mean_R[row])
        left.append(belief.spread(0) / now)
    return left


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
