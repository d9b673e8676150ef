"""What the time model needs of GPUs and their links. Not: memory to fit into, prices, names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveRate:
    """A line through measured all-reduces of ``ranks`` in one node, for one protocol.

    ``latency_s`` is the time of an empty buffer, ``link_fraction`` the bus bandwidth reached on
    long ones over the link's datasheet bandwidth.
    """

    ranks: int
    latency_s: float
    link_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What joins the GPUs of one node: one direction of one GPU, by its datasheet.

    A buffer takes the quickest protocol of those that ``rates`` has for its number of ranks.
    """

    bytes_per_s: float
    rates: tuple[tuple[CollectiveRate, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """A GPU. ``half_flops_per_s`` is dense and 16-bit, by the datasheet.

    Attributes:
        reached: the largest matrix product that was measured over ``half_flops_per_s``.
        fp8_flops_per_s: dense, by the datasheet; None where the GPU has no such unit.
        multiprocessors: units that take one tile of a product each.
        flash: part of ``reached`` that portable flash-attention kernels attain; 0 where they do
            not run (before compute capability 8.0).
    """

    name: str
    half_flops_per_s: float
    reached: float
    multiprocessors: int
    memory_bytes: float
    memory_bytes_per_s: float
    fp8_flops_per_s: float | None = None
    bf16: bool = True
    flash: float = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Equal nodes of equal GPUs.

    ``node_network_bytes_per_s`` is one direction of all network cards of a node together;
    ``network_quality`` what collectives reach of it over what they reach on InfiniBand.
    """

    accelerator: Accelerator
    gpus_per_node: int
    link: Link
    node_network_bytes_per_s: float
    network_quality: float = 1.0
