"""Seconds of collectives over links and networks. Not: which ones a layout needs (step).

Inside a node: lines through measured all-reduces, the quicker of the protocols for each size.
Across nodes: NCCL's rings, whose members in a node share its cards with the other groups there
(Thakur et al. 2005; NCCL tests, "Performance": bus bandwidth). A ring with one rank in each node
stays on one rail, the cards of equal number that share a leaf switch; with several ranks in each
of them it enters by one card and leaves by another, across the spine, where rings of other groups
are, too (NVIDIA, NCCL's documentation of NCCL_CROSS_NIC).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...table import Floats, Ints
from .hardware import Link, Machine
from .physics import Physics

ALL_REDUCE, GATHER = 2.0, 1.0
"""Passes of a ring over the buffer: reduce-scatter and all-gather, or one of them."""
_ONE_CARD_BYTES_PER_S = 12.5e9
"""Up to 100 Gb/s a node has one card, and there are no rails to cross."""
_RAILED_QUALITY = 1.0
"""Rails are how InfiniBand and RoCE are laid out; Omni-Path and Ethernet are plain trees."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """``ranks`` that stand ``stride`` apart, for each row."""

    ranks: Ints
    stride: Ints


def ring_s(
    machine: Machine,
    physics: Physics,
    group: Group,
    buffer_bytes: Floats,
    *,
    passes: float = ALL_REDUCE,
    pieces: int = 1,
) -> Floats:
    """A collective over ``buffer_bytes`` sent as so many pieces; 0 where a rank is alone."""
    ranks, stride = group.ranks, group.stride
    node = machine.gpus_per_node
    inside = np.clip(node // np.maximum(stride, 1), 1, ranks)
    nodes = np.ceil(ranks / inside)
    local = _link_s(machine.link, np.minimum(ranks, inside), buffer_bytes, passes)
    sharing = np.minimum(stride, node)
    network = _network_bytes_per_s(machine, physics) / sharing
    if _has_rails(machine):
        network = network * np.where((inside > 1) & (sharing > 1), physics.crossed_rails, 1.0)
    share = (ranks - 1) / np.maximum(ranks, 1)
    across = passes * share * buffer_bytes / network
    hops = np.log2(np.maximum(nodes, 2)) * physics.network_latency_s * passes
    if passes < ALL_REDUCE:
        hops = hops + pieces * ranks * physics.hop_s
    spread = np.maximum(across, local * (inside > 1)) + hops
    seconds = np.where(nodes > 1, spread, local)
    return np.where(ranks > 1, seconds, 0.0)


def all_to_all_s(machine: Machine, physics: Physics, group: Group, buffer_bytes: Floats) -> Floats:
    """Each rank sends ``1 / ranks`` of its buffer to each other one."""
    ranks, stride = group.ranks, group.stride
    node = machine.gpus_per_node
    inside = np.clip(node // np.maximum(stride, 1), 1, ranks)
    away = (ranks - inside) / np.maximum(ranks, 1)
    near = (inside - 1) / np.maximum(ranks, 1)
    network = _network_bytes_per_s(machine, physics) / node
    link = machine.link.bytes_per_s * _best_fraction(machine.link)
    seconds = np.maximum(buffer_bytes * near / link, buffer_bytes * away / network)
    return np.where(ranks > 1, seconds + physics.network_latency_s, 0.0)


def send_s(machine: Machine, physics: Physics, *, stride: Ints, buffer_bytes: Floats) -> Floats:
    """To the rank ``stride`` further; across nodes all GPUs of a node send at once."""
    node = machine.gpus_per_node
    network = _network_bytes_per_s(machine, physics) / node
    crosses = stride >= node
    rate = np.where(crosses, network, machine.link.bytes_per_s * 0.6)
    return np.asarray(buffer_bytes / rate + physics.network_latency_s)


def _has_rails(machine: Machine) -> bool:
    several_cards = machine.node_network_bytes_per_s > _ONE_CARD_BYTES_PER_S
    return several_cards and machine.network_quality >= _RAILED_QUALITY


def _network_bytes_per_s(machine: Machine, physics: Physics) -> float:
    reached = physics.network_fraction * machine.network_quality
    return machine.node_network_bytes_per_s * reached


def _link_s(link: Link, ranks: Ints, buffer_bytes: Floats, passes: float) -> Floats:
    """The quickest protocol's line; between measured numbers of ranks it is interpolated."""
    counts = np.arange(int(ranks.max(initial=1)) + 1)
    share = passes * (counts - 1) / np.maximum(counts, 1)
    best: Floats | None = None
    for protocol in link.rates:
        known = [float(rate.ranks) for rate in protocol]
        latency = np.interp(counts, known, [rate.latency_s for rate in protocol])
        fraction = np.interp(counts, known, [rate.link_fraction for rate in protocol])
        start, each = latency * passes / 2, share / (link.bytes_per_s * fraction)
        taken = start[ranks] + each[ranks] * buffer_bytes
        best = taken if best is None else np.minimum(best, taken)
    assert best is not None
    return best


def _best_fraction(link: Link) -> float:
    return max(rate.link_fraction for protocol in link.rates for rate in protocol)
