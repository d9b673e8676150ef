"""Clusters by short names, and the memory of their GPUs.

``8xA100-SXM-80GB`` is one node, ``64x8xH100-SXM-80GB`` are 64 of them, and
``1x8xA100-SXM-40GB+3x4xA10G-24GB`` is a mixed cluster.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from autoconf_launch.core import (
    GIB,
    SCHEMA_KEY,
    ClusterSpec,
    ConfigError,
    Device,
    GpuRates,
    Node,
    RawConfig,
    nearest_known,
)

from .fabrics import fabric, fabric_names
from .machines import known_accelerator, machine, unknown_gpu, usable_share

MOST_GPUS = 1 << 20
_FILE = Path(__file__).parent / "prices.csv"


def parse_cluster(text: str) -> ClusterSpec:
    """Nodes of ``[NODESx]GPUSxGPU``, or one GPU by its name; ``+`` between kinds.

    Raises:
        ConfigError: another form, an unknown GPU, or too many of them.
    """
    parts = text.split("+")
    sizes: list[tuple[int, int, str]] = []
    for number, part in enumerate(parts, start=1):
        try:
            sizes.append(_parse_part(part))
        except ConfigError as error:
            if len(parts) == 1:
                raise
            raise ConfigError(f"Part {number} of cluster {text!r}: {error}") from error
    if sum(nodes * each for nodes, each, _ in sizes) > MOST_GPUS:
        raise ConfigError(f"Cluster {text!r} has more than {MOST_GPUS} GPUs in all.")
    groups = [equal_nodes(*size).nodes for size in sizes]
    if len(groups) == 1:
        return ClusterSpec(nodes=groups[0])
    return ClusterSpec(nodes=_number_hosts(node for group in groups for node in group))


def _parse_part(text: str) -> tuple[int, int, str]:
    """Nodes, GPUs of each, and the GPU."""
    found = re.fullmatch(r"(?:(\d+)x)?(?:(\d+)x)?([A-Za-z].*)", text.strip())
    if not found:
        raise ConfigError(
            f"Cluster {text!r} is not known; write for example 8xA100-SXM-80GB, "
            "64x8xH100-SXM-80GB or 1x8xA100-SXM-40GB+3x4xA10G-24GB."
        )
    first, second, gpu = found.groups()
    nodes, each = (int(first), int(second)) if second else (1, int(first or 1))
    _require_range(nodes, each)
    if known_accelerator(gpu) is None:
        raise unknown_gpu(gpu)
    return nodes, each, gpu


def _number_hosts(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(replace(node, host=f"node{number}") for number, node in enumerate(nodes))


def cluster_template() -> str:
    """A cluster file with every key and its meaning."""
    return (Path(__file__).parent / "cluster.template.yaml").read_text(encoding="utf-8")


def equal_nodes(nodes: int, gpus: int, gpu: str) -> ClusterSpec:
    """Equal nodes with their default links.

    Raises:
        ConfigError: an unknown GPU, or a count that is out of range.
    """
    _require_range(nodes, gpus)
    node = _node(gpu, _devices(gpu, gpus))
    return ClusterSpec(nodes=tuple(replace(node, host=f"node{i}") for i in range(nodes)))


def _require_range(nodes: int, gpus: int) -> None:
    if nodes < 1 or gpus < 1 or nodes * gpus > MOST_GPUS:
        raise ConfigError(
            f"{nodes} x {gpus} GPUs are out of range; a cluster has 1 to {MOST_GPUS} GPUs."
        )


def usable_bytes(gpu: str) -> int:
    """Memory that a process can have on a GPU.

    Raises:
        ConfigError: the GPU is unknown.
    """
    name = known_accelerator(gpu)
    if name is None:
        raise unknown_gpu(gpu)
    return int(machine(name).accelerator.memory_bytes * usable_share(name))


def _rate(about: str) -> Any:
    return Field(default=None, gt=0, lt=1e9, description=about)


class GpuDescription(BaseModel):
    """A GPU that gpus.csv lacks, or rates that replace its row's; the fields of GpuRates."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    peak_tflops: float | None = _rate("TFLOP/s of dense 16-bit products, by the datasheet")
    fp32_tflops: float | None = _rate("TFLOP/s of products in fp32, by the datasheet")
    tf32_tflops: float | None = _rate("TFLOP/s in TF32, by the datasheet")
    fp8_tflops: float | None = _rate("TFLOP/s in 8 bits, by the datasheet")
    fp4_tflops: float | None = _rate("TFLOP/s in 4 bits, by the datasheet")
    bandwidth_gb_per_s: float | None = _rate("GB/s of a GPU's memory, by the datasheet")
    multiprocessors: int | None = Field(
        default=None, ge=1, le=MOST_GPUS, description="units that take a tile of a product each"
    )
    reached_tflops: float | None = _rate("TFLOP/s of the fastest 16-bit product, measured")
    attention_tflops: float | None = _rate("TFLOP/s of causal attention forward, measured")
    attention_backward_tflops: float | None = _rate("TFLOP/s of its backward pass, measured")
    all_reduce_gb_per_s: float | None = _rate(
        "GB/s of bus bandwidth of long all-reduces in a node, measured"
    )
    all_reduce_us: float | None = _rate("microseconds of an empty all-reduce, measured")
    host_link_gb_per_s: float | None = _rate("GB/s from a GPU's memory to the host's, measured")

    @property
    def rates(self) -> GpuRates | None:
        """The rates that are given; None without any."""
        found = GpuRates(**{one.name: getattr(self, one.name) for one in fields(GpuRates)})
        return None if found == GpuRates() else found


