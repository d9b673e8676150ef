"""This machine as a cluster to plan for: its GPUs, or processes on its CPU."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache

import numpy as np

from autoconf_launch.autotuner.cost import Accelerator, CollectiveRate, Link, Machine
from autoconf_launch.core import ClusterSpec, HardwareError, Node
from autoconf_launch.tuning_spaces import equal_nodes, known_accelerator, with_links

from ..request import HostChoice, LaunchRequest
from .discover import available_memory_bytes, find_cluster


def local_cluster(ranks: int | None = None) -> ClusterSpec:
    """So many GPUs of this machine, or processes where it has none; None: all, or one process.

    Raises:
        HardwareError: it has fewer GPUs, different ones, or some that our tables lack.
    """
    request = LaunchRequest(script="", processes=ranks, hosts=HostChoice(standalone=True))
    found = find_cluster(request)
    devices = found.devices
    if is_cpu(found):
        return found
    names = sorted({device.name for device in devices})
    if len(names) > 1:
        raise HardwareError(
            f"This machine has different GPUs ({', '.join(names)}); choose those of one kind with "
            "CUDA_VISIBLE_DEVICES."
        )
    if known_accelerator(names[0]) is None:
        raise HardwareError(
            f"This machine's GPU, {names[0]}, is not in our table; describe it as the nearest one "
            "with its own memory_gib in a file (plan --cluster-template)."
        )
    (node,) = equal_nodes(1, len(devices), names[0]).nodes
    memory = min(node.devices[0].memory_bytes, *(device.memory_bytes for device in devices))
    usable = tuple(replace(device, memory_bytes=memory) for device in node.devices)
    host_bytes = found.nodes[0].host_memory_bytes
    return ClusterSpec(nodes=(replace(node, devices=usable, host_memory_bytes=host_bytes),))


def is_cpu(cluster: ClusterSpec) -> bool:
    """Whether its slots are processes on a CPU."""
    return cluster.devices[0].name.startswith("cpu")


def cpu_machine(node: Node) -> Machine:
    """What a node of CPU processes computes, each with its share of this machine; roughly."""
    ranks = len(node.devices)
    link = with_links(node)
    assert link.link_bytes_per_s is not None
    assert link.link_latency_s is not None
    rate = CollectiveRate(ranks=2, latency_s=link.link_latency_s, link_fraction=1.0)
    flops_per_s, bytes_per_s = _measured_rates()
    return Machine(
        accelerator=Accelerator(
            name=node.devices[0].name,
            half_flops_per_s=2 * flops_per_s / ranks,  # fp32 counts as half of it
            reached=1.0,
            multiprocessors=1,
            memory_bytes=float(available_memory_bytes()) / ranks,
            memory_bytes_per_s=bytes_per_s / ranks,
            flash=0.0,
        ),
        gpus_per_node=ranks,
        link=Link(bytes_per_s=link.link_bytes_per_s, rates=((rate,),)),
        node_network_bytes_per_s=link.link_bytes_per_s,
        host_memory_bytes=node.host_memory_bytes,
    )


_SIZE, _TRIES = 1024, 5
_BUFFER_BYTES = 64 << 20


@cache
def _measured_rates() -> tuple[float, float]:
    """FLOP/s of a matrix product in fp32 and bytes/s of a copy, on all cores, at their best."""
    matrix = np.ones((_SIZE, _SIZE), dtype=np.float32)
    source = np.ones(_BUFFER_BYTES, dtype=np.uint8)
    target = np.empty_like(source)
    products, copies = [], []
    for _ in range(_TRIES):
        started = time.perf_counter()
        matrix @ matrix
        products.append(time.perf_counter() - started)
        started = time.perf_counter()
        np.copyto(target, source)
        copies.append(time.perf_counter() - started)
    return 2 * _SIZE**3 / min(products), 2 * _BUFFER_BYTES / min(copies)
