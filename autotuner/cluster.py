"""The machines of a launch as data. Not: how they are found (launcher), nor their speed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One slot: a GPU, or on a machine without any the share of one process of the CPU.

    Attributes:
        memory_bytes: what a rank may use; where ``emulated``, the rank must see to it itself.
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
    """One host with its slots in order."""

    host: str
    devices: tuple[Device, ...]


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