class NodeGroup(GpuDescription):
    """Equal nodes of a cluster file; omitted values are the defaults of the GPU."""

    gpu: str = Field(
        min_length=1, description="name or alias of a GPU in gpus.csv, or of a described one"
    )
    count: int = Field(default=1, ge=1, le=MOST_GPUS, description="nodes of this group")
    gpus: int = Field(default=8, ge=1, le=MOST_GPUS, description="GPUs of a node")
    memory_gib: float | None = Field(
        default=None, ge=0.001, lt=1e9, description="GiB that a process can have on a GPU"
    )
    link_gb_per_s: float | None = Field(
        default=None,
        gt=0,
        lt=1e9,
        description="GB/s between the GPUs of a node, of one GPU in one direction",
    )
    network_gb_per_s: float | None = Field(
        default=None,
        gt=0,
        lt=1e9,
        description="GB/s between nodes, of one GPU's share of the cards in one direction",
    )
    fabric: str | None = Field(
        default=None,
        description=f"network between nodes: {', '.join(fabric_names())}, or another ratio N:1",
    )
    host_memory_gib: float | None = Field(
        default=None,
        gt=0,
        lt=1e9,
        description="GiB of a node beside its GPUs', for what is offloaded",
    )
    gpus_used: int | None = Field(
        default=None,
        ge=1,
        le=MOST_GPUS,
        description="GPUs of a node that train; the whole node is paid, and its cards are theirs",
    )
    usd_per_hour: float | None = Field(
        default=None, gt=0, lt=1e9, description="of a whole node, whatever is used of it"
    )


class ClusterFile(BaseModel):
    """A cluster for fit, plan and recommend: --cluster FILE."""

    model_config = ConfigDict(frozen=True, extra="forbid", title="Cluster of autoconf-launch")

    schema_uri: str | None = Field(default=None, alias="$schema", description="of this schema")
    nodes: list[NodeGroup] = Field(min_length=1, description="groups of equal nodes")


def cluster_of_document(document: RawConfig) -> ClusterSpec:
    """Nodes of a document as :class:`ClusterFile` describes it.

    Raises:
        ConfigError: a key is unknown, missing or has a wrong value.
    """
    _require_known(document.to_dict(), {SCHEMA_KEY, "nodes"}, "")
    groups = document.get(("nodes",))
    if not isinstance(groups, list) or not groups:
        raise ConfigError("nodes must be a list of groups, such as [{gpu: T4-16GB, count: 4}].")
    nodes: list[Node] = []
    for number, group in enumerate(groups):
        nodes += _nodes(_group(group, f"nodes[{number}]"))
    if sum(len(node.devices) for node in nodes) > MOST_GPUS:
        raise ConfigError(f"nodes have more than {MOST_GPUS} GPUs in all.")
    return ClusterSpec(nodes=_number_hosts(nodes))


def with_network_of(known: ClusterSpec, found: ClusterSpec) -> ClusterSpec:
    """Hosts whose GPUs have the share of network of such GPUs in a cluster that is known better.

    Raises:
        ConfigError: it has no such GPU.
    """
    nodes = {node.devices[0].name: node for node in reversed(known.nodes)}
    return ClusterSpec(nodes=tuple(_with_network_of(nodes, host) for host in found.nodes))


def _with_network_of(known: Mapping[str, Node], host: Node) -> Node:
    name = host.devices[0].name
    memory_bytes = host.devices[0].memory_bytes
    exact, alike = known_accelerator(name, memory_bytes), known_accelerator(name)
    node = next((known[one] for one in (exact, alike, name) if one and one in known), None)
    if node is None:
        raise ConfigError(
            f"--cluster has {', '.join(sorted(known))}, but {host.host} has {name}; write it "
            "anew with autoconf-launch doctor --save FILE."
        )
    cards = node.network_bytes_per_s
    share = cards and cards * len(host.devices) / node.rented_slots
    return replace(host, network_bytes_per_s=share, gpu_rates=node.gpu_rates)


