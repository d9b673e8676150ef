"""Clusters by short names, and what their GPUs can hold. Not: reading of files, nor speed.

``8xA100-SXM-80GB`` is one node, ``64x8xH100-SXM-80GB`` are 64 of them.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from autoconf_launch.core import ClusterSpec, ConfigError, Device, Node, RawConfig, nearest_known

from .machines import known_accelerator, machine, unknown_gpu

MOST_GPUS = 1 << 20
_HBM_SHARE = 0.9875
"""Share of a datasheet's memory (in GiB) that a process can have: 79.1 of an A100's 80, 15.8 of a
V100's 16 (torch.cuda.get_device_properties)."""
_GDDR_SHARE = 0.92
"""The same where error correction takes its part from memory: 14.7 of a T4's 16, 22.1 of 24."""
_LEAST_MEMORY_GIB = 0.001
_GDDR = frozenset(
    {"T4-16GB", "A10-24GB", "A10G-24GB", "L4-24GB", "L40-48GB", "L40S-48GB", "A40-48GB"}
)


def parse_cluster(text: str) -> ClusterSpec:
    """Nodes of ``[NODESx]GPUSxGPU``, or of a GPU's name alone: one of it.

    Raises:
        ConfigError: another form, an unknown GPU, or too many of them.
    """
    found = re.fullmatch(r"(?:(\d+)x)?(?:(\d+)x)?([A-Za-z].*)", text.strip())
    if not found:
        raise ConfigError(
            f"Cluster {text!r} is none; write for example 8xA100-SXM-80GB or 64x8xH100-SXM-80GB."
        )
    first, second, gpu = found.groups()
    nodes, each = (int(first), int(second)) if second else (1, int(first or 1))
    return equal_nodes(nodes, each, gpu)


def cluster_template() -> str:
    """A cluster file with every key and what it means."""
    return (Path(__file__).parent / "cluster.template.yaml").read_text(encoding="utf-8")


def equal_nodes(nodes: int, gpus: int, gpu: str) -> ClusterSpec:
    """Equal nodes with their usual links.

    Raises:
        ConfigError: an unknown GPU, or a count that is out of range.
    """
    if nodes < 1 or gpus < 1 or nodes * gpus > MOST_GPUS:
        raise ConfigError(
            f"{nodes} x {gpus} GPUs are out of range; a cluster has 1 to {MOST_GPUS} GPUs."
        )
    devices = _devices(gpu, gpus)
    return ClusterSpec(nodes=tuple(_node(f"node{i}", gpu, devices) for i in range(nodes)))


def usable_bytes(gpu: str) -> int:
    """Memory that a process can have on a GPU.

    Raises:
        ConfigError: the GPU is unknown.
    """
    name = known_accelerator(gpu)
    if name is None:
        raise unknown_gpu(gpu)
    share = _GDDR_SHARE if name in _GDDR else _HBM_SHARE
    return int(machine(name).accelerator.memory_bytes * share)


def cluster_of_document(document: RawConfig) -> ClusterSpec:
    """Nodes of a document, whose ``nodes`` is a list of groups of equal nodes.

    A group has ``gpu`` and what differs from usual: ``count`` (1), ``gpus`` (8), ``memory_gib``,
    ``link_gb_per_s`` and ``network_gb_per_s`` (of a GPU, one direction), ``usd_per_hour`` (of a
    node).

    Raises:
        ConfigError: a key is unknown, missing or has a wrong value.
    """
    groups = document.get(("nodes",))
    if not isinstance(groups, list) or not groups:
        raise ConfigError("nodes must be a list of groups, such as [{gpu: T4-16GB, count: 4}].")
    nodes: list[Node] = []
    for number, group in enumerate(groups):
        if not isinstance(group, dict):
            raise ConfigError(f"nodes[{number}] is {group!r}, but must be a section.")
        nodes += _group(RawConfig(group), number, len(nodes))
    if sum(len(node.devices) for node in nodes) > MOST_GPUS:
        raise ConfigError(f"nodes have more than {MOST_GPUS} GPUs in all.")
    return ClusterSpec(nodes=tuple(nodes))


