"""GPUs and links from the data files next to this module, or as a cluster file describes them.

GPUs have the default links of such nodes; processes of a CPU speak through loopback.
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from autoconf_launch.autotuner.cost import Accelerator, CollectiveRate, Fabric, Link, Machine
from autoconf_launch.core import GIB, ConfigError, GpuRates, Node

from .fabrics import fabric
from .hints import nearest

_FOLDER = Path(__file__).parent / "hardware"
_LEAST_SHARE = 0.6
"""Least part of a card's memory that its driver reports; error correction takes 8 % of it."""
_USABLE = 0.9875
"""Share of a datasheet's memory (in GiB) that a process can have on GPUs whose row has none: 79.1
of an A100's 80, 15.8 of a V100's 16 (torch.cuda.get_device_properties)."""
FP32_REACHED = 0.85
"""Part of the fp32 peak that cuBLAS reaches on GPUs whose row has none: 0.75 to 0.9 (recalled)."""
_SWITCH_BYTES_PER_S = 100e9
"""Rate of a described link from which on it counts as a switch, below as PCIe: PCIe 5 has 63."""
REACHED, _FLASH, _UNITS, _FP32_SHARE = 0.78, 0.45, 128, 1 / 16
"""Assumed of a described GPU: the median part of the peak that the largest product reached on
twelve accelerators (github:stas00/ml-engineering, compute/accelerator/README.md), the middle of
``flash`` in gpus.csv, units, and the fp32 rate of data centers' GPUs over their 16-bit rate."""
_RATES = {
    "fp32_tflops": ("fp32_flops_per_s", 1e12),
    "tf32_tflops": ("tf32_flops_per_s", 1e12),
    "fp8_tflops": ("fp8_flops_per_s", 1e12),
    "fp4_tflops": ("fp4_flops_per_s", 1e12),
    "bandwidth_gb_per_s": ("memory_bytes_per_s", 1e9),
    "multiprocessors": ("multiprocessors", 1),
}
"""Keys of a description with the field of an accelerator and its unit."""
_PARTS_OF_PEAK = {
    "reached_tflops": "reached",
    "attention_tflops": "attention",
    "attention_backward_tflops": "attention_backward",
}
"""Keys of measured rates, with the field that has them as a part of the 16-bit peak."""
_LOOPBACK_BYTES_PER_S = 0.3e9
_LOOPBACK_LATENCY_S = 1.5e-3
"""Rates of gloo while its ranks compute on the same cores: what ZeRO 1 to 3 took longer than
ZeRO 0 in benchmarks/results/deepspeed_peer_2cpu.json (2 ranks; without load they reach 1 GB/s and
0.35 ms)."""


def accelerator_names() -> tuple[str, ...]:
    """Names of known GPUs, without aliases."""
    return tuple(_rows())


def known_accelerator(name: str, memory_bytes: float | None = None) -> str | None:
    """The name in our tables of a GPU, an alias or a driver's name; None if it is unknown.

    Case, blanks, hyphens and underscores make no difference.

    Args:
        name: of the GPU.
        memory_bytes: as the driver reports it, which tells cards of one name apart. A device with
            much less than any of them is a slice of a card, whose rates are not the card's.
    """
    names = _names().get(_plain(name), ())
    if memory_bytes is None:
        return next(iter(names), None)
    held = {one: float(_rows()[one]["memory_gb"]) * GIB for one in names}
    held = {one: size for one, size in held.items() if memory_bytes >= _LEAST_SHARE * size}
    return min(held, key=lambda one: abs(held[one] - memory_bytes), default=None)


def usable_share(name: str) -> float:
    """Share of the memory of a GPU, by its name in our table, that a process can have."""
    return _part(_rows()[name], "usable") or _USABLE


def unknown_gpu(name: str) -> ConfigError:
    """The error for a name that is not a known GPU."""
    also = {other: names[0] for other, names in _names().items()}
    if near := nearest(name, accelerator_names(), also):
        return ConfigError(
            f"GPU {name!r} is unknown; did you mean {near!r}? A new one is described in a file "
            "(plan --cluster-template)."
        )
    return ConfigError(
        f"GPU {name!r} is unknown; describe it with peak_tflops, memory_gib and "
        "bandwidth_gb_per_s in a file (plan --cluster-template), or let doctor --measure-gpu "
        "--save FILE measure it."
    )


