"""In which order nodes stand behind one another. Not: what lies on them.

Shapes: O = orders, N = nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

import numpy as np

from ..space import Ints
from .kinds import MachineKind

MOST_ORDERS = 2000


def node_orders(
    counts: Sequence[int], kinds: Sequence[MachineKind], most: int = MOST_ORDERS
) -> Ints:
    """Kinds of all nodes, in every distinct order: shape (orders, nodes).

    Where these are more than ``most``, each pair of a first and a last kind is tried with the
    nodes between them sorted by memory and by network, both ways, and all rotations.
    """
    if math.factorial(sum(counts)) // math.prod(map(math.factorial, counts)) <= most:
        return np.array(list(_all_orders(list(counts))), np.int64)
    return sorted_orders(counts, kinds)


def sorted_orders(counts: Sequence[int], kinds: Sequence[MachineKind]) -> Ints:
    """Orders in which nodes of a kind stand together, all but the first one and the last one."""
    used = [number for number, count in enumerate(counts) if count]
    found = dict.fromkeys(_with_ends(counts, kinds, used))
    for some in _sorted_kinds(used, kinds):
        found |= dict.fromkeys(map(tuple, rotations(counts, some).tolist()))
    return np.array(list(found), np.int64)


def rotations(counts: Sequence[int], kinds: Sequence[int] | None = None) -> Ints:
    """Nodes kind after kind, begun at each of them: FASOP's orders."""
    numbers = range(len(counts)) if kinds is None else kinds
    line = [number for number in numbers for _ in range(counts[number])]
    return np.unique([line[i:] + line[:i] for i in range(len(line))], axis=0)


def _all_orders(left: list[int]) -> Iterator[tuple[int, ...]]:
    """StagePlaces for the first kind among all nodes, then the others in what is free."""
    size = sum(left)
    if len(left) == 1:
        yield (0,) * size
        return
    for places in combinations(range(size), left[0]):
        for others in _all_orders(left[1:]):
            rest = iter(others)
            mine = frozenset(places)
            yield tuple(0 if place in mine else next(rest) + 1 for place in range(size))


def _sorted_kinds(used: Sequence[int], kinds: Sequence[MachineKind]) -> Iterator[list[int]]:
    by_memory = sorted(used, key=lambda number: kinds[number].memory_bytes)
    by_network = sorted(used, key=lambda number: kinds[number].machine.node_network_bytes_per_s)
    for some in (by_memory, by_network):
        yield some
        yield some[::-1]


def _with_ends(
    counts: Sequence[int], kinds: Sequence[MachineKind], used: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    pairs = [*permutations(used, 2), *((one, one) for one in used if counts[one] > 1)]
    for first, last in pairs:
        left = list(counts)
        left[first] -= 1
        left[last] -= 1
        for some in _sorted_kinds(used, kinds):
            middle = [number for number in some for _ in range(left[number])]
            yield (first, *middle, last)