_KEYS = {
    "gpu",
    "count",
    "gpus",
    "memory_gib",
    "link_gb_per_s",
    "network_gb_per_s",
    "usd_per_hour",
}


def _group(group: RawConfig, number: int, before: int) -> list[Node]:
    where = f"nodes[{number}]"
    for key in group.to_dict():
        if key not in _KEYS:
            raise ConfigError(f"{where}.{key} is unknown; {nearest_known(str(key), _KEYS)}")
    gpu = group.get(("gpu",))
    if not isinstance(gpu, str):
        raise ConfigError(f"{where}.gpu is {gpu!r}, but must name a GPU.")
    count, gpus = _whole(group, where, "count", 1), _whole(group, where, "gpus", 8)
    if count * gpus > MOST_GPUS:
        raise ConfigError(f"{where} has more than {MOST_GPUS} GPUs.")
    memory = _number(group, where, "memory_gib")
    if memory is not None and memory < _LEAST_MEMORY_GIB:
        raise ConfigError(
            f"{where}.memory_gib is {memory!r}, but must be at least {_LEAST_MEMORY_GIB}."
        )
    devices = _devices(gpu, gpus, round(memory * 2**30) if memory else None)
    link, network = (
        _number(group, where, "link_gb_per_s"),
        _number(group, where, "network_gb_per_s"),
    )
    usual = machine(gpu)
    price = _number(group, where, "usd_per_hour")
    return [
        Node(
            host=f"node{before + i}",
            devices=devices,
            link_bytes_per_s=link * 1e9 if link else usual.link.bytes_per_s,
            network_bytes_per_s=network * 1e9 * gpus if network else None,
            usd_per_hour=price,
        )
        for i in range(count)
    ]


def _devices(gpu: str, count: int, memory_bytes: int | None = None) -> tuple[Device, ...]:
    limit = memory_bytes or usable_bytes(gpu)
    name = known_accelerator(gpu) or gpu
    return tuple(Device(name=name, memory_bytes=limit, slot=slot) for slot in range(count))


def _node(host: str, gpu: str, devices: tuple[Device, ...]) -> Node:
    usual = machine(gpu, gpus_per_node=len(devices))
    return Node(
        host=host,
        devices=devices,
        link_bytes_per_s=usual.link.bytes_per_s,
        network_bytes_per_s=usual.node_network_bytes_per_s,
    )


def _whole(group: RawConfig, where: str, key: str, default: int) -> int:
    value = group.get((key,), default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{where}.{key} is {value!r}, but must be a whole number of at least 1.")
    return value


def _number(group: RawConfig, where: str, key: str) -> float | None:
    value = group.get((key,))
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
        raise ConfigError(f"{where}.{key} is {value!r}, but must be a number above 0.")
    return float(value)


_FILE = Path(__file__).parent / "prices.csv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one GPU costs; ``as_of`` is a date, or ``recalled`` where nobody checked it."""

    gpu: str
    usd_per_gpu_hour: float
    cloud: str
    instance: str
    region: str
    as_of: str
    source: str


def prices(gpu: str) -> tuple[Price, ...]:
    """Known prices of a GPU, the newest first and among those the lowest."""
    found = [price for price in _all() if price.gpu == gpu]
    cheapest = sorted(found, key=lambda price: price.usd_per_gpu_hour)
    return tuple(sorted(cheapest, key=_year, reverse=True))


def price(gpu: str) -> Price | None:
    """The first of them; None where no price is known."""
    return next(iter(prices(gpu)), None)


def _year(price: Price) -> int:
    return int(price.as_of[:4]) if price.as_of[:4].isdigit() else 0


@cache
def _all() -> tuple[Price, ...]:
    with _FILE.open(newline="", encoding="utf-8") as file:
        return tuple(
            Price(
                gpu=row["gpu"],
                usd_per_gpu_hour=float(row["usd_per_hour"]) / int(row["gpus"]),
                cloud=row["cloud"],
                instance=row["instance"],
                region=row["region"],
                as_of=row["as_of"],
                source=row["source"],
            )
            for row in csv.DictReader(file)
        )