def _group(group: object, where: str) -> NodeGroup:
    if not isinstance(group, dict):
        raise ConfigError(f"{where} is {group!r}, but must be a section.")
    _require_known(group, NodeGroup.model_fields, f"{where}.")
    try:
        read = NodeGroup(**{key: value for key, value in group.items() if value is not None})
    except ValidationError as error:
        raise ConfigError(_first_problem(error, where)) from error
    if read.fabric is not None:
        try:
            fabric(read.fabric)
        except ConfigError as error:
            raise ConfigError(f"{where}.fabric: {error}") from error
    if read.count * read.gpus > MOST_GPUS:
        raise ConfigError(f"{where} has more than {MOST_GPUS} GPUs.")
    if read.gpus_used is not None and read.gpus_used > read.gpus:
        raise ConfigError(
            f"{where}.gpus_used is {read.gpus_used}, but a node has {read.gpus} GPUs; give at "
            f"most {read.gpus}."
        )
    _require_description(read, where)
    return read


_PAIRS = (
    ("attention_tflops", "attention_backward_tflops"),
    ("all_reduce_gb_per_s", "all_reduce_us"),
)


def _require_description(group: NodeGroup, where: str) -> None:
    """Check that a GPU without a row has all that cannot be assumed of it."""
    for pair in _PAIRS:
        missing = [key for key in pair if getattr(group, key) is None]
        if 0 < len(missing) < len(pair):
            raise ConfigError(f"{where}.{missing[0]} is missing; give {' and '.join(pair)}.")
    reached, peak = group.reached_tflops, group.peak_tflops
    if reached and peak and reached > peak:
        raise ConfigError(
            f"{where}.reached_tflops is {reached:g}, above peak_tflops ({peak:g}); correct one."
        )
    if known_accelerator(group.gpu):
        return
    if group.rates is None:
        raise unknown_gpu(group.gpu)
    needed = ["peak_tflops", "memory_gib", "bandwidth_gb_per_s"]
    needed += ["link_gb_per_s"] * (group.gpus > 1) + ["network_gb_per_s"] * (group.count > 1)
    if missing := [key for key in needed if getattr(group, key) is None]:
        raise ConfigError(
            f"{where}.gpu {group.gpu!r} is not in our tables, so {where} must have "
            f"{', '.join(missing)}; the vendor's datasheet has such numbers."
        )


def _require_known(section: Mapping[Any, Any], known: Collection[str], where: str) -> None:
    for key in section:
        if key not in known:
            raise ConfigError(f"{where}{key} is unknown; {nearest_known(str(key), known)}")


def _first_problem(error: ValidationError, where: str) -> str:
    problem = error.errors()[0]
    name = str(problem["loc"][0])
    least = problem.get("ctx", {}).get("ge")
    must = (
        "name a GPU"
        if name == "gpu"
        else f"be a whole number from 1 to {MOST_GPUS}"
        if NodeGroup.model_fields[name].annotation in (int, int | None)
        else f"be at least {least}"
        if least is not None
        else "be a number above 0"
    )
    given = "missing" if problem["type"] == "missing" else repr(problem["input"])
    return f"{where}.{name} is {given}, but must {must}."


def _nodes(group: NodeGroup) -> list[Node]:
    memory, network = group.memory_gib, group.network_gb_per_s
    used = group.gpus_used or group.gpus
    devices = _devices(group.gpu, used, round(memory * GIB) if memory else None)
    cards = network * 1e9 * group.gpus if network else None
    usual = None
    if known_accelerator(group.gpu):
        usual = machine(group.gpu, gpus_per_node=group.gpus)
        if used < group.gpus:  # its ranks share all cards of the node
            cards = cards or usual.node_network_bytes_per_s
    link = group.link_gb_per_s and group.link_gb_per_s * 1e9
    host = group.host_memory_gib
    node = Node(
        host="",
        devices=devices,
        link_bytes_per_s=link or (usual.link.bytes_per_s if usual else None),
        network_bytes_per_s=cards,
        fabric=group.fabric,
        host_memory_bytes=host * GIB if host else usual.host_memory_bytes if usual else None,
        usd_per_hour=group.usd_per_hour,
        paid_slots=group.gpus if used < group.gpus else None,
        gpu_rates=group.rates,
    )
    return [node] * group.count


def _devices(gpu: str, count: int, memory_bytes: int | None = None) -> tuple[Device, ...]:
    limit = memory_bytes or usable_bytes(gpu)
    name = known_accelerator(gpu) or gpu
    return tuple(Device(name=name, memory_bytes=limit, slot=slot) for slot in range(count))


def _node(gpu: str, devices: tuple[Device, ...]) -> Node:
    usual = machine(gpu, gpus_per_node=len(devices))
    return Node(
        host="",
        devices=devices,
        link_bytes_per_s=usual.link.bytes_per_s,
        network_bytes_per_s=usual.node_network_bytes_per_s,
        host_memory_bytes=usual.host_memory_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Price of one GPU; ``as_of`` is a date, or ``recalled`` if the price was not checked."""

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
    """The first of them; None if no price is known."""
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
