"""Layers of each pipeline stage on nodes that differ.

A stage takes ``fixed + layer * n`` for n layers, and has room for ``most``. Stages of a chain may
be in two groups, of an encoder and of a decoder, each with its own layers.

The smallest bottleneck tau for which all layers find a place is found by bisection: stage s then
has ``min((tau - fixed) // layer, most)`` of them, and surplus layers come off the slowest stages.
A step takes about (m - 1) tau and the sum of all stages, so that a larger tau may be better, which
has more layers on the fastest stages: the values of tau above the smallest are tried in turn until
``(m - 1)(tau - tau_0)`` exceeds what the sum can still fall by. That is exact for this sum. The
caller's price decides among them, and then single layers move while that helps.

Source:
    Pinar and Aykanat 2004, "Fast optimal load balancing algorithms for 1D partitioning"
    (bracketing and probing the bottleneck).

Shapes: R = rows, S = stages, G = groups.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from ..space import Bools, Floats, Ints

SplitPrice: TypeAlias = Callable[[Ints, Ints], Floats]
"""Seconds of a step for some rows, by number, and the layers of their stages."""

_ROUNDING = 1e-9
_MOST_TAUS = 32
_CELLS = 1 << 22
_FEW_STAGES = 5
"""Most stages for which two layers are also moved at once."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chains:
    """Pipelines of equally many stages, each a row.

    Attributes:
        fixed_s_RS: of a micro-batch on each stage, whatever its layers.
        layer_s_RS: of a micro-batch on each layer of it.
        most_RS: layers that a stage has room for.
        layers: of each group, first group first.
        late_RS: whether a stage is of the second group; None with one group.
        count_R: micro-batches of a step.
    """

    fixed_s_RS: Floats
    layer_s_RS: Floats
    most_RS: Ints
    layers: tuple[int, ...]
    count_R: Ints | Floats
    late_RS: Bools | None = None

    def take(self, rows: Ints | Bools) -> Chains:
        return replace(
            self,
            fixed_s_RS=self.fixed_s_RS[rows],
            layer_s_RS=self.layer_s_RS[rows],
            most_RS=self.most_RS[rows],
            count_R=self.count_R[rows],
            late_RS=None if self.late_RS is None else self.late_RS[rows],
        )

    @property
    def groups(self) -> list[tuple[int, Bools]]:
        """Layers of each group, and which stages are its own."""
        if self.late_RS is None:
            return [(self.layers[0], np.ones(self.most_RS.shape, np.bool_))]
        return [(self.layers[0], ~self.late_RS), (self.layers[1], self.late_RS)]

    @property
    def bound_s_R(self) -> Floats:
        """Lower bound of the bottleneck: of layers that could be cut."""
        least = (self.fixed_s_RS + self.layer_s_RS).max(axis=1)
        for layers, mine in self.groups:
            each = np.where(mine, 1.0 / self.layer_s_RS, 0.0)
            cut = (layers + (self.fixed_s_RS * each).sum(axis=1)) / each.sum(axis=1)
            least = np.maximum(least, cut)
        return np.asarray(least)

    @property
    def step_bound_s_R(self) -> Floats:
        """Seconds that no step of a row is below, whatever its split.

        The slowest stage works off all micro-batches, and the first one passes every layer.
        """
        fastest = self.layer_s_RS.min(axis=1)
        rest = sum(self.layers) - self.layer_s_RS.shape[1]
        once = (self.fixed_s_RS + self.layer_s_RS).sum(axis=1) + rest * fastest
        return np.asarray(np.maximum(self.count_R * self.bound_s_R, once))

    def stage_s(self, layers_RS: Ints) -> Floats:
        """Seconds of each stage."""
        return np.asarray(self.fixed_s_RS + self.layer_s_RS * layers_RS)

    def is_full(self, layers_RS: Ints) -> Bools:
        """True if all layers are placed."""
        full = np.ones(len(layers_RS), np.bool_)
        for layers, mine in self.groups:
            full &= np.where(mine, layers_RS, 0).sum(axis=1) >= layers
        return full

    def within(self, tau_s_R: Floats) -> Ints:
        """Most layers of each stage that end within ``tau``."""
        room = (tau_s_R[:, None] - self.fixed_s_RS) / self.layer_s_RS * (1 + _ROUNDING)
        return np.minimum(np.floor(room + _ROUNDING), self.most_RS).astype(np.int64)

    def without_surplus(self, layers_RS: Ints) -> Ints:
        """Exactly the layers that there are: the slowest stages give theirs away, all but one."""
        slowest = np.argsort(-self.layer_s_RS, axis=1, kind="stable")
        kept = layers_RS.copy()
        for layers, mine in self.groups:
            spare = np.where(mine, layers_RS - 1, 0)
            surplus = np.where(mine, layers_RS, 0).sum(axis=1) - layers
            spare = np.take_along_axis(spare, slowest, axis=1)
            given = np.cumsum(spare, axis=1) - spare
            off = np.clip(surplus[:, None] - given, 0, spare)
            back = np.empty_like(off)
            np.put_along_axis(back, slowest, off, axis=1)
            kept -= back
        return kept


def feasible_rows(chains: Chains) -> Bools:
    """Rows in which each stage has a layer, and all layers have a place."""
    has_one = (chains.most_RS >= 1).all(axis=1)
    for layers, mine in chains.groups:
        stages = mine.sum(axis=1)
        has_one &= (stages >= 1) & (stages <= layers)
    return has_one & chains.is_full(chains.most_RS)