def machine(
    gpu: str,
    *,
    gpus_per_node: int | None = None,
    network_bytes_per_s: float | None = None,
    fabric_name: str | None = None,
) -> Machine:
    """Nodes of one GPU; None means the default of such nodes.

    Args:
        gpu: name or alias.
        gpus_per_node: GPUs of one node.
        network_bytes_per_s: all network cards of a node together, one direction.
        fabric_name: the network between nodes.

    Raises:
        ConfigError: the GPU or the network is unknown.
    """
    known = known_accelerator(gpu)
    if known is None:
        raise unknown_gpu(gpu)
    row = _rows()[known]
    count = gpus_per_node or int(row["gpus_per_node"])
    usual = float(row["network_gb_per_s"]) * 1e9 * count
    is_usual = count == int(row["gpus_per_node"]) and row["host_memory_gib"]
    return Machine(
        accelerator=_accelerator(row),
        gpus_per_node=count,
        link=_link(row["link"], float(row["link_gb_per_s"]) * 1e9),
        node_network_bytes_per_s=network_bytes_per_s or usual,
        host_memory_bytes=float(row["host_memory_gib"]) * GIB if is_usual else None,
        linked_gpus=int(row["linked_gpus"]) if row["linked_gpus"] else None,
        fabric=Fabric() if fabric_name is None else fabric(fabric_name),
    )


def node_machine(node: Node) -> Machine:
    """Nodes like a given one: the GPU's row, with the rates of the cluster file in their place.

    Raises:
        ConfigError: the GPU is neither known nor described.
    """
    name, count = node.devices[0].name, len(node.devices)
    if known_accelerator(name):
        found = machine(
            name,
            gpus_per_node=count,
            network_bytes_per_s=node.network_bytes_per_s,
            fabric_name=node.fabric,
        )
    elif node.gpu_rates is not None:
        found = _describe_machine(node, node.gpu_rates)
    else:
        raise unknown_gpu(name)
    if node.host_memory_bytes is not None:
        found = replace(found, host_memory_bytes=node.host_memory_bytes)
    if node.link_bytes_per_s is not None:
        found = replace(found, link=replace(found.link, bytes_per_s=node.link_bytes_per_s))
    return found if node.gpu_rates is None else _with_rates(found, node.gpu_rates)


def _describe_machine(node: Node, rates: GpuRates) -> Machine:
    """Nodes of a GPU without a row, whose rates are assumed but for its datasheet's."""
    half = (rates.peak_tflops or math.nan) * 1e12
    link, count = node.link_bytes_per_s or math.nan, len(node.devices)
    accelerator = Accelerator(
        name=node.devices[0].name,
        half_flops_per_s=half,
        fp32_flops_per_s=half * _FP32_SHARE,
        reached=REACHED,
        fp32_reached=FP32_REACHED,
        multiprocessors=_UNITS,
        memory_bytes=float(node.devices[0].memory_bytes),
        memory_bytes_per_s=math.nan,
        flash=_FLASH,
    )
    measured = {
        "reached_tflops": rates.reached_tflops,
        "attention_tflops": rates.attention_tflops,
        "all_reduce_gb_per_s": rates.all_reduce_gb_per_s or count == 1,
    }
    kind = "switch" if link >= _SWITCH_BYTES_PER_S else "pcie"
    return Machine(
        accelerator=replace(
            accelerator, assumed=tuple(key for key, value in measured.items() if not value)
        ),
        gpus_per_node=count,
        link=_link(kind, link),
        node_network_bytes_per_s=node.network_bytes_per_s or math.nan,
        fabric=Fabric() if node.fabric is None else fabric(node.fabric),
    )


def _with_rates(found: Machine, rates: GpuRates) -> Machine:
    """The machine at the rates of a description, if it has any."""
    gpu, link, physics = found.accelerator, found.link, found.physics
    half = rates.peak_tflops * 1e12 if rates.peak_tflops else gpu.half_flops_per_s
    changes: dict[str, Any] = {"half_flops_per_s": half}
    for key, (field, unit) in _RATES.items():
        if (value := getattr(rates, key)) is not None:
            changes[field] = value * unit
    for key, field in _PARTS_OF_PEAK.items():
        if (value := getattr(rates, key)) is not None:
            changes[field] = value * 1e12 / half
    if rates.all_reduce_gb_per_s and rates.all_reduce_us:
        line = CollectiveRate(
            ranks=max(2, found.gpus_per_node),
            latency_s=rates.all_reduce_us * 1e-6,
            link_fraction=rates.all_reduce_gb_per_s * 1e9 / link.bytes_per_s,
        )
        link = replace(link, rates=((line,),))
    if rates.host_link_gb_per_s:
        physics = replace(physics, host_link_bytes_per_s=rates.host_link_gb_per_s * 1e9)
    accelerator = replace(gpu, **changes)
    return replace(found, accelerator=accelerator, link=link, physics=physics)


