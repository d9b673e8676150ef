"""The machines of a launch as data."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One slot: a GPU, or on a machine without any the share of one process of the CPU.

    Attributes:
        memory_bytes: what a rank may use; where ``emulated``, the rank must enforce it itself.
        slot: its number on its host.
        visible_as: its name in CUDA_VISIBLE_DEVICES; "" hides all GPUs, None says nothing.
    """

    name: str
    memory_bytes: int
    emulated: bool = False
    slot: int = 0
    visible_as: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One host with its slots in order.

    Attributes:
        link_bytes_per_s: between two of its slots, one direction; None where not known.
        link_latency_s: of one collective among them; None as link.
        network_bytes_per_s: all its network cards together, one direction; None as link.
        host_memory_bytes: memory beside that of its slots; None where not known.
        usd_per_hour: its price; None where not known.
    """

    host: str
    devices: tuple[Device, ...]
    link_bytes_per_s: float | None = None
    link_latency_s: float | None = None
    network_bytes_per_s: float | None = None
    host_memory_bytes: float | None = None
    usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """All nodes of a launch; they may differ."""

    nodes: tuple[Node, ...]

    @property
    def devices(self) -> tuple[Device, ...]:
        """Every slot, node after node."""
        return tuple(device for node in self.nodes for device in node.devices)

    @property
    def least_memory_bytes(self) -> int:
        """Memory of the smallest slot: what every rank must fit in."""
        return min(device.memory_bytes for device in self.devices)

    @property
    def least_host_memory_bytes(self) -> float | None:
        """Host memory of the node that has least; None where one is not known."""
        sizes = [node.host_memory_bytes for node in self.nodes]
        known = [size for size in sizes if size is not None]
        return min(known) if len(known) == len(sizes) else None

    @property
    def are_nodes_equal(self) -> bool:
        """Whether all nodes have the same GPUs, links and price, whatever their names."""
        return all(
            replace(node, host="") == replace(self.nodes[0], host="") for node in self.nodes
        )
