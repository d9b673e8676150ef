"""The machines of a launch as data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

GIB = 2**30
_SAME_FREE = 0.05
"""Difference of free memory, a share of all, up to which two GPUs are alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A slot: a GPU, or one process's share of the CPU on a machine without GPUs.

    Attributes:
        memory_bytes: memory that a rank may use; if ``emulated``, the rank must enforce it itself.
        slot: its number on its host.
        visible_as: its name in CUDA_VISIBLE_DEVICES; "" hides all GPUs, None says nothing.
        free_bytes: memory that no process held when the launch began; None if unknown.
        exclusive: only one process at a time can use it.

    Its name and the memory that is free at the moment do not make a GPU a different one.
    """

    name: str
    memory_bytes: int
    emulated: bool = False
    slot: int = 0
    visible_as: str | None = field(default=None, compare=False)
    free_bytes: int | None = field(default=None, compare=False)
    exclusive: bool = False

    @property
    def is_cpu(self) -> bool:
        """True if the slot is a process's share of a CPU."""
        return self.name.startswith("cpu")

    @property
    def usable_bytes(self) -> int:
        """Memory that a rank can have: its own, less the part that others held at first."""
        free = self.memory_bytes if self.free_bytes is None else self.free_bytes
        return min(self.memory_bytes, free)

    def is_like(self, other: Device) -> bool:
        """True if a trial measures the same on both slots: equal GPUs with equal free memory."""
        difference = abs(self.usable_bytes - other.usable_bytes)
        alike = (self.name, self.memory_bytes) == (other.name, other.memory_bytes)
        return alike and difference <= _SAME_FREE * self.memory_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRates:
    """Rates of a GPU as a cluster file describes them; None: not described.

    Attributes:
        peak_tflops: dense 16-bit products, by the datasheet.
        fp32_tflops, tf32_tflops, fp8_tflops, fp4_tflops: products in other formats, likewise.
        bandwidth_gb_per_s: its memory, by the datasheet.
        multiprocessors: units that take one tile of a product each.
        reached_tflops: the fastest 16-bit product that was measured.
        attention_tflops, attention_backward_tflops: causal attention as measured, of the
            operations that the mask leaves.
        all_reduce_gb_per_s, all_reduce_us: bus bandwidth of long all-reduces in a node, and the
            time of an empty one.
        host_link_gb_per_s: copies between its memory and the host's.
    """

    peak_tflops: float | None = None
    fp32_tflops: float | None = None
    tf32_tflops: float | None = None
    fp8_tflops: float | None = None
    fp4_tflops: float | None = None
    bandwidth_gb_per_s: float | None = None
    multiprocessors: int | None = None
    reached_tflops: float | None = None
    attention_tflops: float | None = None
    attention_backward_tflops: float | None = None
    all_reduce_gb_per_s: float | None = None
    all_reduce_us: float | None = None
    host_link_gb_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A host with its slots in order.

    Attributes:
        link_bytes_per_s: between two of its slots, one direction; None if not known.
        link_latency_s: of one collective among them; None as link.
        network_bytes_per_s: all its network cards together, one direction; None as link.
        fabric: name of the network between nodes; None: it blocks nothing.
        host_memory_bytes: memory of the host, besides its slots' memory; None if not known.
        usd_per_hour: price of the whole node; None if not known.
        paid_slots: GPUs of the whole node, which are all paid, if only some of them are slots;
            None: its slots.
        gpu_rates: rates that replace the rates of our tables; None: only our tables count.
    """

    host: str
    devices: tuple[Device, ...]
    link_bytes_per_s: float | None = None
    link_latency_s: float | None = None
    network_bytes_per_s: float | None = None
    fabric: str | None = None
    host_memory_bytes: float | None = None
    usd_per_hour: float | None = None
    paid_slots: int | None = None
    gpu_rates: GpuRates | None = None

    @property
    def rented_slots(self) -> int:
        """GPUs that are paid for, whether they are used or not."""
        return self.paid_slots or len(self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeKind:
    """Equal nodes of a cluster: GPU, number of GPUs, links, memory and price together.

    Attributes:
        node: any of these nodes, without a host's name.
        count: how many the cluster has.
    """

    node: Node
    count: int

    @property
    def gpu(self) -> str:
        return self.node.devices[0].name

    @property
    def name(self) -> str:
        """``4xA10G-24GB``: a node of this kind."""
        return f"{len(self.node.devices)}x{self.gpu}"


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
        """Usable memory of the smallest slot: the limit of every rank."""
        return min(device.usable_bytes for device in self.devices)

    @property
    def least_host_memory_bytes(self) -> float | None:
        """Host memory of the node that has least; None if any is unknown."""
        sizes = [node.host_memory_bytes for node in self.nodes]
        known = [size for size in sizes if size is not None]
        return min(known) if len(known) == len(sizes) else None

    @property
    def are_nodes_equal(self) -> bool:
        """True if all nodes have the same GPUs, links and price, whatever their names."""
        return all(
            replace(node, host="") == replace(self.nodes[0], host="") for node in self.nodes
        )

    @property
    def kinds(self) -> tuple[NodeKind, ...]:
        """Distinct nodes, in the order of their first occurrence."""
        counts = Counter(replace(node, host="") for node in self.nodes)
        return tuple(NodeKind(node=node, count=count) for node, count in counts.items())

    @property
    def node_kinds(self) -> tuple[int, ...]:
        """Number of each node's kind in :attr:`kinds`."""
        numbers = {kind.node: number for number, kind in enumerate(self.kinds)}
        return tuple(numbers[replace(node, host="")] for node in self.nodes)