def unrated_machine(gpu: str, gpus_per_node: int) -> Machine:
    """Nodes of a GPU that our tables lack: all that takes time there takes NaN seconds."""
    unknown = math.nan
    rate = CollectiveRate(ranks=2, latency_s=unknown, link_fraction=unknown)
    return Machine(
        accelerator=Accelerator(
            name=gpu,
            half_flops_per_s=unknown,
            fp32_flops_per_s=unknown,
            tf32_flops_per_s=unknown,
            fp8_flops_per_s=unknown,
            fp4_flops_per_s=unknown,
            reached=unknown,
            multiprocessors=1,
            memory_bytes=unknown,
            memory_bytes_per_s=unknown,
        ),
        gpus_per_node=gpus_per_node,
        link=Link(bytes_per_s=unknown, rates=((rate,),)),
        node_network_bytes_per_s=unknown,
    )


def _accelerator(row: dict[str, str]) -> Accelerator:
    return Accelerator(
        name=row["name"],
        half_flops_per_s=float(row["half_tflops"]) * 1e12,
        fp32_flops_per_s=float(row["fp32_tflops"]) * 1e12,
        tf32_flops_per_s=_rate(row, "tf32_tflops"),
        fp8_flops_per_s=_rate(row, "fp8_tflops"),
        fp4_flops_per_s=_rate(row, "fp4_tflops"),
        reached=float(row["reached"]),
        fp32_reached=_part(row, "fp32_reached") or FP32_REACHED,
        multiprocessors=int(row["multiprocessors"]),
        memory_bytes=float(row["memory_gb"]) * GIB,
        memory_bytes_per_s=float(row["memory_gb_per_s"]) * 1e9,
        bf16=row["bf16"] == "1",
        flash=float(row["flash"]),
        streamed=_part(row, "streamed"),
        power_limited=_part(row, "power_limited"),
        attention=_part(row, "attention"),
        attention_backward=_part(row, "attention_backward"),
    )


def _rate(row: dict[str, str], name: str) -> float | None:
    return float(row[name]) * 1e12 if row[name] else None


def _part(row: dict[str, str], name: str) -> float | None:
    return float(row[name]) if row[name] else None


@cache
def _rows() -> dict[str, dict[str, str]]:
    with (_FOLDER / "gpus.csv").open(newline="", encoding="utf-8") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


@cache
def _names() -> dict[str, tuple[str, ...]]:
    """Rows by each of their names; only a driver gives cards of different memory one name."""
    known: defaultdict[str, tuple[str, ...]] = defaultdict(tuple)
    for name, row in _rows().items():
        every = (name, *row["aliases"].split(), *filter(None, row["driver"].split("|")))
        for plain in dict.fromkeys(map(_plain, every)):
            known[plain] += (name,)
    return dict(known)


def _plain(name: str) -> str:
    return name.lower().translate(str.maketrans("", "", " -_"))


def _link(kind: str, bytes_per_s: float) -> Link:
    rates = _rates()[kind]

    def protocols(*names: str) -> tuple[tuple[CollectiveRate, ...], ...]:
        return tuple(rates[name] for name in names if name in rates)

    return Link(
        bytes_per_s=bytes_per_s,
        rates=protocols("short", "long"),
        short_rates=protocols("low latency"),
        peer_rates=protocols("one shot", "two shots"),
    )


@cache
def _rates() -> dict[str, dict[str, tuple[CollectiveRate, ...]]]:
    found: defaultdict[str, defaultdict[str, list[CollectiveRate]]] = defaultdict(
        lambda: defaultdict(list)
    )
    with (_FOLDER / "collectives.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rate = CollectiveRate(
                ranks=int(row["ranks"]),
                latency_s=float(row["latency_us"]) * 1e-6,
                link_fraction=float(row["link_fraction"]),
            )
            found[row["link"]][row["protocol"]].append(rate)
    return {link: {name: tuple(p) for name, p in by.items()} for link, by in found.items()}


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