def smallest_bottleneck(chains: Chains) -> Floats:
    """The exact smallest tau of each feasible row, some ``fixed + layer * n``."""
    low = chains.bound_s_R
    slowest = np.minimum(chains.most_RS, sum(chains.layers))
    highest = chains.stage_s(slowest).max(axis=1)
    high = np.minimum(low + chains.layer_s_RS.max(axis=1), highest)
    high = np.where(chains.is_full(chains.within(high)), high, highest)
    low = low * (1 - 4 * _ROUNDING)
    rows = np.arange(len(low))
    while len(rows):
        some = chains.take(rows)
        middle = 0.5 * (low[rows] + high[rows])
        held = some.within(middle)
        full = some.is_full(held)
        reached = some.stage_s(np.maximum(held, 1)).max(axis=1)
        high[rows] = np.where(full, reached, high[rows])
        low[rows] = np.where(full, low[rows], middle)
        above = _next_tau(some, some.within(low[rows]))
        rows = rows[above * (1 + _ROUNDING) < high[rows]]
    return np.asarray(high)


def _next_tau(chains: Chains, held_RS: Ints) -> Floats:
    """The smallest value of tau at which a stage has one layer more."""
    more = chains.stage_s(held_RS + 1)
    return np.asarray(np.where(held_RS < chains.most_RS, more, np.inf).min(axis=1))


def split_layers(chains: Chains, price: SplitPrice) -> tuple[Ints, Floats]:
    """The cheapest split of each feasible row, and its price.

    Args:
        chains: feasible rows only.
        price: prices a split, by the numbers of rows in ``chains``.
    """
    tau_0 = smallest_bottleneck(chains)
    held = chains.within(tau_0)
    best = chains.without_surplus(held)
    rows = np.arange(len(best))
    best_s = price(rows, best)
    fastest = chains.without_surplus(np.minimum(chains.most_RS, sum(chains.layers)))
    least = chains.stage_s(fastest).sum(axis=1)
    sums = chains.stage_s(best).sum(axis=1)
    _keep_better(price, rows, fastest, best, best_s)
    tau = tau_0
    for _ in range(_MOST_TAUS):
        some = chains.take(rows)
        tau = _next_tau(some, held)
        gain = sums[rows] - least[rows]
        rise = np.where(np.isfinite(tau), tau - tau_0[rows], 0.0)
        going = (chains.count_R[rows] - 1) * rise < gain * (1 - _ROUNDING)
        going &= np.isfinite(tau) & (gain > 0) & (chains.count_R[rows] > 1)
        rows, tau, some = rows[going], tau[going], some.take(going)
        if not len(rows):
            break
        held = some.within(tau)
        tried = some.without_surplus(held)
        _keep_better(price, rows, tried, best, best_s)
    return best, best_s


def _keep_better(price: SplitPrice, rows: Ints, tried: Ints, best: Ints, best_s: Floats) -> None:
    new_s = price(rows, tried)
    better = new_s < best_s[rows]
    best[rows[better]] = tried[better]
    best_s[rows[better]] = new_s[better]


def move_layers(
    chains: Chains, price: SplitPrice, layers_RS: Ints, rows: Ints
) -> tuple[Ints, Floats]:
    """Move layers between stages of some rows, one by one, while that makes a step shorter.

    Args:
        chains: all rows.
        price: prices a split, by the numbers of rows in ``chains``.
        layers_RS: a split of each of ``rows``.
        rows: numbers of the rows to look at.
    """
    best, best_s = layers_RS.copy(), price(rows, layers_RS)
    steps = _moves(layers_RS.shape[1])
    going = np.arange(len(rows))
    at_once = max(1, _CELLS // max(1, steps.size))
    while len(going):
        moved = [
            _best_move(chains, price, best[part], rows[part], steps)
            for part in np.array_split(going, -(-len(going) // at_once))
        ]
        tried = np.concatenate([one for one, _ in moved])
        tried_s = np.concatenate([seconds for _, seconds in moved])
        better = tried_s < best_s[going] * (1 - _ROUNDING)
        going = going[better]
        best[going], best_s[going] = tried[better], tried_s[better]
    return best, best_s


def _moves(stages: int) -> Ints:
    """Changes of one moved layer; with few stages also of two."""
    from_stage, to_stage = np.nonzero(~np.eye(stages, dtype=np.bool_))
    steps = np.zeros((len(from_stage), stages), np.int64)
    steps[np.arange(len(from_stage)), from_stage] = -1
    steps[np.arange(len(from_stage)), to_stage] = 1
    if stages > _FEW_STAGES:
        return steps
    pairs = (steps[:, None] + steps).reshape(-1, stages)
    both = np.unique(np.vstack([steps, pairs]), axis=0)
    return np.asarray(both[both.any(axis=1)], np.int64)


def _best_move(
    chains: Chains, price: SplitPrice, layers_RS: Ints, rows: Ints, steps: Ints
) -> tuple[Ints, Floats]:
    """The best of all moves of one layer, for each row; infinite if none is possible."""
    tried = layers_RS[:, None, :] + steps
    allowed = ((tried >= 1) & (tried <= chains.most_RS[rows][:, None, :])).all(axis=2)
    for layers, mine in chains.take(rows).groups:
        allowed &= np.where(mine[:, None, :], tried, 0).sum(axis=2) == layers
    row, move = np.nonzero(allowed)
    seconds = np.full(allowed.shape, np.inf)
    if len(row):
        seconds[row, move] = price(rows[row], tried[row, move])
    if not steps.size:
        return layers_RS, np.full(len(rows), np.inf)
    first = seconds.argmin(axis=1)
    each = np.arange(len(rows))
    return tried[each, first], seconds[each, first]
