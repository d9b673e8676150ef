"""What joins the slots of a machine at hand, by the name that its driver gives. Not: clusters.

GPUs have the links that nodes of theirs have usually; processes of a CPU speak through loopback.
"""

from __future__ import annotations

from dataclasses import replace

from autoconf_launch.core import Node

from .machines import known_accelerator, machine

_LOOPBACK_BYTES_PER_S = 0.3e9
_LOOPBACK_LATENCY_S = 1.5e-3
"""Rates of gloo while its ranks compute on the same cores: what ZeRO 1 to 3 took longer than
ZeRO 0 in benchmarks/results/deepspeed_peer_2cpu.json (2 ranks; alone they reach 1 GB/s and
0.35 ms)."""


def with_links(node: Node) -> Node:
    """The node with the rate and latency of collectives among its slots; as it is if unknown."""
    names = {device.name for device in node.devices}
    if all(name.startswith("cpu") for name in names):
        return replace(
            node, link_bytes_per_s=_LOOPBACK_BYTES_PER_S, link_latency_s=_LOOPBACK_LATENCY_S
        )
    if len(names) != 1 or known_accelerator(name := names.pop()) is None:
        return node
    link = machine(name).link
    count = len(node.devices)
    rates = [min(protocol, key=lambda rate: abs(rate.ranks - count)) for protocol in link.rates]
    return replace(
        node,
        link_bytes_per_s=link.bytes_per_s * max(rate.link_fraction for rate in rates),
        link_latency_s=min(rate.latency_s for rate in rates),
    )
