"""This machine as a cluster to plan for: its GPUs, or processes on its CPU."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial

import numpy as np

from autoconf_launch.autotuner.cost import (
    CPU_PHYSICS,
    Accelerator,
    CollectiveRate,
    Link,
    Machine,
)
from autoconf_launch.core import ClusterSpec, Device, HardwareError, Node
from autoconf_launch.tuning_spaces import equal_nodes, known_accelerator, with_links

from ..request import HostChoice, LaunchRequest
from .cores import physical_cores
from .discover import available_memory_bytes, find_cluster


def local_cluster(ranks: int | None = None) -> ClusterSpec:
    """So many GPUs of this machine, or processes where it has none; None: all, or one process.

    They have the memory that their driver reports, and the name of our tables if these have them.

    Raises:
        HardwareError: it has fewer GPUs, or different ones.
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
    memory = min(device.memory_bytes for device in devices)
    known = known_accelerator(names[0], memory)
    is_slice = known is None and known_accelerator(names[0]) is not None
    name = known or (f"part of {names[0]}" if is_slice else names[0])
    here = found.nodes[0]
    node = here if known is None else equal_nodes(1, len(devices), known).nodes[0]
    usable = tuple(
        Device(name=name, memory_bytes=memory, slot=slot) for slot in range(len(devices))
    )
    host_bytes = here.host_memory_bytes
    return ClusterSpec(nodes=(replace(node, devices=usable, host_memory_bytes=host_bytes),))


def is_cpu(cluster: ClusterSpec) -> bool:
    """Whether its slots are processes on a CPU."""
    return cluster.devices[0].is_cpu


def cpu_machine(node: Node) -> Machine:
    """What a node of CPU processes computes, each with its share of this machine; roughly."""
    ranks = len(node.devices)
    link = with_links(node)
    assert link.link_bytes_per_s is not None
    assert link.link_latency_s is not None
    rate = CollectiveRate(ranks=2, latency_s=link.link_latency_s, link_fraction=1.0)
    alone = CollectiveRate(
        ranks=2,
        latency_s=_GLOO_LATENCY_S,
        link_fraction=_GLOO_BYTES_PER_S / link.link_bytes_per_s,
    )
    flops_per_s, bytes_per_s = _core_rates()
    cores = len(physical_cores(sorted(os.sched_getaffinity(0)))) / ranks
    return Machine(
        accelerator=Accelerator(
            name=node.devices[0].name,
            half_flops_per_s=2 * flops_per_s * cores,
            fp32_flops_per_s=flops_per_s * cores,
            reached=1.0,
            multiprocessors=1,
            memory_bytes=float(available_memory_bytes()) / ranks,
            memory_bytes_per_s=bytes_per_s * cores,
            flash=0.0,
        ),
        gpus_per_node=ranks,
        link=Link(bytes_per_s=link.link_bytes_per_s, rates=((rate,),), short_rates=((alone,),)),
        node_network_bytes_per_s=link.link_bytes_per_s,
        host_memory_bytes=node.host_memory_bytes,
        physics=CPU_PHYSICS,
    )


_GLOO_LATENCY_S, _GLOO_BYTES_PER_S = 2.6e-4, 3.0e9
"""An all-reduce of gloo between products of ranks that have a core each and do nothing beside it,
as generation has them (``benchmarks/cpu_constants.py``); training's, by ``with_links``, waits
for more."""
_SIDE, _PRODUCTS, _TRIES = 64, 16, 60
"""Products so small that BLAS computes each on one core, and tries so short that a machine which
does other work leaves some of them undisturbed."""
_CHUNK_BYTES, _CHUNKS = 1 << 20, 128
_UNDISTURBED = 0.25
"""Part of the chunks, each of which is copied once, that are taken to be so."""


@cache
def _core_rates() -> tuple[float, float]:
    """FLOP/s of matrix products in fp32 and bytes/s of a copy, on one core."""
    matrices = np.ones((_PRODUCTS, _SIDE, _SIDE), dtype=np.float32)
    results = np.empty_like(matrices)
    source = np.ones((_CHUNKS, _CHUNK_BYTES), dtype=np.uint8)
    target = np.ones_like(source)
    product_s = min(
        _seconds(lambda: np.matmul(matrices, matrices, out=results)) for _ in range(_TRIES)
    )
    copies_s = [_seconds(partial(np.copyto, *pair)) for pair in zip(target, source, strict=True)]
    copy_s = float(np.quantile(copies_s, _UNDISTURBED))
    return 2 * _PRODUCTS * _SIDE**3 / product_s, 2 * _CHUNK_BYTES / copy_s


def _seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
