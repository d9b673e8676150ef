"""Which slots and kinds of node the ranks of a layout lie on, by the order of nodes."""

from __future__ import annotations

from collections.abc import Sequence

from autoconf_launch.core import ClusterSpec

from .kinds import MachineKind


def placement(cluster: ClusterSpec, order: Sequence[int]) -> tuple[int, ...]:
    """The slot of each rank, as a number among all slots of the cluster.

    Of each kind the nodes that stand first in the cluster are taken.

    Args:
        cluster: all nodes.
        order: the kind of each node, by its number in ``cluster.kinds``.
    """
    slots_of_kind: list[list[range]] = [[] for _ in cluster.kinds]
    first = 0
    for node, kind in zip(cluster.nodes, cluster.node_kinds, strict=True):
        slots_of_kind[kind].append(range(first, first + len(node.devices)))
        first += len(node.devices)
    nodes = [iter(slots) for slots in slots_of_kind]
    return tuple(slot for kind in order for slot in next(nodes[kind]))


def stage_kinds(
    order: Sequence[int], kinds: Sequence[MachineKind], stages: int
) -> list[tuple[int, ...]]:
    """Kinds of the nodes that each stage lies on, in the order of its ranks."""
    slots = [kind for kind in order for _ in range(kinds[kind].gpus)]
    size = len(slots) // stages
    return [tuple(dict.fromkeys(slots[s * size : (s + 1) * size])) for s in range(stages)]
